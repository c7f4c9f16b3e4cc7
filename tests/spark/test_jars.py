"""Which jars Spark's connector wants beside it, and what is said when they cannot be had."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.spark import jars
from ottla.spark.maven import JarsUnavailable

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><dependencies>
{}</dependencies></project>"""
ENTRY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
<scope>{}</scope></dependency>"""

# Stands for mvn: has every artifact but those named in LACKS, writes what it was asked for.
MVN = """#!/bin/sh
for argument; do case $argument in
  -Dartifact=*) artifact=${argument#*=};;
  -DoutputDirectory=*) folder=${argument#*=};;
esac; done
IFS=: read -r group name version kind <<EOF
$artifact
EOF
case " $LACKS " in *" $name-$version "*) echo "[ERROR] no $name-$version in central"; exit 1;; esac
mkdir -p "$folder"
echo "$artifact" >> "$ASKED"
[ "$kind" = pom ] && cp "$ITS_POM" "$folder/$name-$version.pom" || : > "$folder/$name-$version.jar"
"""
WANTED = [
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.9.0", "compile"),
    ("org.apache.spark", "spark-sql_2.13", "4.9.0", "provided"),
    ("org.apache.kafka", "kafka-clients", "3.9.9", "compile"),
    ("com.example", "brought-along", "1.2", "compile"),
    ("org.scalatest", "scalatest_2.13", "3.2.19", "test"),
]


def pom(*entries: tuple[str, str, str, str]) -> str:
    return POM.format("".join(ENTRY.format(*entry) for entry in entries))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with Spark 4.9.0, a java, a Maven, and an empty cache."""
    brought = tmp_path / "spark/jars"
    brought.mkdir(parents=True)
    for name in ("spark-core_2.13-4.9.0", "spark-sql_2.13-4.9.0", "brought-along-1.3"):
        (brought / f"{name}.jar").touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"mvn": MVN, "java": "#!/bin/sh\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "its.pom").write_text(pom(*WANTED))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ITS_POM", str(tmp_path / "its.pom"))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("LACKS", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def asked(home: Path) -> list[str]:
    return (home / "asked").read_text().split()


def test_the_connector_and_what_spark_has_not_got(home: Path) -> None:
    found = jars.jars()
    assert [jar.name for jar in found] == [
        "kafka-clients-3.9.9.jar",
        "spark-sql-kafka-0-10_2.13-4.9.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.9.0.jar",
    ]
    assert all(jar.is_relative_to(home / "cache") for jar in found)


def test_the_second_time_nothing_is_fetched(home: Path) -> None:
    first, before = jars.jars(), asked(home)
    assert jars.jars() == first
    assert asked(home) == before


def test_another_token_provider_will_do_and_is_announced(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LACKS", "spark-token-provider-kafka-0-10_2.13-4.9.0")
    said: list[str] = []
    names = [jar.name for jar in jars.jars(said.append)]
    assert "spark-token-provider-kafka-0-10_2.13-4.0.0.jar" in names
    assert any("4.9.0" in line and "4.0.0" in line for line in said)


def test_the_command_says_each_time_that_another_token_provider_was_taken(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LACKS", "spark-token-provider-kafka-0-10_2.13-4.9.0")
    for _ in range(2):
        assert jars.main([]) == 0
        printed = capsys.readouterr()
        assert (
            "spark-token-provider-kafka-0-10_2.13-4.0.0.jar is of another version than Spark 4.9.0"
            in printed.err
        )
        assert "repository" not in printed.out
    monkeypatch.setenv("LACKS", "")
    monkeypatch.setenv("OTTLA_CACHE", str(home / "another"))
    assert jars.main([]) == 0
    assert "another version" not in capsys.readouterr().err


def test_nothing_is_kept_of_half_a_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LACKS", "kafka-clients-3.9.9")
    with pytest.raises(JarsUnavailable, match=r"no kafka-clients-3\.9\.9 in central"):
        jars.jars()
    assert not list((home / "cache").rglob("*.jar"))
    monkeypatch.setenv("LACKS", "")
    assert len(jars.jars()) == 3


@pytest.mark.parametrize(
    ("missing", "told"), [("mvn", "install Maven"), ("java", "openjdk-17-jre-headless")]
)
def test_what_to_install(
    home: Path, monkeypatch: pytest.MonkeyPatch, missing: str, told: str
) -> None:
    (home / "bin" / missing).unlink()
    monkeypatch.setenv("PATH", str(home / "bin"))
    with pytest.raises(JarsUnavailable, match=told):
        jars.jars()


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11: install 17 or newer"),
        ('java version "1.8.0_401"', "is Java 8: install 17 or newer"),
        ("no runtime present", "does not run: no runtime present"),
    ],
)
def test_a_java_that_spark_cannot_run_on(home: Path, says: str, told: str) -> None:
    ending = 0 if "version" in says else 1
    (home / "bin/java").write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {ending}\n")
    with pytest.raises(JarsUnavailable, match=told):
        jars.jars()


def test_a_java_home_without_java(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(home / "nothing"))
    with pytest.raises(JarsUnavailable, match=r"JAVA_HOME is .*nothing.* no bin/java: unset it"):
        jars.jars()


def test_a_pyspark_without_jars_is_told_apart(home: Path) -> None:
    (home / "spark/jars/spark-core_2.13-4.9.0.jar").unlink()
    with pytest.raises(JarsUnavailable, match="pyspark-client"):
        jars.jars()


def test_a_version_that_the_pom_leaves_open_is_an_error(home: Path) -> None:
    spark = jars.installed_spark()
    open_version = pom(("org.apache.kafka", "kafka-clients", "${kafka.version}", "compile"))
    with pytest.raises(JarsUnavailable, match="no version of kafka-clients"):
        jars.beside(open_version, spark)


def test_the_command_prints_what_spark_submit_takes(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jars.main([]) == 0
    printed = capsys.readouterr().out.strip().split(",")
    assert printed == [str(jar) for jar in jars.jars()]


def test_the_command_says_why_it_cannot(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "spark/jars/spark-core_2.13-4.9.0.jar").unlink()
    assert jars.main([]) == 1
    assert "pip install 'ottla[spark]'" in capsys.readouterr().err
