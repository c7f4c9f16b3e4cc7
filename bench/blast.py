"""A closed-loop load generator: many connections, prepared frames, one thread.

Each connection keeps `depth` requests on the wire and sends the next when an answer comes. An
answer costs the client a recv, a comparison and a send (some 10 us), so the broker is the limit.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.raw import Address, Check


@dataclass
class Result:
    """What happened between the end of the warm-up and the end of the run."""

    seconds: float = 0.0
    cpu: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return len(self.latencies)


class _Client:
    """One connection: its frame, what is on the wire, and bytes of an answer not yet whole."""

    def __init__(self, address: Address, frame: bytes, depth: int, check: Check) -> None:
        self.socket = socket.create_connection(address, timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame = frame
        self.depth = depth
        self.check = check
        self.sent: deque[float] = deque()
        self.rest = b""
        self.good = b""

    def begin(self) -> None:
        now = time.perf_counter()
        self.sent.extend([now] * self.depth)
        self.socket.sendall(self.frame * self.depth)

    def receive(self) -> list[float]:
        """Read what came, send as many requests as answers were whole; their latencies."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the broker closed a connection under load")
        now = time.perf_counter()
        if self.rest:
            data = self.rest + data
        pos, end = 0, len(data)
        latencies = []
        while end - pos >= 4:
            size = int.from_bytes(data[pos : pos + 4], "big")
            if end - pos < 4 + size:
                break
            self._judge(data[pos + 4 : pos + 4 + size])
            latencies.append(now - self.sent.popleft())
            pos += 4 + size
        self.rest = data[pos:]
        if latencies:
            self.sent.extend([now] * len(latencies))
            self.socket.sendall(self.frame * len(latencies))
        return latencies

    def _judge(self, payload: bytes) -> None:
        """Raise ValueError on an error code; an answer like the last good one needs no parsing."""
        if payload == self.good:
            return
        if error := self.check(payload):
            raise ValueError(f"an answer under load carried error {error}")
        self.good = payload


def blast(
    address: Address,
    load: Sequence[bytes],
    check: Check,
    *,
    seconds: float,
    warm_up: float = 0.0,
    depth: int = 1,
    cpu: Callable[[], float] = lambda: 0.0,
) -> Result:
    """One connection for every frame of `load`, for `warm_up` + `seconds`.

    `cpu` reads the broker's CPU seconds; the measured part's share is in the result.
    Raises ConnectionError when the broker closes a connection, ValueError on an error code.
    """
    clients: dict[int, _Client] = {}
    poll = select.epoll()
    result = Result()
    try:
        for frame in load:
            client = _Client(address, frame, depth, check)
            clients[client.socket.fileno()] = client
            poll.register(client.socket.fileno(), select.EPOLLIN)
        for client in clients.values():
            client.begin()
        _pump(poll, clients, warm_up)
        before, begin = cpu(), time.perf_counter()
        result.latencies = _pump(poll, clients, seconds)
        result.seconds = time.perf_counter() - begin
        result.cpu = cpu() - before
    finally:
        poll.close()
        for client in clients.values():
            client.socket.close()
    return result


def _pump(poll: select.epoll, clients: dict[int, _Client], seconds: float) -> list[float]:
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    silent = 0
    while (now := time.perf_counter()) < end:
        events = poll.poll(min(1.0, end - now))
        silent = 0 if events else silent + 1
        if silent > 30:
            raise ConnectionError("no answer for 30 s under load")
        for handle, _ in events:
            latencies += clients[handle].receive()
    return latencies
