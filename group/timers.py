"""Keyed deadlines: set, moved, cancelled by key; no clock and no callback.

Nearly all moves are "later" (a heartbeat), so `at` only writes the dictionary when the heap
already holds an earlier entry for the key. The entry is put in its true place when it comes up.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """Deadlines in milliseconds of whatever clock the caller uses."""

    __slots__ = ("_deadlines", "_heap", "_queued", "_serial")

    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        """Earliest entry of each key in the heap; it outlives moves and cancels."""
        self._heap: list[tuple[int, int, K]] = []
        self._serial = 0
        """Breaks ties: keys are never compared, equal deadlines fire in the order of setting."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def at(self, key: K, deadline: int) -> None:
        """Fire `key` at `deadline`, instead of any earlier agreement about it."""
        self._deadlines[key] = deadline
        queued = self._queued.get(key)
        if queued is None or deadline < queued:
            self._queue(key, deadline)

    def cancel(self, key: K) -> None:
        """Forget `key`; no error when it was not set."""
        self._deadlines.pop(key, None)
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._deadlines):
            self._rebuild()

    def deadline(self, key: K) -> int | None:
        return self._deadlines.get(key)

    def next(self) -> int | None:
        """The nearest deadline, or None; too early when its key was moved, never too late."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> K | None:
        """Take the next key whose deadline is at or before `now`, or None."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            queued, _, key = heappop(heap)
            if self._queued.get(key) != queued:
                continue  # an older entry of a key that was moved earlier
            del self._queued[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue  # cancelled
            if deadline > now:
                self._queue(key, deadline)
                continue
            del self._deadlines[key]
            return key
        return None

    def _queue(self, key: K, deadline: int) -> None:
        self._queued[key] = deadline
        self._serial += 1
        heappush(self._heap, (deadline, self._serial, key))

    def _rebuild(self) -> None:
        """Drop what cancelled keys left behind: memory follows the keys that are set."""
        self._heap = []
        self._queued = dict(self._deadlines)
        for key, deadline in self._deadlines.items():
            self._serial += 1
            self._heap.append((deadline, self._serial, key))
        heapify(self._heap)
