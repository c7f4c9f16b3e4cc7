"""What is said in each trace, one function a trace; traces/NAME.txt is what Kafka answers."""

from __future__ import annotations

from compat_tests.groups.scenarios import (
    joining,
    leaving,
    offsets,
    rejoining,
    slowness,
    static,
)
from compat_tests.groups.scenarios.registry import SCENARIOS

__all__ = [
    "SCENARIOS",
    "joining",
    "leaving",
    "offsets",
    "rejoining",
    "slowness",
    "static",
]
