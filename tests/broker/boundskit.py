"""A broker in a thread of its own whose loop is watched, and the largest requests there are.

The largest requests are made from the messages in wire/: each array of each request is blown up in
turn, with the same element again and again, with what exists, with what does not, and with strings
as long as they may be. `World.hold_ms` is the longest that the loop went without a look at its
sockets, in CPU time of its thread: other processes do not count.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.broker.app import _assemble, _identify
from ottla.broker.clock import SystemClock
from ottla.broker.config import ServerConfig
from ottla.broker.context import Broker
from ottla.broker.dispatch import load_apis
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
from ottla.wire.records import Record, build_batch
from ottla.wire.schema import FIELDS, FIXED, Field, Message

BATCH: Final = bytes(build_batch([Record(0, 1_700_000_000_000, b"key", b"value")]))


class WatchedLoop(asyncio.SelectorEventLoop):
    """Knows how long its longest turn was, in CPU time of its thread."""

    longest_s = 0.0

    def _run_once(self) -> None:
        before = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_s = max(self.longest_s, time.thread_time() - before)


class World:
    """A whole broker on loopback, in a thread."""

    def __init__(self, path: Path, **settings: str) -> None:
        given = {"log.dirs": str(path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        given |= {"ottla.durability": "os", "auto.create.topics.enable": "false"}
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        self.config = ServerConfig(given)
        self.loop = WatchedLoop()
        self.broker: Broker
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, args=(path,), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    def _serve(self, path: Path) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self._main(path))
        self.loop.close()

    async def _main(self, path: Path) -> None:
        clock = SystemClock()
        store = Store.open(
            path,
            options=StoreOptions(durability="os"),
            now_ms=clock.wall_ms(),
            boot_id="boot",
            post=self.loop.call_soon_threadsafe,
        )
        await _identify(store, self.config)
        self.broker = _assemble(store, self.config, clock)
        server = Server(self.broker, self.loop)
        await server.start()
        tenure = Tenure()
        tenure.start()
        self.broker.slices.after_slice = tenure.after_slice
        self.port = self.broker.listeners["PLAINTEXT"].port
        self._ready.set()
        await self._stop.wait()
        tenure.stop()
        await server.stop()
        store.close()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)

    def topics(self, wanted: dict[str, int]) -> None:
        """Make topics: partitions by name."""
        new = [
            NewTopic(name, b"id-of-" + f"{number:010}".encode(), partitions, {})
            for number, (name, partitions) in enumerate(wanted.items())
        ]
        done = threading.Event()

        def create() -> None:
            self.broker.topics.create(new).then(lambda _: done.set())

        self.loop.call_soon_threadsafe(create)
        assert done.wait(120)

    def begin(self) -> None:
        """Measure from here on. What is there already is no matter of the collector's."""
        gc.collect()
        gc.freeze()
        self.loop.longest_s = 0.0

    @property
    def hold_ms(self) -> float:
        return self.loop.longest_s * 1000

    def client(self) -> Asker:
        return Asker(self.port)


class Asker:
    """A client that blocks."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self._number = 0
        self._asked: list[tuple[type[Message], int]] = []

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def frame(self, request: Message, version: int) -> bytes:
        self._number += 1
        flexible = request_header_version(type(request), version) == 2
        header = RequestHeader(request.api_key, version, self._number, "test")
        body = encode_request_header(header, flexible) + b"".join(encode(request, version))
        module = sys.modules[type(request).__module__]
        response = getattr(module, type(request).__name__.replace("Request", "Response"))
        self._asked.append((response, version))
        return struct.pack(">i", len(body)) + body

    def send(self, frame: bytes) -> None:
        self.socket.sendall(frame)

    def receive(self) -> bytes | None:
        """The next answer's bytes; None when the connection was closed instead."""
        head = self._exactly(4)
        return None if head is None else self._exactly(*struct.unpack(">i", head))

    def read(self, data: bytes) -> Any:
        """An answer as a message."""
        response, version = self._asked.pop(0)
        _, pos = decode_response_header(data, 0, response_header_version(response, version))
        return decode(response, version, data, pos, len(data))

    def call(self, request: Message, version: int) -> Any:
        self.send(self.frame(request, version))
        data = self.receive()
        assert data is not None, "closed"
        return self.read(data)

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                count = self.socket.recv_into(view)
            except ConnectionResetError:
                return None
            if not count:
                return None
            view = view[count:]
        return bytes(data)


