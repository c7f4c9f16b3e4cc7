"""Time, as everything in the broker gets it: from a clock it was handed, never from the machine."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Readings in milliseconds. Somebody may set the time of day, by days, back and forth: it is
    for records, and for what is held against times on the disk. Deadlines go by the others."""

    def wall_ms(self) -> int:
        """The time of day."""

    def monotonic_ms(self) -> float:
        """Since some moment; never set."""

    def steady_ms(self) -> int:
        """The time of day when the process began, and what has passed since; never set."""


class SystemClock:
    """The machine's clocks."""

    __slots__ = ("_start_ms",)

    def __init__(self) -> None:
        self._start_ms = self.wall_ms() - int(self.monotonic_ms())

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0

    def steady_ms(self) -> int:
        return self._start_ms + int(self.monotonic_ms())
