"""Who reads what of transactions: Fetch and ListOffsets under both isolation levels,
DescribeProducers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.harness import START_MS, Client, Harness, make_batch
from tests.log.transactionkit import Producer

from ottla.log.partition import Partition
from ottla.log.reading import Cold, Read
from ottla.log.transactions import aborted_gone
from ottla.wire.api.describe_producers import (
    DescribeProducersRequest,
    ProducerState,
    TopicRequest,
)
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.errors import Error
from ottla.wire.records import read_header, walk

UNLIMITED = 0x7FFFFFFF


def partition_of(harness: Harness, name: str = "t") -> Partition:
    harness.topic(name)
    return harness.broker.topics.partition(name, 0)


def put(harness: Harness, partition: Partition, count: int = 1) -> None:
    batch = bytearray(make_batch(count))
    harness.store.append(partition, batch, read_header(batch), START_MS)
    harness.turn()


def ask(offset: int, isolation_level: int = 1, **fields: Any) -> FetchRequest:
    asked = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=fields.pop("limit", UNLIMITED)
    )
    fields.setdefault("max_bytes", UNLIMITED)
    fields.setdefault("session_epoch", -1)
    return FetchRequest(
        isolation_level=isolation_level,
        topics=[FetchTopic(topic="t", partitions=[asked])],
        **fields,
    )


def fetch(client: Client, offset: int, isolation_level: int = 1, **fields: Any) -> PartitionData:
    data: PartitionData = (
        client.call(ask(offset, isolation_level, **fields), 12).responses[0].partitions[0]
    )
    return data


def batches(data: PartitionData) -> list[int]:
    return [header.base_offset for _, header in walk(data.records or b"")]


def aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    if data.aborted_transactions is None:
        return None
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions]


# ------------------------------------------------------------------------------------------- fetch


def test_a_read_ends_at_the_last_stable_offset(harness: Harness, client: Client) -> None:
    partition = partition_of(harness)
    producer = Producer(harness.store)
    put(harness, partition, 2)
    # One commit, one joined extent: the cut is within it.
    plain = bytearray(make_batch(1))
    harness.store.append(partition, plain, read_header(plain), START_MS)
    producer.admit(partition, 2)
    put(harness, partition)
    data = fetch(client, 0)
    assert (batches(data), data.high_watermark, data.last_stable_offset) == ([0, 2], 6, 3)
    assert batches(fetch(client, 0, 0)) == [0, 2, 3, 5]
    producer.commit()
    data = fetch(client, 0)
    assert (batches(data), data.last_stable_offset) == ([0, 2, 3, 5, 6], 7)


def test_27_between_the_last_stable_offset_and_the_end_is_empty(
    harness: Harness, client: Client
) -> None:
    partition = partition_of(harness)
    Producer(harness.store).send(partition, 3)
    for offset in range(4):
        data = fetch(client, offset)
        assert (data.error_code, batches(data), aborted(data)) == (0, [], [])
    assert fetch(client, 4).error_code == Error.OFFSET_OUT_OF_RANGE


def test_30_aborted_transactions_are_null_where_nobody_asked(
    harness: Harness, client: Client
) -> None:
    partition = partition_of(harness)
    producer = Producer(harness.store)
    producer.send(partition)
    producer.abort()
    assert aborted(fetch(client, 0, 0)) is None
    assert aborted(fetch(client, 0)) == [(5, 0)]
    assert aborted(fetch(client, 2)) == []
    put(harness, partition)
    assert aborted(fetch(client, 2)) == []


def test_30_every_aborted_transaction_that_overlaps_what_is_read(
    harness: Harness, client: Client
) -> None:
    """Also when its marker lies behind the part that is read, or its first record before it."""
    partition = partition_of(harness)
    one, two = Producer(harness.store, 1), Producer(harness.store, 2)
    size = len(one.batch(partition))
    one.send(partition)  # 0
    two.send(partition)  # 1
    two.abort()  # 2
    one.send(partition)  # 3
    one.abort()  # 4
    put(harness, partition)  # 5
    assert aborted(fetch(client, 0)) == [(2, 1), (1, 0)]
    data = fetch(client, 0, limit=size)
    assert (batches(data), aborted(data)) == ([0], [(1, 0)])
    data = fetch(client, 3, limit=size)
    assert (batches(data), aborted(data)) == ([3], [(1, 0)])
    assert aborted(fetch(client, 5)) == []


def test_a_cold_read_is_told_of_them_too(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(harness)
    producer = Producer(harness.store)
    producer.send(partition)
    producer.abort()
    warm = harness.store.read(partition, 0, UNLIMITED, end=2, min_one=True)
    cold = Cold(partition.number, 0, UNLIMITED, 2, True, [])
    waiting: list[Any] = []
    monkeypatch.setattr(harness.store, "read", lambda *args, **named: cold)
    monkeypatch.setattr(harness.store, "read_cold", lambda _, done: waiting.append(done))
    client.send(ask(0), 12)
    waiting.pop()(warm)
    harness.turn()
    data = client.receive().responses[0].partitions[0]
    assert (batches(data), aborted(data)) == ([0, 1], [(5, 0)])
    # What was aborted below the log start is forgotten: such a read is no answer any more.
    client.send(ask(0), 12)
    harness.store.delete_records(partition, 1)
    harness.turn()
    waiting.pop()(warm)
    harness.turn()
    data = client.receive().responses[0].partitions[0]
    assert (data.error_code, batches(data)) == (Error.OFFSET_OUT_OF_RANGE, [])
    monkeypatch.undo()


@pytest.mark.parametrize("deleted", [True, False])
def test_what_is_forgotten_while_another_partition_is_read_is_not_shown(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    """A consumer that is not told of the aborted transaction would take its records for true."""
    partition = partition_of(harness)
    producer = Producer(harness.store)
    producer.send(partition)
    producer.abort()
    slow = partition_of(harness, "slow")
    put(harness, slow)
    read = harness.store.read
    cold = Cold(slow.number, 0, UNLIMITED, 1, True, [])
    waiting: list[Any] = []

    def read_or_wait(asked: Partition, *args: Any, **named: Any) -> Read | Cold:
        return cold if asked is slow else read(asked, *args, **named)

    monkeypatch.setattr(harness.store, "read", read_or_wait)
    monkeypatch.setattr(harness.store, "read_cold", lambda _, done: waiting.append(done))
    request = ask(0)
    request.topics.append(FetchTopic(topic="slow", partitions=request.topics[0].partitions))
    client.send(request, 12)
    if deleted:
        harness.delete_topic("t")
    else:
        harness.store.delete_records(partition, 2)
        harness.store.change([aborted_gone(partition.number, 1)])  # as a sweep does
    harness.turn()
    waiting.pop()(read(slow, 0, UNLIMITED, end=1, min_one=True))
    harness.turn()
    first, second = client.receive().responses
    error = Error.UNKNOWN_TOPIC_OR_PARTITION if deleted else Error.OFFSET_OUT_OF_RANGE
    assert (first.partitions[0].error_code, batches(first.partitions[0])) == (error, [])
    assert batches(second.partitions[0]) == [0]


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("min_bytes", [1, 60])
def test_a_marker_wakes_those_who_wait(
    harness: Harness, client: Client, committed: bool, min_bytes: int
) -> None:
    partition = partition_of(harness)
    producer = Producer(harness.store)
    producer.send(partition)
    client.send(ask(0, max_wait_ms=60_000, min_bytes=min_bytes), 12)
    put(harness, partition)
    assert client.receive() is None, "a batch behind an open transaction is nothing to read"
    producer.end(committed)
    harness.turn()
    data = client.receive().responses[0].partitions[0]
    assert batches(data) == [0, 1, 2]
    assert aborted(data) == ([] if committed else [(5, 0)])


def test_a_marker_that_ends_another_transaction_wakes_nobody(
    harness: Harness, client: Client
) -> None:
    partition = partition_of(harness)
    one, two = Producer(harness.store, 1), Producer(harness.store, 2)
    one.send(partition)
    two.send(partition)
    client.send(ask(0, max_wait_ms=500, min_bytes=1), 12)
    two.end(True)
    harness.turn()
    assert client.receive() is None
    harness.pass_time(500)
    assert batches(client.receive().responses[0].partitions[0]) == []


def test_a_read_gives_its_end(harness: Harness) -> None:
    partition = partition_of(harness)
    for _ in range(3):
        put(harness, partition, 2)
    size = len(make_batch(2))
    read = harness.store.read
    for limit, end in ((size, 2), (2 * size, 4), (UNLIMITED, 6)):
        found = read(partition, 0, limit, end=6, min_one=True)
        assert isinstance(found, Read)
        assert found.end == end
    assert read(partition, 6, size, end=6, min_one=True) == Read([], 0, 0)


# ------------------------------------------------------------------------------------ list offsets


def offset_at(client: Client, timestamp: int, isolation_level: int) -> tuple[int, int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=[asked])],
    )
    found: ListOffsetsPartitionResponse = client.call(request, 7).topics[0].partitions[0]
    return found.error_code, found.offset, found.timestamp


def test_offsets_of_what_is_committed(harness: Harness, client: Client) -> None:
    partition = partition_of(harness)
    put(harness, partition, 2)
    producer = Producer(harness.store)
    producer.send(partition)  # of 1000 ms, long before
    put(harness, partition, 2)
    assert offset_at(client, -1, 0) == (0, 5, -1)
    assert offset_at(client, -1, 1) == (0, 2, -1)
    assert offset_at(client, -2, 1) == (0, 0, -1)
    first = offset_at(client, 0, 0)
    assert offset_at(client, 0, 1) == first == (0, 0, first[2])
    harness.store.delete_records(partition, 2)
    harness.turn()
    # The first there is now, and the one with the largest time, lie behind the last stable offset.
    assert offset_at(client, 0, 0)[1] == 2
    assert offset_at(client, -3, 0)[1] >= 3
    assert offset_at(client, 0, 1) == offset_at(client, -3, 1) == (0, -1, -1)
    producer.commit()
    assert offset_at(client, -1, 1) == (0, 6, -1)
    assert offset_at(client, 0, 1)[1] == 2


# ------------------------------------------------------------------------------ describe producers


def describe(client: Client, name: str, *indexes: int) -> Any:
    topics = [TopicRequest(name=name, partition_indexes=list(indexes))]
    (topic,) = client.call(DescribeProducersRequest(topics=topics), 0).topics
    assert topic.name == name
    return topic.partitions


def test_producers_are_described(harness: Harness, client: Client) -> None:
    partition = partition_of(harness)
    assert describe(client, "t", 0)[0].active_producers == []
    producer = Producer(harness.store, 9)
    producer.send(partition, 2)
    assert describe(client, "t", 0)[0].active_producers == [
        ProducerState(
            producer_id=9,
            producer_epoch=0,
            last_sequence=1,
            last_timestamp=1001,
            coordinator_epoch=-1,
            current_txn_start_offset=0,
        )
    ]
    producer.end(True, now_ms=START_MS, version=2)
    (waiting,) = describe(client, "t", 0)[0].active_producers
    assert waiting.current_txn_start_offset == 0, "the marker waits for its commit"
    (ended,) = describe(client, "t", 0)[0].active_producers
    assert (ended.producer_epoch, ended.last_sequence) == (1, -1)
    assert (ended.last_timestamp, ended.coordinator_epoch) == (START_MS, 0)
    assert ended.current_txn_start_offset == -1


def test_producers_of_what_is_not_there(harness: Harness, client: Client) -> None:
    partition_of(harness)
    unknown, wrong = Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_TOPIC_EXCEPTION
    assert [one.error_code for one in describe(client, "t", 0, 1, -1)] == [0, unknown, unknown]
    assert describe(client, "none", 0)[0].error_code == unknown
    assert describe(client, "a/b", 0)[0].error_code == wrong
