"""What is said in each trace, one function a trace; traces/NAME.txt is what Kafka answers."""

from __future__ import annotations

from compat_tests.transactions.scenarios import (
    administration,
    ending,
    identity,
    offsets,
    partitions,
    reading,
    walks,
)
from compat_tests.transactions.scenarios.registry import SCENARIOS

__all__ = [
    "SCENARIOS",
    "administration",
    "ending",
    "identity",
    "offsets",
    "partitions",
    "reading",
    "walks",
]
