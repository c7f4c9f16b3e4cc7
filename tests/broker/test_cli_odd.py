"""Every client command with odd values in every place: each ends in words, none in a traceback."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.commands import Run, produce
from tests.broker.serving import Serving

ODD = (
    "",
    "\0",
    "-1",
    "0",
    "99999999999999999999",
    "9" * 5000,
    "nan",
    "ü\u2028",
    "\udcff",
    "x" * 40_000,
    "*",
    "[",
    "(",
    "@9999-12-31",
    "0:1:2",
    "0:9999999999999999999,7:latest",
    "\\",
    "a=b",
    "/",
)
FILE = "FILE"
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "topics": (
        ("topics", "list", "?"),
        ("topics", "create", "?"),
        ("topics", "create", "made", "--partitions", "?"),
        ("topics", "create", "made", "--replication-factor", "?"),
        ("topics", "create", "made", "--config", "?"),
        ("topics", "create", "made", "--config", "retention.ms=?"),
        ("topics", "describe", "?"),
        ("topics", "alter", "?", "--partitions", "2"),
        ("topics", "alter", "t", "--partitions", "?"),
        ("topics", "alter", "t", "--config", "retention.ms=?"),
        ("topics", "alter", "t", "--delete-config", "?"),
        ("topics", "delete", "?"),
        ("topics", "delete-records", "?", "--before", "0"),
        ("topics", "delete-records", "t", "--before", "?", "--partition", "7"),
        ("topics", "delete-records", "t", "--before", "0", "--partition", "?"),
    ),
    "configs": (
        ("configs", "describe", "--broker", "?"),
        ("configs", "alter", "--config", "?"),
        ("configs", "alter", "--config", "log.retention.ms=?"),
        ("configs", "alter", "--broker", "?", "--delete-config", "log.retention.ms"),
        ("configs", "alter", "--delete-config", "?"),
    ),
    "produce": (
        ("produce", "?", FILE),
        ("produce", "t", "?"),
        ("produce", "t", FILE, "--key-separator", "?"),
        ("produce", "t", FILE, "--null", "?"),
        ("produce", "t", FILE, "--header", "?"),
        ("produce", "t", FILE, "--partition", "?"),
        ("produce", "t", FILE, "--acks", "?"),
        ("produce", "t", FILE, "--compression", "?"),
        ("produce", "t", FILE, "--timeout", "?"),
    ),
    "consume": (
        ("consume", "?", "--exit"),
        ("consume", "t", "--exit", "--partition", "?"),
        ("consume", "t", "--exit", "--from", "?"),
        ("consume", "t", "--exit", "--from", "0:?"),
        ("consume", "t", "--exit", "--max-records", "?"),
        ("consume", "t", "--exit", "--isolation", "?"),
        ("consume", "t", "--exit", "--key-separator", "?"),
        ("consume", "t", "--exit", "--print", "?"),
        ("consume", "t", "--exit", "--null", "?"),
    ),
    "groups": (
        ("groups", "list", "--state", "?"),
        ("groups", "describe", "?"),
        ("groups", "reset", "?", "--to", "0", "--topic", "t"),
        ("groups", "reset", "g", "--to", "?", "--topic", "t"),
        ("groups", "reset", "g", "--shift", "?", "--topic", "t"),
        ("groups", "reset", "g", "--from-file", "?"),
        ("groups", "reset", "g", "--to", "0", "--topic", "?"),
        ("groups", "reset", "g", "--to", "0", "--topic", "t:?"),
        ("groups", "delete", "?"),
        ("groups", "watch", "g", "--interval", "?"),
    ),
    "transactions": (
        ("transactions", "list", "--state", "?"),
        ("transactions", "list", "--longer-than", "?"),
        ("transactions", "list", "--pattern", "?"),
        ("transactions", "describe", "?"),
        ("transactions", "abort", "?"),
        ("transactions", "abort", "--topic", "?", "--partition", "0", "--producer-id", "0"),
        ("transactions", "abort", "--topic", "t", "--partition", "?", "--producer-id", "0"),
        ("transactions", "abort", "--topic", "t", "--partition", "0", "--producer-id", "?"),
    ),
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = Serving("--data-dir", str(tmp_path_factory.mktemp("data")), "--durability", "os")
    produce(broker.address, "t", "a\nb\n")
    yield broker.address
    status, errors = broker.stop()
    assert status == 0
    assert "Traceback" not in errors


@pytest.mark.parametrize("command", COMMANDS)
def test_odd_values_end_in_words(
    address: str,
    command: str,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"a\n\n\xff\0\nb")
    run = Run(address, capsysbinary)
    assert isinstance(sys.stderr, io.TextIOWrapper)
    sys.stderr.reconfigure(errors="backslashreplace")  # as the interpreter's own
    watched: list[float] = []

    def leave(seconds: float) -> None:
        watched.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.broker.cli_groups.time.sleep", leave)
    wrong = []
    for form in COMMANDS[command]:
        for odd in ODD:
            args = [str(lines) if each == FILE else each.replace("?", odd) for each in form]
            try:
                status, _, errors = run(*args)
            except Exception:
                status, errors = -1, traceback.format_exc()
            ended = status in (0, 1, 2) or watched
            told = errors or status in (0, 130)
            if not ended or not told or "Traceback" in errors or errors.count("\n") > 12:
                wrong.append(f"{form} with {odd[:50]!a}: {status} {errors[-700:]!a}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("command", [("topics", "list"), ("consume", "t", "--exit")])
def test_odd_addresses_end_in_words(
    command: tuple[str, ...], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert isinstance(sys.stderr, io.TextIOWrapper)
    sys.stderr.reconfigure(errors="backslashreplace")
    for odd in ODD:
        status, _, errors = Run(odd, capsysbinary)(*command)
        assert status in (1, 2), ascii(odd[:50])
        assert errors.startswith(("ottla: ", "usage: ")), ascii(errors)


LINES = (
    *(b"", b"\n", b"\r\n\r\n", b"\xff\xfe\n", b"a", b"{", b'{"value":1}'),
    *(b"\0" * 100, b"[" * 5000, b"\n" * 5000),
)


@pytest.mark.parametrize("args", [(), ("--json",), ("--key-separator", ":"), ("--null", "")])
def test_odd_lines_end_in_words(
    address: str,
    args: tuple[str, ...],
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    file = tmp_path / "lines"
    run = Run(address, capsysbinary)
    for lines in LINES:
        file.write_bytes(lines)
        status, _, errors = run("produce", "odd", str(file), *args)
        assert status in (0, 1)
        assert "Traceback" not in errors
    for form in ((), ("--json",), ("--print", "key,value,headers,timestamp")):
        assert run("consume", "odd", "--exit", *form)[0] == 0
