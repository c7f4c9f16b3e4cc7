"""Print the path that spark-submit is given."""

from pathlib import Path

print(Path(__file__).with_name("job.py"))
