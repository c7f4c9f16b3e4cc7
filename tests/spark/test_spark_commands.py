"""What `ottla-spark` says about options that are wrong, before Spark starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from compat_tests.harness.brokers import Broker

from ottla.spark import cli, cli_checks

NOWHERE = ("-b", "127.0.0.1:1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands run: a folder `lake`, a file `note`."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "note").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_checks, "FIRST_ANSWER_S", 0.1)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["archive", "--archive", "x"], "--topic or --pattern"),
        (["archive", "--archive", "x", "--topic", "t", "--dead-letter-topic", "d"], "--schema"),
        (["archive", "--archive", "x", "--topic", "t", "--schema", "/none"], "--schema /none"),
        (["audit", "--topic", "t"], "--archive or --other-topic"),
        (
            ["replay", "--archive", "x", "--topic", "t", "--to", "u", "--from", "soon"],
            "--from soon",
        ),
        (["profile", "--topic", "t", "--report", "r", "--kafka", "acks"], "--kafka acks"),
        (
            ["archive", "--archive", "lake", "--topic", "t", "--kafka", "foo.bar=1"],
            '--kafka: No such configuration property: "foo.bar"',
        ),
        (["compact", "--archive", "none"], "--archive none: no such folder"),
        (["compact", "--archive", "note"], "--archive note: is a file"),
        (["compact", "--archive", "s3a://lake"], "--format delta"),
        (["archive", "--archive", "note", "--topic", "t"], "--archive note"),
        (["archive", "--archive", "note/in", "--topic", "t"], "note is a file"),
        (["archive", "--archive", "lake", "--pattern", "("], "--pattern ("),
        (
            ["audit", "--topic", "t", "--archive", "lake", "--report", "none/r.html"],
            "--report: there is no folder",
        ),
        (
            ["audit", "--topic", "t", "--archive", "lake", "--report", "lake"],
            "--report lake: is a folder",
        ),
        (["audit", "--topic", "t", "--archive", "lake", *NOWHERE], "127.0.0.1:1: no broker"),
        (["flights", *NOWHERE], "--bootstrap-server 127.0.0.1:1: no broker answers there"),
        (["lag", "--checkpoint", "lake", "--group", "g"], "--checkpoint: lake has no folder"),
    ],
)
def test_errors_name_the_option(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == (2 if arguments[0] == "audit" else 1)
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["archive", "--batch-size", "many"], "--batch-size: many: expected a whole number"),
        (["archive", "--follow", "-1"], "--follow: -1: expected seconds"),
        (["compact", "--grace", "soon"], "--grace: soon: expected seconds"),
        (["replay", "--rate", "0"], "--rate: 0: expected a whole number, 1 or more"),
    ],
)
def test_numbers_out_of_range_name_the_option(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(arguments)
    assert named in capsys.readouterr().err


def test_a_topic_that_is_not_there(
    broker: Broker,
    topic: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli_checks, "FIRST_ANSWER_S", 30)
    name = topic()
    common = ("-b", broker.bootstrap)
    assert cli.main(["archive", *common, "--topic", "no", "--archive", "lake"]) == 1
    assert f"--topic no: no such topic at {broker.bootstrap}" in capsys.readouterr().err
    wrong = f"{name}.x"
    assert cli.main(["audit", *common, "--topic", name, "--other-topic", wrong]) == 2
    said = capsys.readouterr().err
    assert f"--other-topic {wrong}: no such topic" in said
    assert f"it has: {name}" in said


@pytest.mark.parametrize(
    "job", ["archive", "compact", "replay", "backfill", "audit", "profile", "flights"]
)
def test_help_is_there_for_each_job(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([job, "--help"])
    assert ended.value.code == 0
    assert "--master" in capsys.readouterr().out
