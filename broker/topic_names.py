"""What a topic may be called."""

from __future__ import annotations

import re
from typing import Final

from ottla.wire.errors import Error, KafkaError

MAX_NAME: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION: 1 to 249 of a-z A-Z 0-9 . _ -, not "." or ".."."""
    if not name:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, "the empty string is no topic name")
    if name in (".", ".."):
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"'{name}' is no topic name")
    if len(name) > MAX_NAME:
        raise KafkaError(
            Error.INVALID_TOPIC_EXCEPTION, f"a topic name has at most {MAX_NAME} characters"
        )
    if not _LEGAL.fullmatch(name):
        raise KafkaError(
            Error.INVALID_TOPIC_EXCEPTION,
            f"topic name '{name}' may hold only letters, digits, '.', '_' and '-'",
        )


def collision_key(name: str) -> str:
    """Names collide that are the same once '.' is '_', as in metric names (Kafka's rule)."""
    return name.replace(".", "_")
