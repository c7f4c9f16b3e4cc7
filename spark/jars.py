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
import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

CACHE = "OTTLA_CACHE"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
CONNECTOR = "spark-sql-kafka-0-10"
# Must be on the class path and serves delegation tokens only, so that a neighbouring version does
# where a repository has not got the connector's own.
FALLBACKS = {"spark-token-provider-kafka-0-10": "4.0.0"}
POM = {"m": "http://maven.apache.org/POM/4.0.0"}

Say = Callable[[str], None]


class JarsUnavailable(Exception):
    """The jars cannot be had; the text says what to install or to set."""


@dataclass(frozen=True)
class Spark:
    """The Spark that PySpark will run."""

    version: str
    scala: str
    jars: Path


@dataclass(frozen=True)
class Artifact:
    """One file of a Maven repository."""

    group: str
    name: str
    version: str

    def file_name(self, kind: str = "jar") -> str:
        return f"{self.name}-{self.version}.{kind}"


def installed_spark() -> Spark:
    """The Spark of SPARK_HOME, else PySpark's own, as PySpark chooses. Raises JarsUnavailable."""
    if named := os.environ.get("SPARK_HOME"):
        home = Path(named)
    else:
        found = importlib.util.find_spec("pyspark")
        if found is None or not found.submodule_search_locations:
            raise JarsUnavailable("no PySpark: pip install 'ottla[spark]'")
        home = Path(found.submodule_search_locations[0])
    for jar in (home / "jars").glob("spark-core_*.jar"):
        if match := re.fullmatch(r"spark-core_([\d.]+)-(.+)\.jar", jar.name):
            return Spark(match.group(2), match.group(1), jar.parent)
    raise JarsUnavailable(
        f"no spark-core jar in {home / 'jars'}: pyspark-client has none; "
        "pip install 'ottla[spark]', or let SPARK_HOME name a Spark"
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
    while; standard error unless given. Raises JarsUnavailable.
    """
    spark = installed_spark()
    final = folder(spark)
    if not final.exists():
        _fetch(spark, final, say or _to_stderr)
    return sorted(final.glob("*.jar"))


def _fetch(spark: Spark, final: Path, say: Say) -> None:
    """All or nothing: the folder appears when every jar is in it."""
    final.parent.mkdir(parents=True, exist_ok=True)
    with _locked(final.with_name(final.name + ".lock")):
        if final.exists():
            return
        if shutil.which("java") is None:
            raise JarsUnavailable(
                "no java on PATH: Spark needs 17 or newer (Debian: openjdk-17-jre-headless)"
            )
        connector = Artifact("org.apache.spark", f"{CONNECTOR}_{spark.scala}", spark.version)
        with tempfile.TemporaryDirectory(dir=final.parent, prefix="partial-") as partial:
            into = Path(partial) / "jars"
            say(f"fetching Spark's Kafka connector for PySpark {spark.version} through Maven")
            pom = _copy(connector, Path(partial), "pom")
            _copy(connector, into)
            for artifact in beside(pom.read_text(), spark):
                say(f"fetching {artifact.file_name()}")
                _copy_or_fall_back(artifact, into, say)
            into.rename(final)


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
        _copy(artifact, into)
    except JarsUnavailable:
        fallback = FALLBACKS.get(re.sub(r"_[\d.]+$", "", artifact.name))
        if fallback is None or fallback == artifact.version:
            raise
        other = replace(artifact, version=fallback)
        _copy(other, into)
        say(f"{artifact.file_name()} cannot be had here; taken instead: {other.file_name()}")


def _copy(artifact: Artifact, into: Path, kind: str = "jar") -> Path:
    """Let Maven bring one file into a folder. Raises JarsUnavailable with what Maven said."""
    mvn = shutil.which("mvn")
    if mvn is None:
        raise JarsUnavailable(
            f"no mvn on PATH: install Maven (Debian: maven; macOS: brew install maven), or let "
            f"{CACHE} name a folder that another machine has filled"
        )
    done = subprocess.run(
        [
            *(mvn, "-B", "-ntp", "-q", COPY),
            f"-Dartifact={artifact.group}:{artifact.name}:{artifact.version}:{kind}",
            f"-DoutputDirectory={into}",
            "-Dmdep.useBaseVersion=true",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=into.parent,  # not beside a pom.xml of the user's
    )
    copied = into / artifact.file_name(kind)
    if done.returncode or not copied.exists():
        said = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        reason = said[0] if said else f"mvn ended with {done.returncode}"
        raise JarsUnavailable(f"{artifact.file_name(kind)}: {reason}")
    return copied


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Print the jars. 0: they are there; 1: they cannot be had."""
    argparse.ArgumentParser(
        prog="python -m ottla.spark.jars",
        description="Fetch the jars of Spark's Kafka connector once, and print them for --jars.",
        epilog=f"They are kept below {CACHE}, unset: ~/.cache/ottla.",
    ).parse_args(arguments)
    try:
        print(",".join(map(str, jars())))
    except JarsUnavailable as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
