"""What clients may make the broker hold in memory: the bounds, and the counters that metrics
read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may make us hold."""

    #: Largest frame in bytes, without its size field (socket.request.max.bytes).
    max_frame_bytes: int = 104_857_600
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
    wait for their answers, over all connections (ottla.pending.commit.max.bytes).

    Over `limit` no large frame is begun, and a connection that has some of these bytes is not read
    from. One that has none may always send a small request: the bound is the limit, plus one
    receive buffer a connection, or one frame where that alone is larger than the limit.
    """

    __slots__ = ("_waiting", "limit", "peak", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def full(self) -> bool:
        return self.used >= self.limit

    @property
    def waited_for(self) -> bool:
        """Somebody is not read from because there is no room."""
        return bool(self._waiting)

    def fits(self, size: int) -> bool:
        """Whether a frame of `size` bytes may be begun; one alone may be larger than the limit."""
        return self.used + size <= self.limit or self.used == 0

    def take(self, size: int) -> None:
        self.used += size
        if self.used > self.peak:
            self.peak = self.used

    def give(self, size: int) -> None:
        self.used -= size
        if self._waiting and self.used < self.limit:
            waiting, self._waiting = self._waiting, []
            for wake in waiting:
                wake()

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when something was given back and there is room."""
        self._waiting.append(wake)


class Unsent:
    """Bytes that clients are slow to take, over all connections (ottla.send.max.bytes).

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
