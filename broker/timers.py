"""Deadlines on one heap, so that thousands of parked requests cost the event loop one timer.

A long poll nearly always ends before its time is up: cancelling has to be cheap. It only marks the
entry, which leaves the heap when it surfaces, or when most of the heap is such entries.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from ottla.broker.clock import Clock

#: Below this many entries a heap is never swept: the sweep would cost more than it gives back.
_SWEEP_FROM = 1024


class Timer:
    """One deadline; `cancel()` may be called at any time, any number of times."""

    __slots__ = ("_fn", "_timers", "deadline_ms")

    def __init__(self, timers: Timers, deadline_ms: float, fn: Callable[[], None]) -> None:
        self._timers = timers
        self.deadline_ms = deadline_ms
        self._fn: Callable[[], None] | None = fn

    def cancel(self) -> None:
        if self._fn is not None:
            self._fn = None
            self._timers._cancelled()


class Timers:
    """Callbacks at monotonic times. `arm` is told whenever the nearest deadline comes nearer."""

    def __init__(self, clock: Clock, arm: Callable[[float], None] | None = None) -> None:
        self._clock = clock
        self._arm = arm
        self._heap: list[tuple[float, int, Timer]] = []
        self._numbers = count()
        self._dead = 0

    def __len__(self) -> int:
        """How many deadlines are still to come."""
        return len(self._heap) - self._dead

    def on_nearer(self, arm: Callable[[float], None]) -> None:
        """Set who is told, with a monotonic time in ms, that `run_due` is needed earlier; at once
        of what is waiting already."""
        self._arm = arm
        deadline = self.next_deadline_ms
        if deadline is not None:
            arm(deadline)

    def after(self, delay_ms: float, fn: Callable[[], None]) -> Timer:
        """Call `fn` once, from `run_due`, when `delay_ms` have passed."""
        deadline = self._clock.monotonic_ms() + delay_ms
        timer = Timer(self, deadline, fn)
        heap = self._heap
        heapq.heappush(heap, (deadline, next(self._numbers), timer))
        if heap[0][2] is timer and self._arm is not None:
            self._arm(deadline)
        return timer

    @property
    def next_deadline_ms(self) -> float | None:
        """The nearest deadline. What was cancelled before it goes: nobody is woken for nothing."""
        heap = self._heap
        while heap and heap[0][2]._fn is None:
            heapq.heappop(heap)
            self._dead -= 1
        return heap[0][0] if heap else None

    def run_due(self) -> int:
        """Call everything whose time has come; gives how many that were.

        A callback that raises leaves the rest in place for the next run.
        """
        now = self._clock.monotonic_ms()
        fired = 0
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            fn, timer._fn = timer._fn, None
            if fn is None:
                self._dead -= 1
            else:
                fired += 1
                fn()
        return fired

    def _cancelled(self) -> None:
        self._dead += 1
        if len(self._heap) > _SWEEP_FROM and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2]._fn is not None]
            heapq.heapify(self._heap)
            self._dead = 0
