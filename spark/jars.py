"""The jars of Spark's Kafka connector for the installed PySpark, fetched through Maven once.

`python -m ottla.spark.jars` prints them as spark-submit and `spark.jars` want them:

    spark-submit --jars "$(python -m ottla.spark.jars)" job.py

No version is written down here. The installed PySpark says its own and Scala's in the name of its
spark-core jar; the connector's pom says which jars it wants beside it, and those that PySpark
brings itself are left out. (`--packages`, the usual way, resolves Spark's parent poms as well, and
fails on a mirror that lacks one.)
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, replace
from pathlib import Path

from ottla.spark import java
from ottla.spark.errors import install
from ottla.spark.maven import CACHE, Artifact, JarsUnavailable, Say, copy, filled, to_stderr

CONNECTOR = "spark-sql-kafka-0-10"
# Must be on the class path and serves delegation tokens only, so that a neighbouring version does
# where a repository has not got the connector's own.
FALLBACKS = {"spark-token-provider-kafka-0-10": "4.0.0"}
POM = {"m": "http://maven.apache.org/POM/4.0.0"}


@dataclass(frozen=True)
class Spark:
    """The Spark that PySpark will run."""

    version: str
    scala: str
    jars: Path


def installed_spark() -> Spark:
    """The Spark of SPARK_HOME, else PySpark's own, as PySpark chooses. Raises JarsUnavailable."""
    if named := os.environ.get("SPARK_HOME"):
        home = Path(named)
    else:
        found = importlib.util.find_spec("pyspark")
        if found is None or not found.submodule_search_locations:
            raise JarsUnavailable(f"no PySpark: {install('spark')}")
        home = Path(found.submodule_search_locations[0])
    for jar in (home / "jars").glob("spark-core_*.jar"):
        if match := re.fullmatch(r"spark-core_([\d.]+)-(.+)\.jar", jar.name):
            return Spark(match.group(2), match.group(1), jar.parent)
    raise JarsUnavailable(
        f"no spark-core jar in {home / 'jars'}: pyspark-client has none. Let SPARK_HOME name a "
        f"Spark, or {install('spark')}"
    )


def folder(spark: Spark) -> Path:
    """Where this Spark's jars are kept: below OTTLA_CACHE, else the user's cache folder."""
    named = os.environ.get(CACHE)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = Path(named) if named else Path(cache).expanduser() / "ottla"
    return root / f"spark-jars-{spark.version}_{spark.scala}"


def jars(say: Say | None = None) -> list[Path]:
    """The connector's jars for the installed Spark, fetched when they are not there yet.

    Safe to call from several processes at once. `say` gets a line for each step that takes a
    while; standard error unless given. Raises JarsUnavailable, also where no Java can run them.
    """
    spark = installed_spark()
    if problem := java.problem():
        raise JarsUnavailable(problem)
    return filled(folder(spark), lambda into: _fetch(spark, into, say or to_stderr))


def substitutes(spark: Spark) -> list[str]:
    """A line for each jar that is of another version than the connector asks for, and why."""
    names = (jar.name for jar in folder(spark).glob("*.jar"))
    return [
        f"{name} is of another version than Spark {spark.version}: the repository that the jars "
        "were fetched from lacked that one. It serves delegation tokens only"
        for name in sorted(names)
        if re.sub(r"_[\d.]+-.*", "", name) in FALLBACKS and f"-{spark.version}.jar" not in name
    ]


def _fetch(spark: Spark, into: Path, say: Say) -> None:
    connector = Artifact("org.apache.spark", f"{CONNECTOR}_{spark.scala}", spark.version)
    say(f"fetching Spark's Kafka connector for PySpark {spark.version} through Maven")
    pom = copy(connector, into.parent / "poms", "pom")
    copy(connector, into)
    for artifact in beside(pom.read_text(), spark):
        say(f"fetching {artifact.file_name()}")
        _copy_or_fall_back(artifact, into, say)


def beside(pom: str, spark: Spark) -> list[Artifact]:
    """What the connector's pom wants at run time and this Spark has not got.

    Raises JarsUnavailable when the pom leaves a version open.
    """
    wanted = []
    for entry in ElementTree.fromstring(pom).iterfind("m:dependencies/m:dependency", POM):
        texts = {key: entry.findtext(f"m:{key}", None, POM) for key in ("scope", "type")}
        if texts["scope"] not in (None, "compile", "runtime") or texts["type"] not in (None, "jar"):
            continue
        group, name, version = (
            entry.findtext(f"m:{key}", "", POM) for key in ("groupId", "artifactId", "version")
        )
        artifact = Artifact(group, name, version)
        if any(spark.jars.glob(f"{artifact.name}-[0-9]*.jar")):
            continue
        if not re.fullmatch(r"[\w.+-]+", artifact.version):
            raise JarsUnavailable(
                f"the pom of {CONNECTOR} {spark.version} names no version of {artifact.name}"
            )
        wanted.append(artifact)
    return wanted


def _copy_or_fall_back(artifact: Artifact, into: Path, say: Say) -> None:
    try:
        copy(artifact, into)
    except JarsUnavailable:
        fallback = FALLBACKS.get(re.sub(r"_[\d.]+$", "", artifact.name))
        if fallback is None or fallback == artifact.version:
            raise
        other = replace(artifact, version=fallback)
        copy(other, into)
        say(f"{artifact.file_name()} cannot be had here; taken instead: {other.file_name()}")


def main(arguments: list[str] | None = None) -> int:
    """Print the jars. 0: they are there; 1: they cannot be had."""
    argparse.ArgumentParser(
        prog="python -m ottla.spark.jars",
        description="Fetch the jars of Spark's Kafka connector once, and print them for --jars.",
        epilog=f"They are kept below {CACHE}, unset: ~/.cache/ottla.",
    ).parse_args(arguments)
    try:
        found = jars()
        for line in substitutes(installed_spark()):
            to_stderr(line)
        print(",".join(map(str, found)))
    except JarsUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
