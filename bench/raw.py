"""One blocking connection, for set-up and for measuring the first answer."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType

from bench import frames
from bench.frames import ProtocolError

Address = tuple[str, int]
Check = Callable[[bytes], int]
"""Takes an answer's payload and returns its error code."""


class Connection:
    """Sends whole frames, receives whole payloads. Raises OSError when the broker goes away."""

    def __init__(self, address: Address, timeout: float = 30.0) -> None:
        self.socket = socket.create_connection(address, timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.socket.close()

    def call(self, frame: bytes) -> bytes:
        """One request, its answer without the size."""
        self.socket.sendall(frame)
        return self.receive()

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self.socket.recv_into(view)
            if not count:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]
        return bytes(data)


def connect(address: Address, seconds: float = 60.0) -> Connection:
    """Connect as soon as the port opens; tries every 2 ms. Raises TimeoutError after `seconds`."""
    end = time.perf_counter() + seconds
    while True:
        try:
            return Connection(address)
        except OSError as error:
            if time.perf_counter() > end:
                raise TimeoutError(f"nothing answers at {address}") from error
            time.sleep(0.002)


def create_topics(address: Address, topics: dict[str, int], seconds: float = 180.0) -> None:
    """Create topics (name to partitions) and wait until each partition has a leader."""
    with connect(address) as connection:
        connection.socket.settimeout(seconds)
        errors = frames.create_topics_errors(connection.call(frames.create_topics(topics)))
        for name, error in errors.items():
            if error not in (frames.NONE, frames.TOPIC_ALREADY_EXISTS):
                raise ProtocolError(f"CreateTopics {name}", error)
        wait_for_leaders(connection, list(topics), seconds)


def wait_for_leaders(
    connection: Connection, topics: list[str], seconds: float = 180.0, auto_create: bool = False
) -> None:
    """Ask for Metadata until every partition of `topics` has a leader. Raises TimeoutError."""
    frame = frames.metadata(topics, auto_create)
    end = time.perf_counter() + seconds
    while True:
        states = frames.metadata_topics(connection.call(frame))
        if all(name in states and states[name].ready for name in topics):
            return
        if time.perf_counter() > end:
            raise TimeoutError(f"no leaders after {seconds} s: {states}")
        time.sleep(0.002)


def until_good(connection: Connection, frame: bytes, check: Check, seconds: float = 300.0) -> None:
    """Send `frame` until `check` finds no error: a leader just elected may refuse at first."""
    end = time.perf_counter() + seconds
    while error := check(connection.call(frame)):
        if time.perf_counter() > end:
            raise ProtocolError("a request of the set-up", error)
        time.sleep(0.002)


def produce_once(connection: Connection, frame: bytes) -> None:
    """Send a Produce frame until every partition of it is acknowledged. Raises ProtocolError."""
    until_good(connection, frame, lambda payload: max(frames.produce_errors(payload)))


def served(address: Address) -> dict[int, tuple[int, int]]:
    """API keys and their versions, as the broker announces them."""
    with connect(address) as connection:
        return frames.served_apis(connection.call(frames.api_versions()))
