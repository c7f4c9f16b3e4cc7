"""Arrays written as their elements come: the same bytes as a list of objects."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.wire.api.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.wire.api.list_transactions import ListTransactionsResponse, TransactionState
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.compile import encode
from ottla.wire.rows import CHUNK, Rows


@pytest.mark.parametrize("count", [0, 1, 126, 127, CHUNK - 1, CHUNK, CHUNK + 1, 1000])
def test_rows_are_the_same_bytes_as_a_list(count: int) -> None:
    states = [
        TransactionState(transactional_id=f"x{n}", producer_id=n, transaction_state="Empty")
        for n in range(count)
    ]
    rows = Rows(ListTransactionsResponse, "transaction_states", 2)
    for state in states:
        rows.add(state)
    whole = ListTransactionsResponse(unknown_state_filters=["?"], transaction_states=states)
    head = ListTransactionsResponse(unknown_state_filters=["?"])
    assert b"".join(rows.within(head)) == b"".join(encode(whole, 2))


def test_rows_within_rows_are_the_same_bytes_as_lists() -> None:
    counts = (0, 1, 300, 0)
    outer, partitions = Rows(DescribeProducersResponse, "topics", 0), []
    for number in range(2):
        middle = outer.inner("partitions")
        partitions = []
        for index, count in enumerate(counts):
            states = [ProducerState(producer_id=n, producer_epoch=number) for n in range(count)]
            inner = middle.inner("active_producers")
            for state in states:
                inner.add(state)
            middle.add_with(PartitionResponse(partition_index=index), inner)
            partitions.append(PartitionResponse(partition_index=index, active_producers=states))
        if number:
            outer.add_with(TopicResponse(name="t1"), middle)
        else:
            outer.add(TopicResponse(name="t0"))
    topics = [TopicResponse(name="t0"), TopicResponse(name="t1", partitions=partitions)]
    whole = b"".join(encode(DescribeProducersResponse(topics=topics), 0))
    assert b"".join(outer.within(DescribeProducersResponse())) == whole


def _topics(topics: int, partitions: int) -> list[Any]:
    return [
        MetadataResponseTopic(
            name=f"t{number}",
            is_internal=number == 1,
            topic_authorized_operations=number,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1, 2]
                )
                for index in range(partitions)
            ],
        )
        for number in range(topics)
    ]


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize(
    ("topics", "partitions"),
    [(0, 0), (1, 1), (500, 3), (2, CHUNK - 1), (2, CHUNK), (3, 2 * CHUNK + 50)],
)
def test_an_array_in_the_middle_in_every_version(
    version: int, topics: int, partitions: int
) -> None:
    operations = 7 if 8 <= version <= 10 else -(1 << 31)
    head: dict[str, Any] = {
        "brokers": [MetadataResponseBroker(host="h")],
        "cluster_id": "c",
        "cluster_authorized_operations": operations,
    }
    made = _topics(topics, partitions)
    if version < 8:
        for topic in made:
            topic.topic_authorized_operations = -(1 << 31)
    whole = b"".join(encode(MetadataResponse(topics=made, **head), version))
    rows = Rows(MetadataResponse, "topics", version)
    for topic in made:
        parts, topic.partitions = topic.partitions, []
        for _ in rows.add_of(topic, "partitions", parts):
            pass
    assert b"".join(rows.within(MetadataResponse(**head))) == whole


def test_the_same_elements_in_many_rows() -> None:
    rows = Rows(MetadataResponse, "topics", 12)
    shared = rows.inner("partitions")
    for partition in _topics(1, CHUNK + 1)[0].partitions:
        shared.add(partition)
    for topic in _topics(3, 0):
        rows.add_with(topic, shared)
    whole = b"".join(encode(MetadataResponse(topics=_topics(3, CHUNK + 1)), 12))
    assert b"".join(rows.within(MetadataResponse())) == whole


def test_a_row_with_few_parts_is_written_with_others() -> None:
    rows = Rows(MetadataResponse, "topics", 12)
    steps = [step for topic in _topics(10, 0) for step in rows.add_of(topic, "partitions", "")]
    assert len(steps) == 10
    assert len(rows.within(MetadataResponse())) == 3
