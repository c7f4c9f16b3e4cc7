"""Log levels as settings of the resource BROKER_LOGGER (KIP-412): kept until the process ends.

Kafka's names on the outside, Python's numbers inside; FATAL is CRITICAL, TRACE lies below DEBUG.
"""

from __future__ import annotations

import logging

LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
ROOT = "root"


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
