"""Log levels as settings of the resource BROKER_LOGGER (KIP-412): kept until the process ends.

Kafka's names on the outside, Python's numbers inside; FATAL is CRITICAL, TRACE lies below DEBUG.
"""

from __future__ import annotations

import logging
from typing import Final

LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
ROOT = "root"
SHOWN: Final = 200
"""At most so many characters of a name that a client has chosen are put into a line."""

_UNPRINTABLE: Final = {
    code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}


def shown(name: str) -> str:
    """A name or a reason that a client has chosen, as part of one line: it may be 32 KiB long, and
    a line break in it would let the client write lines of its own into our log."""
    if len(name) > SHOWN:
        name = name[:SHOWN] + "..."
    return escaped(name)


def escaped(text: str) -> str:
    """`text` without characters that end a line, steer a terminal, or cannot be encoded."""
    return text.translate(_UNPRINTABLE).encode("utf-8", "backslashreplace").decode()


def loggers() -> dict[str, str]:
    """The level in force of every logger of ours, and of the root of all."""
    names = sorted(name for name in logging.root.manager.loggerDict if _ours(name))
    return {ROOT: _level(logging.root)} | {name: _level(logging.getLogger(name)) for name in names}


def set_level(name: str, level: str) -> None:
    """`level`: a key of LEVELS."""
    _logger(name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """Back to the level of the logger above."""
    _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _ours(name: str) -> bool:
    return name == "ottla" or name.startswith("ottla.")


def _level(logger: logging.Logger) -> str:
    number = logger.getEffectiveLevel()
    return next((name for name, at in LEVELS.items() if number >= at), "TRACE")
