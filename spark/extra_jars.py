"""Jars that single options need: Avro values, Delta tables. Fetched through Maven when asked for.

    spark-submit --jars "$(python -m ottla.spark.jars),$(python -m ottla.spark.extra_jars avro)"

The version wanted is the installed Spark's (Avro) or the installed delta-spark's (Delta). Where a
repository has not got it, a neighbour that was tried with this Spark is taken, and that is said.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from dataclasses import replace
from pathlib import Path

from ottla.spark.errors import install
from ottla.spark.jars import Spark, folder, installed_spark
from ottla.spark.maven import Artifact, JarsUnavailable, copy, filled, to_stderr

EXTRAS = ("avro", "delta")
# By file of the archive: versions tried with PySpark 4.2.0, the newest first.
NEIGHBOURS = {"spark-avro": ("4.1.1", "4.0.1"), "delta-spark": ("4.1.0",), "delta-storage": ()}


def paths(extra: str) -> list[Path]:
    """The jars of one of EXTRAS. Raises JarsUnavailable."""
    spark = installed_spark()
    final = folder(spark).with_name(f"{folder(spark).name}-{extra}")
    return filled(final, lambda into: _fetch(extra, spark, into))


def _fetch(extra: str, spark: Spark, into: Path) -> None:
    if extra == "avro":
        _nearest(Artifact("org.apache.spark", f"spark-avro_{spark.scala}", spark.version), into)
        return
    try:
        version = importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError:
        raise JarsUnavailable(f"no delta-spark: {install('delta')}") from None
    delta = _nearest(Artifact("io.delta", f"delta-spark_{spark.scala}", version), into)
    _nearest(Artifact("io.delta", "delta-storage", delta.version), into)


def _nearest(wanted: Artifact, into: Path) -> Artifact:
    name = wanted.name.split("_")[0]
    for version in (wanted.version, *NEIGHBOURS[name]):
        artifact = replace(wanted, version=version)
        try:
            copy(artifact, into)
        except JarsUnavailable as error:
            reason = error
            continue
        if artifact != wanted:
            to_stderr(f"{wanted.file_name()} cannot be had; taken: {artifact.file_name()}")
        return artifact
    raise reason


def main(arguments: list[str] | None = None) -> int:
    """Print the jars of one extra, separated by commas."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.spark.extra_jars", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("extra", choices=EXTRAS)
    try:
        print(",".join(map(str, paths(parser.parse_args(arguments).extra))))
    except JarsUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
