"""Spark's Python data source `format("ottla")`: topics of Ottla or Apache Kafka without a jar.

Spark imports every top-level module named pyspark_* when it looks for data sources, so this one
imports nothing but the data source's class, which imports its clients when they are used.
"""

from pyspark_ottla.errors import INSTALL

try:
    from pyspark_ottla.source import DefaultSource
except ModuleNotFoundError as missing:
    if missing.name is None or missing.name.partition(".")[0] != "pyspark":
        raise
    raise ModuleNotFoundError(
        f"the data source ottla needs PySpark: {INSTALL}", name=missing.name
    ) from missing

__all__ = ["DefaultSource"]