# ---------------------------------------------------------------------------- the largest requests


@dataclass(frozen=True)
class Case:
    """One request, one of whose arrays is as long as it may be."""

    cls: type[Message]
    version: int
    path: tuple[str, ...]
    """The array, from the outside in."""
    kind: str
    """same: one element many times. known: what exists. unknown: what does not. long: long
    strings."""

    @property
    def name(self) -> str:
        api = self.cls.__name__.removesuffix("Request")
        return f"{api}-v{self.version}-{'.'.join(self.path)}-{self.kind}"

    def request(self, names: Names, elements: int) -> Message:
        """With about so many elements in all."""
        made: Message = _struct(self.cls, self, names, self.path, elements, 0)
        return made


KINDS: Final = ("same", "known", "unknown", "long")
LONG_NAME: Final = 30_000
LONG_COUNT: Final = 100


@dataclass(frozen=True)
class Names:
    """What there is in the world that requests are made for."""

    node_id: int
    wide: str
    """A topic of many partitions."""
    topics: list[str]
    groups: list[str]
    transactional_ids: list[str]
    ids: dict[str, bytes]
    """Topic ids by name."""


def cases(shapes: bool) -> Iterator[Case]:
    """All there are; `shapes`: of every version that looks different, not of the last one only."""
    for _, api in sorted(load_apis().items()):
        cls = api.request
        seen: dict[tuple[Any, ...], int] = {}
        first, last = cls.versions
        for version in range(first if shapes else last, last + 1):
            seen[_shape(cls, version)] = version
        for version in sorted(seen.values()):
            for path in _arrays(cls, version):
                for kind in KINDS:
                    yield Case(cls, version, path, kind)


def _present(cls: type, version: int) -> list[Field]:
    return [field for field in FIELDS[cls] if version in field.versions]


def _inner(field: Field) -> type | None:
    return field.struct if field.item is None else field.item.struct


def _shape(cls: type, version: int) -> tuple[Any, ...]:
    return tuple(
        (field.name, None if (inner := _inner(field)) is None else _shape(inner, version))
        for field in _present(cls, version)
    )


def _arrays(cls: type, version: int) -> Iterator[tuple[str, ...]]:
    for field in _present(cls, version):
        inner = _inner(field)
        if field.kind == "array":
            yield (field.name,)
        if inner is not None:
            for path in _arrays(inner, version):
                yield (field.name, *path)


def _weight(field: Field, version: int) -> int:
    """Elements that one element of an array brings along."""
    assert field.item is not None
    if field.item.struct is None:
        return 1
    return 1 + sum(
        _weight(inner, version)
        for inner in _present(field.item.struct, version)
        if inner.kind == "array"
    )


def _struct(
    cls: type, case: Case, names: Names, path: tuple[str, ...], elements: int, number: int
) -> Any:
    values = {}
    for field in _present(cls, case.version):
        on_path = path[:1] == (field.name,)
        rest = path[1:] if on_path else ("",)
        values[field.name] = _value(cls, field, case, names, rest, elements, number, on_path)
    made = cls(**values)
    _by_hand(made, case, names, number)
    return made


def _value(
    owner: type,
    field: Field,
    case: Case,
    names: Names,
    path: tuple[str, ...],
    elements: int,
    number: int,
    on_path: bool,
) -> Any:
    if field.kind == "array":
        assert field.item is not None
        count = 1
        if on_path and not path:
            count = LONG_COUNT if case.kind == "long" else elements // _weight(field, case.version)
        elif not on_path and field.name == "forgotten_topics_data":
            count = 0
        return [
            _value(owner, field.item, case, names, path, elements, number + at, on_path)
            if field.item.struct is None
            else _struct(field.item.struct, case, names, path, elements, number + at)
            for at in range(count)
        ]
    if field.struct is not None:
        if field.tag is not None or len(field.null):
            return None
        return _struct(field.struct, case, names, path, elements, number)
    if field.kind == "string":
        return _string(owner, field, case, names, number)
    if field.kind == "uuid":
        return _uuid(case, names, number)
    if field.kind == "bytes":
        return b"\0\0\0\0"
    if field.kind == "records":
        return BATCH
    return _number(field, case, number)


