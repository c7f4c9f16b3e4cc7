"""Request frames built by hand, and just enough reading of answers to know errors from success.

The load generators send bytes prepared beforehand, so that the client's CPU stays out of the way of
the broker's. The versions used here are flexible ones that Apache Kafka 2.8 to 4.x serves and that
name topics by name: what current clients send, but for topic ids.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from crc32c import crc32c

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 3, 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, API_VERSIONS, CREATE_TOPICS = 11, 12, 13, 14, 18, 19

VERSIONS = {
    PRODUCE: 9,
    METADATA: 9,
    OFFSET_COMMIT: 8,
    OFFSET_FETCH: 6,
    FIND_COORDINATOR: 3,
    JOIN_GROUP: 6,
    HEARTBEAT: 4,
    LEAVE_GROUP: 4,
    SYNC_GROUP: 4,
    API_VERSIONS: 3,
    CREATE_TOPICS: 5,
}

NONE = 0
COORDINATOR_LOAD_IN_PROGRESS = 14
REBALANCE_IN_PROGRESS = 27
UNKNOWN_MEMBER_ID = 25
TOPIC_ALREADY_EXISTS = 36
MEMBER_ID_REQUIRED = 79

T = TypeVar("T")

NO_TAGS = b"\0"
CLIENT_ID = b"ottla-bench"


def uvarint(value: int) -> bytes:
    """An unsigned varint: 7 bits a byte, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """A signed varint as records use it."""
    return uvarint((value << 1) ^ (value >> 63))


def string(value: str | None) -> bytes:
    """A compact (nullable) string: length plus one, then UTF-8; 0 is null."""
    if value is None:
        return b"\0"
    data = value.encode()
    return uvarint(len(data) + 1) + data


def blob(value: bytes) -> bytes:
    """Compact bytes."""
    return uvarint(len(value) + 1) + value


def array(items: Iterable[bytes]) -> bytes:
    """A compact array of items that are encoded already."""
    items = list(items)
    return uvarint(len(items) + 1) + b"".join(items)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def request(api_key: int, body: bytes, correlation_id: int = 0) -> bytes:
    """A whole frame: size, request header v2, body."""
    head = struct.pack(">hhih", api_key, VERSIONS[api_key], correlation_id, len(CLIENT_ID))
    payload = head + CLIENT_ID + NO_TAGS + body
    return int32(len(payload)) + payload


def batch(values: list[bytes], timestamp: int = 1_700_000_000_000) -> bytes:
    """An uncompressed record batch (magic 2) without keys, from no idempotent producer."""
    records = bytearray()
    for delta, value in enumerate(values):
        record = b"\0\0" + zigzag(delta) + zigzag(-1) + zigzag(len(value)) + value + b"\0"
        records += zigzag(len(record)) + record
    last = len(values) - 1
    checked = (
        struct.pack(">hiqqqhii", 0, last, timestamp, timestamp, -1, -1, -1, last + 1) + records
    )
    head = struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c(checked))
    return head + checked


def produce(topic: str, batches: dict[int, bytes], acks: int = -1) -> bytes:
    """Produce: `batches` by partition, one topic."""
    partitions = array(int32(index) + blob(data) + NO_TAGS for index, data in batches.items())
    topics = array([string(topic) + partitions + NO_TAGS])
    return request(PRODUCE, string(None) + struct.pack(">hi", acks, 30_000) + topics + NO_TAGS)


def create_topics(topics: dict[str, int], timeout_ms: int = 60_000) -> bytes:
    """CreateTopics: name to number of partitions."""
    rows = (
        string(name) + struct.pack(">ih", count, 1) + array([]) + array([]) + NO_TAGS
        for name, count in topics.items()
    )
    return request(CREATE_TOPICS, array(rows) + struct.pack(">i?", timeout_ms, False) + NO_TAGS)


def metadata(topics: list[str] | None, auto_create: bool = False) -> bytes:
    """Metadata of the named topics, or of all."""
    names = b"\0" if topics is None else array(string(name) + NO_TAGS for name in topics)
    return request(METADATA, names + struct.pack(">???", auto_create, False, False) + NO_TAGS)


