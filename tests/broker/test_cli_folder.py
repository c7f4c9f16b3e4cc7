"""`ottla inspect` and `ottla repair`, and odd settings and folders for `ottla serve`."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.broker.commands import produce
from tests.broker.serving import Serving, ottla
from tests.broker.test_cli_odd import ODD

from ottla.broker.app import settings
from ottla.broker.cli import main, parser
from ottla.broker.config import load
from ottla.broker.config_honoured import BROKER
from ottla.broker.config_values import ConfigError

Say = Callable[..., tuple[int, str, str]]
"""Runs a command: exit status, standard output, standard error."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stopped broker: a sealed file and an active one."""
    folder = tmp_path_factory.mktemp("served") / "data"
    broker = Serving("--data-dir", str(folder), "--override", "log.roll.ms=1")
    ottla("topics", "create", "seen", "--partitions", "2", "-b", broker.address)
    while not list((folder / "log").glob("*.sealed")):
        produce(broker.address, "seen", "a\nb\nc\n", "--compression", "lz4", "--partition", "1")
    broker.stop()
    return folder


@pytest.fixture
def data(served: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return shutil.copytree(served, tmp_path / "data")


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def run(*args: object) -> tuple[int, str, str]:
        try:
            status = main([*map(str, args)])
        except SystemExit as wrong_use:
            status = int(wrong_use.code or 0)
        return status, *capsys.readouterr()

    return run


def rows(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def test_inspect_names_partitions_and_takes_their_names(served: Path, say: Say) -> None:
    status, out, errors = say("inspect", served, "--json")
    assert (status, errors) == (0, "")
    parts = [row for row in rows(out) if "topic" in row]
    assert {row["topic"] for row in parts} == {"seen-1"}
    assert parts[0]["first_offset"] == 0
    for name in ("seen-1", parts[0]["partition"]):
        status, out, _ = say("inspect", served, "--records", "--partition", name, "--json")
        assert status == 0
        first, *_ = rows(out)
        assert (first["offset"], first["last_offset"], first["codec"]) == (0, 2, "lz4")
        status, out, _ = say("inspect", served, "--partition", name, "--json")
        assert rows(out) == parts


@pytest.mark.parametrize("name", ["99", "seen", "seen-2", "other-0", "", "-1", "x" * 300])
def test_inspect_says_that_there_is_no_such_partition(served: Path, say: Say, name: str) -> None:
    for option in ((), ("--records",)):
        status, out, errors = say("inspect", served, *option, f"--partition={name}")
        assert (status, out) == (1, "")
        assert errors.startswith(f"ottla: {name}: no such partition in this folder")


def test_inspect_of_records_wants_a_partition(served: Path, say: Say) -> None:
    status, _, errors = say("inspect", served, "--records")
    assert (status, errors) == (1, "ottla: --records needs --partition TOPIC-N\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tables_at_80_columns_have_whole_numbers(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for args in ((), ("--records", "--partition", "seen-1")):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        assert main(["inspect", str(served), *args]) == 0
        lines = terminal.getvalue().splitlines()
        assert "…" not in terminal.getvalue()
        assert max(map(len, lines)) <= 80
        assert "000" not in terminal.getvalue().replace(".000", "")


def test_inspect_beside_a_broker_names_the_file_being_written(data: Path, say: Say) -> None:
    broker = Serving("--data-dir", str(data))
    produce(broker.address, "seen", "d\n")
    (active,) = (data / "log").glob("*.active")
    status, out, errors = say("inspect", data, "--json")
    assert status == 0
    (written,) = [row for row in rows(out) if row.get("kind") == "written"]
    assert (written["file"], written["bytes"]) == (active.name, active.stat().st_size)
    assert f"{active.name} ({active.stat().st_size:,} bytes) is being written" in errors
    status, _, errors = say("repair", data)
    assert status == 1
    assert f"is in use by pid {broker.process.pid}" in errors
    broker.stop()


def test_repair_of_a_sound_folder(data: Path, say: Say) -> None:
    for path in (data / "log").glob("*.sealed"):
        name = path.name
    status, out, _ = say("repair", data)
    assert status == 0
    assert "are sound" in out
    assert "nothing is lost" in out
    assert (data / "log" / name).exists()


def test_one_file_is_sound(tmp_path: Path, say: Say) -> None:
    Serving("--data-dir", str(tmp_path / "d")).stop()
    assert say("repair", tmp_path / "d")[1].startswith(f"{tmp_path / 'd'}: 1 file is sound\n")


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"folder"
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("command", ["serve", "inspect", "repair"])
def test_a_folder_of_something_else_is_refused_untouched(
    tmp_path: Path, say: Say, command: str
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "syslog").write_text("x")
    (tmp_path / "readme").write_text("y")
    before = everything(tmp_path)
    if command == "serve":
        done = ottla("serve", "--port", "0", "--data-dir", str(tmp_path))
        status, errors = done.returncode, done.stderr
    else:
        status, _, errors = say(command, tmp_path)
    assert status == 1
    assert str(tmp_path) in errors
    assert "not an Ottla data folder" in errors or "not a data folder of Ottla" in errors
    assert everything(tmp_path) == before


@pytest.mark.parametrize("command", ["inspect", "repair"])
@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("none", "there is no such folder"),
        ("/dev/null", "there is no such folder"),
        ("/proc", "is not an Ottla data folder (no log/ in it)"),
        ("\0", "there is no such folder"),
        ("x" * 5000, "the name is too long"),
    ],
)
def test_a_folder_that_is_none(say: Say, command: str, folder: str, words: str) -> None:
    status, _, errors = say(command, folder)
    assert status == 1
    assert words in errors


@pytest.mark.parametrize("command", ["inspect", "repair"])
def test_a_folder_in_a_newer_format_is_refused(data: Path, say: Say, command: str) -> None:
    mark = json.loads((data / "mark").read_text())
    (data / "mark").write_text(json.dumps(mark | {"format": 99}))
    before = everything(data)
    status, out, errors = say(command, data)
    assert (status, out) == (1, "")
    assert "is in format 99" in errors
    assert everything(data) == before | {"lock": (data / "lock").read_bytes()}


def test_inspect_and_repair_of_damaged_folders_end_in_words(
    served: Path, tmp_path: Path, say: Say
) -> None:
    dice = random.Random(1)
    for number in range(12):
        data = shutil.copytree(served, tmp_path / str(number))
        files = sorted(path for path in data.rglob("*") if path.is_file() and path.name != "lock")
        victim = dice.choice(files)
        match number % 4:
            case 0:
                victim.write_bytes(victim.read_bytes()[: dice.randrange(5000)])
            case 1:
                content = bytearray(victim.read_bytes())
                for _ in range(20):
                    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
                victim.write_bytes(content)
            case 2:
                victim.unlink()
                victim.mkdir()
            case 3:
                victim.unlink()
        for command in ("inspect", "repair", "inspect"):
            status, _, errors = say(command, data)
            assert status in (0, 1), (command, victim)
            assert "Traceback" not in errors


# ----------------------------------------------------------------------------- settings of `serve`


@pytest.mark.parametrize("name", sorted(BROKER))
def test_odd_settings_are_taken_or_refused_in_words(name: str) -> None:
    for odd in (*ODD, "PLAINTEXT://\udcff:1", "PLAINTEXT://[::1]:0", "a:b,c:PLAINTEXT"):
        with suppress(ConfigError):
            load({name: odd})


@pytest.mark.parametrize("odd", ODD)
def test_odd_files_and_options_are_refused_in_words(tmp_path: Path, odd: str) -> None:
    for args in (
        (odd or "/none",),
        ("--override", odd),
        ("--override", f"num.partitions={odd}"),
        ("--data-dir", odd),
    ):
        with suppress(ConfigError, SystemExit):
            load(settings(parser().parse_args(("serve", "--port=9", *args))))
    for suffix in ("properties", "toml"):
        file = tmp_path / f"a.{suffix}"
        file.write_bytes(odd.encode("utf-8", "surrogateescape"))
        given = parser().parse_args(("serve", str(file)))
        with suppress(ConfigError):
            load(settings(given))


def test_a_host_that_has_no_address_is_named(tmp_path: Path) -> None:
    listener = "PLAINTEXT://" + "x" * 70 + ":9"
    quiet = ("--log-level", "error", "--data-dir", str(tmp_path))
    done = ottla("serve", *quiet, "--override", f"listeners={listener}")
    assert done.returncode == 1
    assert f"listeners: {listener}: " in done.stderr
    assert len(done.stderr.splitlines()) == 1
