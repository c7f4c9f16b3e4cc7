"""The Spark session of the jobs: the same on a laptop and under spark-submit.

On a laptop the session brings the connector's jars by itself (`ottla.spark.jars`), takes all cores
and binds to loopback. Under spark-submit master, jars and addresses are spark-submit's, and only
what the results depend on is set here: the time zone (dates in the archive are UTC).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.spark import extra_jars, jars
from ottla.spark.errors import JobError
from ottla.spark.maven import JarsUnavailable

# Four attempts a task, as on a cluster: plain `local[*]` gives up at the first, and a broker that
# restarts must not end a job.
LAPTOP = "local[*,4]"
LOG4J = Path(__file__).with_name("log4j2.properties")


def session(
    name: str,
    *,
    master: str | None = None,
    extras: Iterable[str] = (),
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start (or find) the session.

    `master` is Spark's; unset: spark-submit's, else all cores of this machine. `extras` are names
    of `ottla.spark.extra_jars.EXTRAS` ("avro", "delta"). Raises JobError when jars cannot be had.
    """
    builder = SparkSession.Builder().appName(f"ottla-spark {name}")
    for key, value in _settings(master, tuple(extras)).items():
        builder = builder.config(key, value)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _settings(master: str | None, extras: tuple[str, ...]) -> dict[str, str]:
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        # Not INT96, which only Spark still writes; and a topic named 007 is not the number 7.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    }
    if "delta" in extras:
        wanted |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit started this process
        return wanted | ({"spark.master": master} if master else {})
    # Executors would take the first python3 on PATH, which need not be this environment's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        paths = [*jars.jars(), *(path for extra in extras for path in extra_jars.paths(extra))]
    except JarsUnavailable as error:
        raise JobError(f"Spark cannot start: {error}") from error
    wanted |= {
        "spark.master": master or LAPTOP,
        "spark.jars": ",".join(map(str, paths)),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
        # Two hundred tasks for a shuffle suit a cluster; a laptop spends its time starting them.
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    if "spark.driver.memory" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        wanted["spark.driver.memory"] = "2g"
    return wanted
