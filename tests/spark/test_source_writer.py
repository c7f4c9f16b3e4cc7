"""Sending rows, and telling a group: what the client answers, and what is made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType
from pyspark_ottla import progress, writer
from pyspark_ottla.errors import BadOption, WriteFailed
from pyspark_ottla.offsets import Partition
from pyspark_ottla.options import WRITE, Options
from pyspark_ottla.progress import GroupCommit
from pyspark_ottla.properties import Settings
from pyspark_ottla.source import HEADERS
from pyspark_ottla.writer import Sink

SCHEMA = (
    StructType()
    .add("key", StringType())
    .add("value", BinaryType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("headers", HEADERS)
    .add("unrelated", IntegerType())
)


class Message:
    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 7


class Producer:
    """Stands in for the client: takes so many records before it is full."""

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.sent: list[tuple[Any, ...]] = []
        self.drains = True
        self.fails: KafkaError | None = None
        self.clock = 0.0
        self._delivered: Callable[..., None] = lambda *_: None
        self._waiting = 0

    def produce(self, topic: str, value: Any, key: Any, on_delivery: Any, **more: Any) -> None:
        if self._waiting == self.room:
            raise BufferError("full")
        self._waiting += 1
        self._delivered = on_delivery
        self.sent.append((topic, value, key, more))

    def poll(self, seconds: float) -> None:
        self.clock += seconds
        if seconds and self.drains:
            self._waiting = 0

    def purge(self) -> None:
        self._waiting = 0

    def flush(self, seconds: float) -> int:
        if self.fails is not None:
            self._delivered(self.fails, Message())
        self._waiting = max(self._waiting - 400, 0)
        return self._waiting

    def monotonic(self) -> float:
        return self.clock


def write(
    monkeypatch: pytest.MonkeyPatch, client: Producer, rows: list[dict[str, Any]], **options: str
) -> list[tuple[Any, ...]]:
    monkeypatch.setattr(writer, "make_client", lambda *_: client)
    monkeypatch.setattr(writer, "time", client)
    sink = Sink(Options(WRITE, {"kafka.bootstrap.servers": "b"} | options), SCHEMA)
    struct = pa.struct([("key", pa.string()), ("value", pa.binary())])
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("headers", pa.list_(struct)),
            ("unrelated", pa.int32()),
        ]
    )
    sink.write(iter([pa.RecordBatch.from_pylist(rows, schema=schema)]))
    return client.sent


def test_columns_become_records(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"key": "k", "value": b"v", "topic": "a", "partition": 3, "headers": None},
        {"key": None, "value": None, "topic": "b", "headers": [{"key": "h", "value": None}]},
        {"key": "", "value": b"", "topic": "c", "headers": []},
    ]
    assert write(monkeypatch, Producer(), rows) == [
        ("a", b"v", "k", {"partition": 3}),
        ("b", None, None, {"headers": [("h", None)]}),
        ("c", b"", "", {}),
    ]
    sent = write(monkeypatch, Producer(), rows, topic="all")
    assert [record[0] for record in sent] == ["all"] * 3


def test_a_row_without_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadOption, match=r"^topic: a row's column topic is null"):
        write(monkeypatch, Producer(), [{"value": b"v"}])


def test_a_client_that_is_full_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"value": b"%d" % n, "topic": "t"} for n in range(2500)]
    sent = write(monkeypatch, Producer(room=100), rows)
    assert [value for _, value, _, _ in sent] == [row["value"] for row in rows]


def test_a_client_that_stays_full(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Producer(room=10)
    client.drains = False
    rows = [{"value": b"v", "topic": "t"}] * 11
    with pytest.raises(WriteFailed, match=r"kafka\.max\.block\.ms"):
        write(monkeypatch, client, rows, **{"kafka.max.block.ms": "3000"})
    assert 3 < client.clock < 3.2


def test_a_record_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Producer()
    client.fails = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(WriteFailed, match=r"^cannot write to t: .*[Aa]uthorization"):
        write(monkeypatch, client, [{"value": b"v", "topic": "t"}] * 900)


def test_a_partition_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Producer()
    client.fails = KafkaError(KafkaError._UNKNOWN_PARTITION)
    with pytest.raises(WriteFailed, match=r"has no partition 7, .*: drop the column"):
        write(monkeypatch, client, [{"value": b"v", "topic": "t", "partition": 7}])


class Committing:
    """Stands in for a consumer that commits."""

    def __init__(self) -> None:
        self.problem: int | None = None
        self.commits: list[dict[int, int]] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        if self.problem is not None:
            raise KafkaException(KafkaError(self.problem))
        self.commits.append({part.partition: part.offset for part in offsets})
        return offsets

    def close(self) -> None: ...


def test_a_group_is_told_what_has_changed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = Committing()
    monkeypatch.setattr(progress, "make_client", lambda *_: client)
    group = GroupCommit("lag", Settings())
    one, two = Partition("t", 0), Partition("t", 1)
    group.commit({one: 1, two: 1})
    group.commit({one: 1, two: 2})
    group.commit({one: 1, two: 2})
    client.problem = KafkaError.UNKNOWN_MEMBER_ID
    group.commit({one: 3, two: 3})
    assert "commitGroupId: cannot commit to lag: " in caplog.text
    client.problem = None
    group.commit({one: 3, two: 4})
    assert client.commits == [{0: 1, 1: 1}, {1: 2}, {0: 3, 1: 4}]
    group.close()
