"""What clients may make the broker hold in memory: the bounds, and the counters that metrics
read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

#: What is set aside at first for a large frame while memory is short.
FIRST_BYTES: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may make us hold."""

    #: Largest frame in bytes, without its size field (socket.request.max.bytes).
    max_frame_bytes: int = 104_857_600
    #: The same of a request that is not a Produce (ottla.request.max.bytes): nothing but records is
    #: that large, and all else is made objects of.
    max_plain_bytes: int = 16 << 20
    #: Requests that may wait for their answers at a time (ottla.connection.parked.max.requests).
    max_parked: int = 128
    #: Requests handled in one turn of the loop; the rest wait for the next, so that a client with
    #: a thousand small requests in one packet does not hold up everybody else.
    max_turn: int = 64
    #: Bytes waiting to be sent from which on nothing further is started
    #: (ottla.connection.send.max.bytes).
    send_high_bytes: int = 1024 * 1024


class Budget:
    """Bytes of requests that are being received in buffers of their own, wait to be started, or
    wait for their answers, over all connections (queued.max.request.bytes).

    While it is full no large frame is begun and none but the oldest grows, and a connection that
    has some of these bytes is not read from. One that has none may always send a small request. So
    the bound is the limit, a large frame or two beyond it, and one receive buffer a connection.
    What is parked ends with a commit and the oldest frame may always go on: it cannot stay full
    but by clients that stop sending in the middle of a frame, and those are closed (server.py).
    """

    __slots__ = ("_waiting", "frames", "limit", "peak", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        #: Large frames on their way in, the oldest first.
        self.frames: dict[LargeFrame, None] = {}
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def full(self) -> bool:
        return self.used >= self.limit

    @property
    def waited_for(self) -> bool:
        """Somebody is not read from, or was not until a moment ago, because there is no room."""
        return bool(self._waiting)

    def take(self, size: int) -> None:
        self.used += size
        if self.used > self.peak:
            self.peak = self.used

    def give(self, size: int) -> None:
        self.used -= size

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` once from `wake_some`, when there is room and it is its turn."""
        self._waiting.append(wake)

    def wake_some(self, count: int = 16) -> bool:
        """Once a turn: wake who has waited longest, while there is room. Whether more may follow.

        Not all at once: of ten thousand that wait a few would fill the room again.
        """
        waiting = self._waiting
        while waiting and count and not self.full:
            waiting.popleft()()
            count -= 1
        return bool(waiting) and not self.full


class LargeFrame:
    """A frame received where it stays: the event loop writes into it, the log reads from it.

    What is set aside for it counts in the budget. That is all of it while there is plenty of room;
    otherwise it grows with what is really sent: to claim a size in a header costs us nothing.
    """

    __slots__ = ("_budget", "_got", "_wake", "_whole", "data")

    def __init__(
        self, budget: Budget, size: int, start: memoryview, wake: Callable[[], None]
    ) -> None:
        """`size`: of the whole frame. `start`: what has arrived. `wake`: it may go on now."""
        self._budget = budget
        self._wake = wake
        self._whole = size
        self._got = len(start)
        plenty = budget.used + size <= budget.limit // 4
        #: Complete once `received` says so.
        self.data = bytearray(size if plenty else min(size, max(FIRST_BYTES, 2 * self._got)))
        self.data[: self._got] = start
        budget.take(len(self.data))
        budget.frames[self] = None

    @property
    def held_up(self) -> bool:
        """It has to grow, and may not: the budget is full and others are older."""
        budget = self._budget
        return self._got == len(self.data) and budget.full and next(iter(budget.frames)) is not self

    def room(self) -> memoryview:
        """Where the next bytes go."""
        data = self.data
        if self._got == len(data):
            # Only now: while `received` runs, the event loop still holds the buffer.
            more = min(self._whole - len(data), len(data))
            data.extend(bytes(more))
            self._budget.take(more)
        return memoryview(data)[self._got :]

    def received(self, count: int) -> bool:
        """`count` bytes have arrived in `room`; whether it is complete."""
        self._got += count
        return self._got == self._whole

    def end(self) -> None:
        """Complete, or given up: it does not count any more, and the next oldest may go on."""
        budget = self._budget
        budget.give(len(self.data))
        del budget.frames[self]
        if budget.frames:
            next(iter(budget.frames))._wake()


class Unsent:
    """Bytes of answers that wait to be sent, over all connections (ottla.send.max.bytes): those
    that the turn's end will hand to a socket, and those of sockets that have more than they like.

    Fetch answers are what may be large, so they are what is cut short: to one batch when the limit
    is reached. A thousand clients that ask and do not read cost the limit and a batch each.
    """

    __slots__ = ("limit", "peak", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0

    @property
    def room(self) -> int:
        """Bytes an answer may have now."""
        return max(0, self.limit - self.used)

    def add(self, size: int) -> None:
        self.used += size
        if self.used > self.peak:
            self.peak = self.used

    def remove(self, size: int) -> None:
        self.used -= size
