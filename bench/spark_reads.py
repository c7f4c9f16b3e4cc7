"""A Spark that reads what it is told, a JSON line at a time: `python -m bench.spark_reads`.

{"source": "ottla", "options": {...}} in, {"count": ..., "bytes": ...} out. Ends with its input.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    jars = subprocess.run(
        [sys.executable, "-m", "ottla.spark.jars"], capture_output=True, text=True, check=True
    ).stdout.strip()
    settings = {
        "spark.jars": jars,
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.Builder().master("local[2]").appName("bench")
    spark = builder.config(map=dict(settings)).getOrCreate()
    for line in sys.stdin:
        print(json.dumps(_read(spark, **json.loads(line))), flush=True)
    spark.stop()


def _read(spark: Any, source: str, options: dict[str, str]) -> dict[str, int]:
    rows = spark.read.format(source).options(**options).load()
    (found,) = rows.selectExpr("count(*) AS count", "sum(length(value)) AS bytes").collect()
    return {"count": found["count"], "bytes": found["bytes"] or 0}


if __name__ == "__main__":
    main()
