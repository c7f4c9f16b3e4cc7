"""A broker on an event loop that notes how long each of its turns takes, and a client that asks.

What counts is CPU time of the loop's thread: on a busy machine a turn takes longer by the clock,
but not by this. Commits are made on a thread of their own under `fsync`, as in a real broker.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ottla.broker.app import _assemble, _identify
from ottla.broker.clock import SystemClock
from ottla.broker.config import ServerConfig
from ottla.broker.context import Broker
from ottla.broker.garbage import Tenure
from ottla.broker.metadata import NewTopic
from ottla.broker.server import Server
from ottla.log.options import StoreOptions
from ottla.log.store import Store
from ottla.wire.compile import decode, encode
from ottla.wire.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.schema import Message

T = TypeVar("T")


class Cost(NamedTuple):
    """What one request cost the broker."""

    hold_ms: float
    """CPU time of the longest turn of the loop."""
    cpu_ms: float
    """CPU time of all turns."""
    memory: int
    """Bytes by which the process grew at most."""
    answer: int
    """Bytes of the answer."""


class MeasuredLoop(asyncio.SelectorEventLoop):
    """Notes the CPU time of its turns."""

    worst_ns = total_ns = 0

    def begin(self) -> None:
        self.worst_ns = self.total_ns = 0

    def _run_once(self) -> None:
        before = time.thread_time_ns()
        super()._run_once()  # type: ignore[misc]  # asyncio's own, in all versions
        took = time.thread_time_ns() - before
        self.total_ns += took
        self.worst_ns = max(self.worst_ns, took)


class Measured:
    """A whole broker in a thread of its own."""

    def __init__(self, folder: Path, **settings: str) -> None:
        given = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        self._config = ServerConfig(given)
        self.loop = MeasuredLoop()
        self.broker: Broker
        self._ready = threading.Event()
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        assert self._ready.wait(60)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        clock = SystemClock()
        store = Store.open(
            self._config.data_dir,
            options=StoreOptions(
                durability="os" if self._config.ottla_durability == "os" else "fsync"
            ),
            now_ms=clock.wall_ms(),
            boot_id="boot",
            post=self.loop.call_soon_threadsafe,
        )
        try:
            await _identify(store, self._config)
            self.broker = _assemble(store, self._config, clock)
            server = Server(self.broker, self.loop)
            await server.start()
            tenure = Tenure()
            tenure.start()
            self.broker.slices.after_slice = tenure.after_slice
            self._ready.set()
            await self._stop.wait()
            tenure.stop()
            await server.stop()
        finally:
            gc.unfreeze()
            store.close()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def do(self, fn: Callable[[], T]) -> T:
        """Call `fn` on the loop."""

        async def call() -> T:
            return fn()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(120)

    def topics(self, names: Iterable[str], partitions: int) -> None:
        """Make topics in one commit."""
        made = threading.Event()
        new = [NewTopic(n, n.encode().rjust(16, b"\1")[-16:], partitions, {}) for n in names]

        def create() -> None:
            self.broker.topics.create(new).then(lambda _: made.set())
            self.broker.store.flush()

        self.do(create)
        assert made.wait(60)

    def asking(self) -> Asking:
        return Asking(self)


class Asking:
    """One client that waits for each answer."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        port = measured.broker.listeners["PLAINTEXT"].port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)

    def call(self, request: Message, version: int) -> Any:
        """The answer."""
        self.socket.sendall(frame(request, version))
        size = int.from_bytes(self._exactly(4))
        data = self._exactly(size)
        module = sys.modules[type(request).__module__]
        response = getattr(module, type(request).__name__.replace("Request", "Response"))
        _, pos = decode_response_header(data, 0, response_header_version(response, version))
        return decode(response, version, data, pos)

    def cost(self, request: Message, version: int) -> Cost:
        """What the question costs; the answer is thrown away as it comes."""
        asked = frame(request, version)
        loop = self._measured.loop
        self._measured.do(loop.begin)
        before = _memory(reset=True)
        self.socket.sendall(asked)
        size = left = int.from_bytes(self._exactly(4))
        rubbish = bytearray(1 << 16)
        while left:
            left -= self.socket.recv_into(rubbish, min(left, len(rubbish)))
        peak = _memory()
        worst, total = self._measured.do(lambda: (loop.worst_ns, loop.total_ns))
        return Cost(worst / 1e6, total / 1e6, max(0, peak - before), size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            got = self.socket.recv(min(size - len(data), 1 << 20))
            assert got, "the broker closed the connection"
            data += got
        return bytes(data)


def frame(request: Message, version: int) -> bytes:
    """A request as it travels."""
    flexible = request_header_version(type(request), version) == 2
    header = RequestHeader(request.api_key, version, 1, "test")
    body = encode_request_header(header, flexible) + b"".join(encode(request, version))
    return struct.pack(">i", len(body)) + body


def _memory(*, reset: bool = False) -> int:
    """Bytes that the process has had resident at most since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM in /proc/self/status")