def _number(field: Field, case: Case, number: int) -> Any:
    if field.kind == "bool":
        # Nothing is really made, and everything there is is asked for.
        return True
    if field.kind == "float64":
        return 0.0
    known: dict[str, int] = {
        "acks": -1,
        "broker_id": 1,
        "controller_epoch": 0,
        "coordinator_epoch": 0,
        "count": 2,
        "current_leader_epoch": -1,
        "isolation_level": 1,
        "last_fetched_epoch": -1,
        "leader_epoch": -1,
        "committed_leader_epoch": -1,
        "max_bytes": 1 << 20,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "num_partitions": 1,
        "partition_max_bytes": 1 << 20,
        "generation_id": -1,
        "generation_id_or_member_epoch": -1,
        "committed_offset": 1,
        "producer_epoch": -1,
        "producer_id": -1,
        "replica_id": -1,
        "replication_factor": 1,
        "resource_type": 2,
        "session_epoch": 0,
        "session_id": 0,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "timeout_ms": 1000,
        "timeout": 1000,
        "timestamp": -1,
        "response_partition_limit": 2000,
    }
    if field.name in known:
        return known[field.name]
    if field.name in ("", "partition", "partition_index", "index") and field.kind == "int32":
        return 0 if case.kind == "same" else number if case.kind == "known" else 1_000_000 + number
    return 0 if field.kind in FIXED else None


def _string(owner: type, field: Field, case: Case, names: Names, number: int) -> str:
    api = case.cls.__name__.removesuffix("Request")
    pool = names.topics
    if "group" in field.name or api in ("DescribeGroups", "DeleteGroups", "FindCoordinator"):
        pool = names.groups
    elif "transactional" in field.name:
        pool = names.transactional_ids
    elif "member" in field.name or "instance" in field.name or field.name == "metadata":
        pool = [""]
    elif field.name == "state_filters" or "filter" in field.name:
        pool = ["Stable"]
    elif field.name == "transactional_id_pattern":
        pool = [".*"]
    elif owner.__name__.endswith("Config") or field.name == "configuration_keys":
        pool = ["retention.ms"]
    changing = field.name == (case.path[-1] if not field.name else field.name)
    if case.kind == "same" or not changing:
        return pool[0] if pool is not names.topics else names.wide
    if case.kind == "known":
        if len(case.path) > 1 and pool is names.topics and case.path[-1] not in ("", "topics"):
            return names.wide
        return pool[number % len(pool)]
    if case.kind == "unknown":
        return f"no-{number}"
    return f"no-{number}".ljust(LONG_NAME, "x")


def _uuid(case: Case, names: Names, number: int) -> bytes:
    if case.kind == "same":
        return names.ids[names.wide]
    if case.kind == "known":
        return names.ids[names.topics[number % len(names.topics)]]
    return number.to_bytes(16, "big")


def _by_hand(made: Any, case: Case, names: Names, number: int) -> None:
    """What a request must have to get anywhere, and no schema says."""
    name = type(made).__name__
    if hasattr(made, "resource_name"):
        if case.kind == "same":
            made.resource_type, made.resource_name = 4, str(names.node_id)
        if hasattr(made, "configuration_keys"):
            made.configuration_keys = (
                None if case.path[-1] != "configuration_keys" else (made.configuration_keys)
            )
    if name == "DescribeTopicPartitionsRequest":
        made.cursor = None
    if name == "DeleteTopicState" and case.version >= 6:
        made.topic_id = bytes(16)
    if name == "ListTransactionsRequest":
        made.duration_filter = -1
        made.producer_id_filters = made.producer_id_filters if case.path else []
