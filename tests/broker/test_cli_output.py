"""Tables, plurals, and options that are checked where they are parsed."""

from __future__ import annotations

import argparse
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker import cli_values
from ottla.broker.cli_arguments import BROKER_VARIABLE
from ottla.broker.cli_output import count, print_table

HEADINGS = ("topic", "partition", "offset", "member", "host")
ROWS = (
    ("a.very.long.topic.name.for.orders.of.the.year", 0, 12345678901234567, "m" * 30, "h" * 15),
    ("ü", 10, None, "", ""),
)


def shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> tuple[list[str], str]:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    print_table(HEADINGS, ROWS, optional=("host", "member"))
    out, errors = capsys.readouterr()
    return out.splitlines(), errors


def test_a_narrow_terminal_leaves_out_columns_and_cuts_no_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, errors = shown(capsys, monkeypatch, 200)
    assert lines[0].split() == list(HEADINGS)
    assert errors == ""
    lines, errors = shown(capsys, monkeypatch, 80)
    assert lines[0].split() == ["topic", "partition", "offset"]
    assert lines[1].split() == [ROWS[0][0], "0", "12345678901234567"]
    assert lines[2].split() == ["ü", "10", "-"]
    assert max(map(len, lines)) <= 80
    assert errors == "too narrow for: host, member (--json shows all)\n"
    lines, _ = shown(capsys, monkeypatch, 20)
    assert lines[1].split() == [ROWS[0][0], "0", "12345678901234567"]


def test_plurals() -> None:
    assert [count(n, "record") for n in (0, 1, 2, 1000)] == [
        "0 records",
        "1 record",
        "2 records",
        "1,000 records",
    ]


def test_the_cluster_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ottla.broker.cli import main

    monkeypatch.setenv(BROKER_VARIABLE, "127.0.0.1:1")
    assert main(["topics", "list"]) == 1
    assert "cannot connect to 127.0.0.1:1" in capsys.readouterr().err


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_escapes_have_their_meaning_or_are_refused(text: str) -> None:
    if "\\" not in text:
        assert cli_values.separator(text) == text.encode()
        return
    with suppress(argparse.ArgumentTypeError):
        assert cli_values.separator(text)


def test_separators() -> None:
    assert cli_values.separator(r"\t\x1f\\\n\0\r") == b"\t\x1f\\\n\0\r"
    for bad in ("\\", r"\q", r"\x1", "\\\\\\"):
        with pytest.raises(argparse.ArgumentTypeError):
            cli_values.separator(bad)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
        ("2023-11-14T22:13:20.001", 1_700_000_000_001),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("9999-12-31T23:59:59.999", 253_402_300_799_999),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert cli_values.moment_ms(text) == expected
    with pytest.raises(ValueError, match="isoformat"):
        cli_values.moment_ms(f"x{text}")
