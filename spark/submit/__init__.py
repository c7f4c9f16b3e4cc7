"""What spark-submit starts: it wants the path of a .py file, which `python -m ottla.spark.submit`
prints. A folder of its own, because a script's folder comes first on Python's path, and modules of
the jobs (`profile`, `audit`) would hide others of that name."""
