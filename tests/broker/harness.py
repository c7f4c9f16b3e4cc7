"""A broker without sockets, threads or a clock of its own: commits are inline, time is a number."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any, TypeVar

from ottla.broker.config import ServerConfig
from ottla.broker.connection import Connection
from ottla.broker.context import Broker
from ottla.broker.dispatch import Dispatcher, load_apis
from ottla.broker.limits import Budget, Limits
from ottla.broker.metadata import NewTopic, Topics
from ottla.broker.sessions import FetchSessions
from ottla.broker.slices import SLICE_MS
from ottla.broker.timers import Timers
from ottla.broker.waiters import Waiters
from ottla.log.folder import Step, no_step
from ottla.log.options import StoreOptions, Table
from ottla.log.producer_ids import KEY as NEXT_PRODUCER_ID
from ottla.log.producer_ids import ProducerIds
from ottla.log.store import Store
from ottla.wire.compile import decode, encode
from ottla.wire.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.primitives import Buffer
from ottla.wire.records import Record, build_batch
from ottla.wire.schema import Message

M = TypeVar("M", bound=Message)

START_MS = 1_700_000_000_000


#: Commits are inline and cost no flush.
OPTIONS = StoreOptions(durability="os")


class VirtualClock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.passed_ms = 0.0
        #: By how much somebody has set the time of day.
        self.set_ms = 0
        self._set_at_start_ms = 0

    def wall_ms(self) -> int:
        return START_MS + int(self.passed_ms) + self.set_ms

    def monotonic_ms(self) -> float:
        return self.passed_ms

    def steady_ms(self) -> int:
        return START_MS + int(self.passed_ms) + self._set_at_start_ms

    def start(self) -> None:
        """A process begins: what it takes for the time of day is what the machine says now."""
        self._set_at_start_ms = self.set_ms


class Harness:
    """A whole broker but for server.py, whose part in a turn `turn` plays."""

    def __init__(
        self,
        path: Path,
        *,
        clock: VirtualClock | None = None,
        step: Step = no_step,
        options: StoreOptions = OPTIONS,
        **settings: str,
    ) -> None:
        """`clock`: one that other harnesses have used. `step`: see Store.open."""
        given = {"log.dirs": str(path), "listeners": "PLAINTEXT://127.0.0.1:9092"}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        config = ServerConfig(given)
        self.clock = VirtualClock() if clock is None else clock
        self.clock.start()
        self.store = Store.open(
            path,
            options=options,
            now_ms=self.clock.wall_ms(),
            boot_id="boot",
            post=None,
            step=step,
        )
        producer_ids = ProducerIds(self._next_producer_id(), self.store.change)
        self.store.on_reset(lambda _: producer_ids.reset(self._next_producer_id()))
        timers = Timers(self.clock)
        self.broker = Broker(
            node_id=config.node_id,
            cluster_id="cluster",
            config=config,
            store=self.store,
            topics=Topics(self.store, config),
            clock=self.clock,
            timers=timers,
            waiters=Waiters(timers),
            sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots),
            producer_ids=producer_ids,
            listeners={listener.name: listener for listener in config.listeners},
            apis=load_apis(),
        )
        self.store.listen(lambda committed: self.broker.waiters.moved(committed.partitions))
        # The host of connections:
        self.limits = Limits()
        self.budget = Budget(1 << 30)
        self.unsent = self.broker.unsent
        self.scratch = memoryview(bytearray(64 * 1024))
        self.dispatcher = Dispatcher(self.broker)
        self.ahead = self.dispatcher.ahead
        self.late = False
        self._dirty: list[Connection] = []

    def _next_producer_id(self) -> bytes | None:
        return self.store.get(Table.CLUSTER, NEXT_PRODUCER_ID)

    def handle(self, connection: Connection, frame: Buffer) -> None:
        self.dispatcher.handle(connection, frame)

    def touched(self, connection: Connection) -> None:
        if not connection.touched:
            connection.touched = True
            self._dirty.append(connection)

    def turn(self) -> None:
        """Turns of the loop until nothing is left to do."""
        self.store.flush()
        while self._dirty:
            dirty, self._dirty = self._dirty, []
            for connection in dirty:
                connection.touched = False
                connection.run()
                connection.owner.take(connection.take_output())
                if connection.more_to_run:
                    self.touched(connection)
            self.store.flush()
            self.budget.wake_some()

    def pass_time(self, ms: float) -> None:
        self.clock.passed_ms += ms
        self.broker.timers.run_due()
        self.turn()

    def client(self) -> Client:
        return Client(self)

    def topic(self, name: str, partitions: int = 1, topic_id: bytes = b"", **configs: str) -> bytes:
        """Make a topic; gives its id."""
        own = {key.replace("_", "."): value for key, value in configs.items()}
        topic_id = topic_id or name.encode().rjust(16, b"\1")
        ticket = self.broker.topics.create([NewTopic(name, topic_id, partitions, own)])
        self.turn()
        assert ticket.error is None
        return topic_id

    def delete_topic(self, name: str) -> None:
        self.broker.topics.delete([name])
        self.turn()


class Client:
    """One connection, spoken to in messages."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self.connection = Connection(harness, "PLAINTEXT", "client")
        self.connection.owner = self
        self._received = bytearray()
        self._asked: list[tuple[int, type[Message], int]] = []
        self._number = 0

    @property
    def closed(self) -> str | None:
        return self.connection.closed

    def take(self, out: list[Buffer]) -> None:
        for buffer in out:
            self._received += buffer

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.connection.feed(data)
        self._harness.turn()

    def frame(self, request: Message, version: int) -> bytes:
        """A request as it travels, counted as asked."""
        self._number += 1
        flexible = request_header_version(type(request), version) == 2
        header = RequestHeader(request.api_key, version, self._number, "test")
        body = encode_request_header(header, flexible) + b"".join(encode(request, version))
        module = sys.modules[type(request).__module__]
        response = getattr(module, type(request).__name__.replace("Request", "Response"))
        self._asked.append((self._number, response, version))
        return struct.pack(">i", len(body)) + body

    def send(self, request: Message, version: int) -> None:
        """Ask, and let a turn pass; the answer may come with it, later, or never."""
        self.raw(self.frame(request, version))

    def receive(self) -> Any:
        """The next answer; None where there is none yet."""
        if len(self._received) < 4:
            return None
        (size,) = struct.unpack_from(">i", self._received)
        assert len(self._received) >= 4 + size, "half an answer"
        data = bytes(self._received[4 : 4 + size])
        del self._received[: 4 + size]
        number, response, version = self._asked.pop(0)
        answered, pos = decode_response_header(data, 0, response_header_version(response, version))
        assert answered == number
        return decode(response, version, data, pos, len(data))

    def call(self, request: Message, version: int) -> Any:
        """Ask and have the answer at once, or when its slices are done."""
        self.send(request, version)
        answer = self.receive()
        while answer is None and self._harness.broker.slices:
            self._harness.pass_time(SLICE_MS)
            answer = self.receive()
        assert answer is not None, f"no answer; closed: {self.closed}"
        return answer

    def forget(self) -> None:
        """The request sent last gets no answer."""
        self._asked.pop()


def make_batch(count: int = 1, *, timestamp: int = START_MS, size: int = 10, **kw: Any) -> bytes:
    """`count` records, timestamps rising by one."""
    rows = [Record(n, timestamp + n, b"k%d" % n, bytes(size), ()) for n in range(count)]
    return bytes(build_batch(rows, **kw))
