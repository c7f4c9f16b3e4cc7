"""Values of command-line options, checked where they are parsed: functions for argparse's `type`.

Imported whenever the `ottla` command starts: nothing but argparse and os at the top.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import Final

INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1
LONGEST_S: Final = 10 * 365 * 86_400.0
_ESCAPE: Final = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES: Final = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def whole(low: int, high: int = INT32) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {low} to {high}")
        return number

    return parse


def seconds(text: str) -> float:
    """A number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= LONGEST_S:  # nan is not
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return number


def separator(text: str) -> bytes:
    r"""Text between fields: at least one byte; \t, \n, \r, \0, \\ and \xHH have their meaning."""
    if not text:
        raise argparse.ArgumentTypeError("it cannot be empty")
    return unescaped(text)


def unescaped(text: str) -> bytes:
    r"""The bytes of `text`, where \t, \n, \r, \0, \\ and \xHH have their meaning."""

    def replace(found: re.Match[bytes]) -> bytes:
        code = found[1]
        if len(code) == 3:
            return bytes([int(code[1:], 16)])
        if code not in _ESCAPES:
            raise argparse.ArgumentTypeError(
                rf"{text!r}: after a backslash come t, n, r, 0, xHH or another backslash"
            )
        return _ESCAPES[code]

    data = os.fsencode(text)
    if data.endswith(b"\\") and (len(data) - len(data.rstrip(b"\\"))) % 2:
        raise argparse.ArgumentTypeError(f"{text!r}: nothing comes after the last backslash")
    return _ESCAPE.sub(replace, data)


def header(text: str) -> tuple[bytes, bytes]:
    """NAME=VALUE of a record's header."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return os.fsencode(name), os.fsencode(value)


def moment_ms(text: str) -> int:
    """Milliseconds since 1970 of a time: a whole number of them, or ISO 8601 (2024-05-01,
    2024-05-01T12:00, 2024-05-01T12:00+02:00; UTC where no offset is given). Raises ValueError."""
    from datetime import UTC, datetime

    if re.fullmatch(r"-?[0-9]{1,20}", text):
        number = int(text)
    else:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        passed = moment - datetime(1970, 1, 1, tzinfo=UTC)
        number = (passed.days * 86_400 + passed.seconds) * 1000 + passed.microseconds // 1000
    if not 0 <= number <= INT64:
        raise ValueError(f"{text} is not from 0 to {INT64} ms after 1970")
    return number
