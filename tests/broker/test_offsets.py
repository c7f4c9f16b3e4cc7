"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId. Expected values are what Apache
Kafka 4.3.1 answered to the same requests."""

from __future__ import annotations

import pytest
from tests.broker.harness import Client, Harness, make_batch

from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import Error


def produce(client: Client, count: int, timestamp: int = 1000, partition: int = 0) -> None:
    batch = make_batch(count, timestamp=timestamp)
    data = PartitionProduceData(index=partition, records=batch)
    topic = TopicProduceData(name="t", partition_data=[data])
    client.call(ProduceRequest(acks=1, topic_data=[topic]), 9)


def look(
    client: Client,
    *timestamps: int,
    version: int = 11,
    topic: str = "t",
    partition: int = 0,
    epoch: int = -1,
    isolation_level: int = 0,
) -> list[ListOffsetsPartitionResponse]:
    found = []
    for timestamp in timestamps:
        asked = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
        )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
        )
        found += client.call(request, version).topics[0].partitions
    return found


Row = tuple[int, int, int, int]


def rows(answers: list[ListOffsetsPartitionResponse]) -> list[Row]:
    return [(a.error_code, a.offset, a.timestamp, a.leader_epoch) for a in answers]


@pytest.mark.parametrize("version", range(1, 12))
def test_trap_33_special_timestamps(harness: Harness, client: Client, version: int) -> None:
    harness.topic("t")
    produce(client, 3)
    produce(client, 3)
    epoch = 0 if version >= 4 else -1
    unknown = (Error.UNSUPPORTED_VERSION, -1, -1, -1)
    none = (0, -1, -1, -1)
    expected: list[Row] = [
        (0, 6, -1, epoch),
        (0, 0, -1, epoch),
        (0, 2, 1002, epoch) if version >= 7 else unknown,
        (0, 0, -1, epoch) if version >= 8 else unknown,
        none if version >= 9 else unknown,
        none if version >= 11 else unknown,
        unknown,
        (0, 0, 1000, epoch),
        (0, 1, 1001, epoch),
        none,
    ]
    asked = (-1, -2, -3, -4, -5, -6, -7, 0, 1001, 5000)
    assert rows(look(client, *asked, version=version)) == expected


def test_trap_33_a_record_inside_a_batch_is_found(harness: Harness, client: Client) -> None:
    harness.topic("t")
    produce(client, 100, timestamp=1000)
    assert rows(look(client, 1042)) == [(0, 42, 1042, 0)]


def test_an_empty_partition_has_no_largest_timestamp(harness: Harness, client: Client) -> None:
    harness.topic("t")
    assert rows(look(client, -3, 5)) == [(0, -1, -1, -1)] * 2
    assert rows(look(client, -1, -2, isolation_level=1)) == [(0, 0, -1, 0)] * 2


@pytest.mark.parametrize(
    ("topic", "partition", "epoch", "error"),
    [
        ("nope", 0, -1, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 9, -1, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, 5, Error.UNKNOWN_LEADER_EPOCH),
        ("t", 0, -2, Error.FENCED_LEADER_EPOCH),
        ("t", 0, 0, 0),
    ],
)
def test_errors_are_those_of_the_partition(
    harness: Harness, client: Client, topic: str, partition: int, epoch: int, error: int
) -> None:
    harness.topic("t")
    (answer,) = look(client, -1, topic=topic, partition=partition, epoch=epoch)
    assert answer.error_code == error


def test_a_partition_asked_for_twice_is_refused_once(harness: Harness, client: Client) -> None:
    harness.topic("t", 2)
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 0, 1)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)])
    answers = client.call(request, 9).topics[0].partitions
    assert [(a.partition_index, a.error_code) for a in answers] == [(0, 42), (1, 0)]


@pytest.mark.parametrize(
    ("partition", "current", "epoch", "expected"),
    [
        (0, -1, 0, (0, 0, 3)),
        (0, 0, 0, (0, 0, 3)),
        (0, 0, 1, (0, -1, -1)),
        (0, 0, -1, (0, -1, -1)),
        (0, 0, 99, (0, -1, -1)),
        (0, 1, 0, (Error.UNKNOWN_LEADER_EPOCH, -1, -1)),
        (0, -2, 0, (Error.FENCED_LEADER_EPOCH, -1, -1)),
        (9, 0, 0, (Error.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)),
    ],
)
def test_offset_for_leader_epoch(
    harness: Harness,
    client: Client,
    partition: int,
    current: int,
    epoch: int,
    expected: tuple[int, int, int],
) -> None:
    harness.topic("t")
    produce(client, 3)
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    topic = OffsetForLeaderTopic(topic="t", partitions=[asked])
    for version in (2, 3, 4):
        answer = client.call(OffsetForLeaderEpochRequest(topics=[topic]), version)
        (found,) = answer.topics[0].partitions
        assert (found.error_code, found.leader_epoch, found.end_offset) == expected


def delete(
    client: Client, *offsets: tuple[int, int], version: int = 2
) -> list[tuple[int, int, int]]:
    asked = [DeleteRecordsPartition(partition_index=i, offset=offset) for i, offset in offsets]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=asked)])
    answers = client.call(request, version).topics[0].partitions
    return [(a.partition_index, a.low_watermark, a.error_code) for a in answers]


def test_delete_records_moves_the_log_start_and_never_back(
    harness: Harness, client: Client
) -> None:
    harness.topic("t", 2)
    produce(client, 6)
    assert delete(client, (0, 2)) == [(0, 2, 0)]
    assert delete(client, (0, 1)) == [(0, 2, 0)]
    assert delete(client, (0, 7), (1, 0)) == [(0, -1, Error.OFFSET_OUT_OF_RANGE), (1, 0, 0)]
    assert delete(client, (0, -2)) == [(0, -1, Error.OFFSET_OUT_OF_RANGE)]
    assert delete(client, (9, 0)) == [(9, -1, Error.UNKNOWN_TOPIC_OR_PARTITION)]
    assert rows(look(client, -2)) == [(0, 2, -1, 0)]
    assert delete(client, (0, 3), (0, 4)) == [(0, 4, 0)], "as it was named last"
    for version in (0, 1):
        assert delete(client, (0, -1), version=version) == [(0, 6, 0)]
    assert rows(look(client, -1, -2)) == [(0, 6, -1, 0), (0, 6, -1, 0)]


def test_delete_records_of_a_compacted_topic_is_refused(harness: Harness, client: Client) -> None:
    harness.topic("t", cleanup_policy="compact")
    assert delete(client, (0, -1)) == [(0, -1, Error.POLICY_VIOLATION)]


def test_producer_ids_are_given_out_once(harness: Harness, client: Client) -> None:
    ids = [
        client.call(InitProducerIdRequest(transactional_id=None), version) for version in range(6)
    ]
    assert [(a.error_code, a.producer_epoch) for a in ids] == [(0, 0)] * 6
    assert len({a.producer_id for a in ids}) == 6
    again = InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=1)
    assert client.call(again, 5).producer_id not in {a.producer_id for a in ids}


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducerIdRequest(transactional_id=""), Error.INVALID_REQUEST),
        (InitProducerIdRequest(transactional_id=None, producer_id=5), Error.INVALID_REQUEST),
        (InitProducerIdRequest(transactional_id=None, producer_epoch=5), Error.INVALID_REQUEST),
        (
            InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=0),
            Error.INVALID_TRANSACTION_TIMEOUT,
        ),
        (
            InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=900_001),
            Error.INVALID_TRANSACTION_TIMEOUT,
        ),
    ],
)
def test_what_gets_no_producer_id(
    client: Client, request_: InitProducerIdRequest, error: Error
) -> None:
    answer = client.call(request_, 4)
    assert (answer.error_code, answer.producer_id) == (error, -1)