def api_versions() -> bytes:
    return request(API_VERSIONS, string("ottla-bench") + string("1") + NO_TAGS)


def find_coordinator(group_id: str) -> bytes:
    return request(FIND_COORDINATOR, string(group_id) + b"\0" + NO_TAGS)


def join_group(group_id: str, member_id: str, session_ms: int, rebalance_ms: int) -> bytes:
    """JoinGroup of a consumer with one protocol, `range`."""
    timeouts = struct.pack(">ii", session_ms, rebalance_ms)
    protocols = array([string("range") + blob(b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff") + NO_TAGS])
    who = string(member_id) + string(None) + string("consumer")
    return request(JOIN_GROUP, string(group_id) + timeouts + who + protocols + NO_TAGS)


def sync_group(group_id: str, generation: int, member_id: str, members: list[str]) -> bytes:
    """SyncGroup; the leader names `members` and gives each the same small assignment."""
    given = b"\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
    rows = array(string(member) + blob(given) + NO_TAGS for member in members)
    who = string(group_id) + int32(generation) + string(member_id) + string(None)
    return request(SYNC_GROUP, who + rows + NO_TAGS)


def heartbeat(group_id: str, generation: int, member_id: str) -> bytes:
    who = string(group_id) + int32(generation) + string(member_id) + string(None)
    return request(HEARTBEAT, who + NO_TAGS)


def leave_group(group_id: str, member_id: str) -> bytes:
    members = array([string(member_id) + string(None) + NO_TAGS])
    return request(LEAVE_GROUP, string(group_id) + members + NO_TAGS)


def offset_commit(
    group_id: str, topic: str, offsets: dict[int, int], generation: int = -1, member_id: str = ""
) -> bytes:
    """OffsetCommit of one topic; by default as a standalone consumer."""
    rows = array(
        struct.pack(">iqi", index, offset, -1) + string("") + NO_TAGS
        for index, offset in offsets.items()
    )
    who = string(group_id) + int32(generation) + string(member_id) + string(None)
    return request(OFFSET_COMMIT, who + array([string(topic) + rows + NO_TAGS]) + NO_TAGS)


def offset_fetch(group_id: str, topic: str, partitions: list[int]) -> bytes:
    indexes = array(int32(index) for index in partitions)
    return request(
        OFFSET_FETCH, string(group_id) + array([string(topic) + indexes + NO_TAGS]) + NO_TAGS
    )


@dataclass(slots=True)
class Reader:
    """Reads a flexible answer from left to right. Raises struct.error or IndexError at its end."""

    data: bytes
    pos: int = 0

    def _int(self, code: str, size: int) -> int:
        (value,) = struct.unpack_from(code, self.data, self.pos)
        self.pos += size
        return int(value)

    def int8(self) -> int:
        return self._int(">b", 1)

    def int16(self) -> int:
        return self._int(">h", 2)

    def int32(self) -> int:
        return self._int(">i", 4)

    def int64(self) -> int:
        return self._int(">q", 8)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.pos]
            self.pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def string(self) -> str | None:
        size = self.uvarint() - 1
        if size < 0:
            return None
        start, self.pos = self.pos, self.pos + size
        return self.data[start : self.pos].decode()

    def tags(self) -> int:
        """Skip the tagged fields; returns how many there were."""
        count = self.uvarint()
        for _ in range(count):
            self.uvarint()
            self.skip(self.uvarint())
        return count

    def skip(self, size: int) -> None:
        self.pos += size

    def array(self, item: Callable[[], T]) -> list[T]:
        return [item() for _ in range(max(0, self.uvarint() - 1))]


def answer(payload: bytes) -> Reader:
    """A reader placed behind response header v1 of a payload (a frame without its size)."""
    reader = Reader(payload, 4)
    reader.tags()
    return reader


def served_apis(payload: bytes) -> dict[int, tuple[int, int]]:
    """ApiVersions' answer: key to (lowest, highest) version. Its header never has tags."""
    reader = Reader(payload, 4)
    if error := reader.int16():
        raise ProtocolError("ApiVersions", error)

    def row() -> tuple[int, tuple[int, int]]:
        key, low, high = reader.int16(), reader.int16(), reader.int16()
        reader.tags()
        return key, (low, high)

    return dict(reader.array(row))


class ProtocolError(Exception):
    """An answer carried an error code; `error` is the code, `what` the API or partition."""

    def __init__(self, what: str, error: int) -> None:
        super().__init__(f"{what} was answered with error {error}")
        self.what = what
        self.error = error


def produce_errors(payload: bytes) -> list[int]:
    """Error code of every partition of a Produce answer."""
    reader = answer(payload)

    def partition() -> int:
        reader.int32()
        error = reader.int16()
        reader.skip(24)
        reader.array(lambda: (reader.int32(), reader.string(), reader.tags()))
        reader.string()
        reader.tags()
        return error

    def topic() -> list[int]:
        reader.string()
        errors = reader.array(partition)
        reader.tags()
        return errors

    return [error for errors in reader.array(topic) for error in errors]


def create_topics_errors(payload: bytes) -> dict[str, int]:
    """Error code of every topic of a CreateTopics answer."""
    reader = answer(payload)
    reader.int32()

    def config() -> None:
        reader.string()
        reader.string()
        reader.skip(3)
        reader.tags()

    def topic() -> tuple[str, int]:
        name = reader.string() or ""
        error = reader.int16()
        reader.string()
        reader.skip(6)
        reader.array(config)
        reader.tags()
        return name, error

    return dict(reader.array(topic))


@dataclass(slots=True)
class TopicState:
    """What Metadata says of one topic."""

    error: int
    leaders: list[int] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return self.error == NONE and bool(self.leaders) and min(self.leaders) >= 0


def metadata_topics(payload: bytes) -> dict[str, TopicState]:
    """Topics of a Metadata answer with the leader of each partition (-1: none or an error)."""
    reader = answer(payload)
    reader.int32()
    reader.array(
        lambda: (reader.int32(), reader.string(), reader.int32(), reader.string(), reader.tags())
    )
    reader.string()
    reader.int32()

    def partition() -> int:
        error = reader.int16()
        reader.int32()
        leader = reader.int32()
        reader.int32()
        for _ in range(3):
            reader.array(reader.int32)
        reader.tags()
        return -1 if error else leader

    def topic() -> tuple[str, TopicState]:
        error = reader.int16()
        name = reader.string() or ""
        reader.int8()
        leaders = reader.array(partition)
        reader.int32()
        reader.tags()
        return name, TopicState(error, leaders)

    return dict(reader.array(topic))


def top_error(payload: bytes) -> int:
    """The error code behind throttle_time_ms: Heartbeat, SyncGroup, LeaveGroup, FindCoordinator."""
    reader = answer(payload)
    reader.int32()
    return reader.int16()


def offset_commit_errors(payload: bytes) -> list[int]:
    """Error code of every partition of an OffsetCommit answer."""
    reader = answer(payload)
    reader.int32()

    def partition() -> int:
        reader.int32()
        error = reader.int16()
        reader.tags()
        return error

    def topic() -> list[int]:
        reader.string()
        errors = reader.array(partition)
        reader.tags()
        return errors

    return [error for errors in reader.array(topic) for error in errors]


def fetched_offsets(payload: bytes) -> tuple[int, dict[int, int]]:
    """An OffsetFetch answer of one topic: its error code, and partition to committed offset."""
    reader = answer(payload)
    reader.int32()
    offsets: dict[int, int] = {}

    def partition() -> None:
        index, offset = reader.int32(), reader.int64()
        reader.int32()
        reader.string()
        reader.int16()
        reader.tags()
        offsets[index] = offset

    reader.array(lambda: (reader.string(), reader.array(partition), reader.tags()))
    return reader.int16(), offsets


@dataclass(slots=True)
class Joined:
    """A JoinGroup answer."""

    error: int
    generation: int
    leader: str
    member_id: str
    members: list[str]


def joined(payload: bytes) -> Joined:
    reader = answer(payload)
    reader.int32()
    error, generation = reader.int16(), reader.int32()
    reader.string()
    leader, member_id = reader.string() or "", reader.string() or ""

    def member() -> str:
        name = reader.string() or ""
        reader.string()
        reader.skip(reader.uvarint() - 1)
        reader.tags()
        return name

    return Joined(error, generation, leader, member_id, reader.array(member))
