"""Kafka's error codes by name."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

NAMES = {int(code): code.name.upper() for code in ErrorCode}
CODES = {name: code for code, name in NAMES.items()}


def name_of(code: int) -> str:
    """`UNKNOWN_TOPIC_OR_PARTITION` for 3; the number itself for a code without a name."""
    return NAMES.get(code, str(code))
