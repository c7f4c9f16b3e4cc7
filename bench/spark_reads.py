"""A Spark that reads what it is told, a JSON line at a time: `python -m bench.spark_reads`.

{"source": "ottla", "options": {...}} in, {"count": ..., "bytes": ...} out. Ends with its input.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    from ottla.spark.session import session

    spark = session("bench", master="local[2]")
    for line in sys.stdin:
        print(json.dumps(_read(spark, **json.loads(line))), flush=True)
    spark.stop()


def _read(spark: Any, source: str, options: dict[str, str]) -> dict[str, int]:
    rows = spark.read.format(source).options(**options).load()
    (found,) = rows.selectExpr("count(*) AS count", "sum(length(value)) AS bytes").collect()
    return {"count": found["count"], "bytes": found["bytes"] or 0}


if __name__ == "__main__":
    main()
