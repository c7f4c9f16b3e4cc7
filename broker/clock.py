"""Time, as everything in the broker gets it: from a clock it was handed, never from the machine."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings in milliseconds: the time of day, for records, and one that never steps back."""

    def wall_ms(self) -> int: ...

    def monotonic_ms(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0
