"""DescribeProducers v0: who writes to a partition with a producer id, and since which offset each
has a transaction open there (KIP-664). It is how a hanging transaction is found.

What is told is committed: a transaction whose marker waits for its flush is still open.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context
from ottla.broker.partitions import find
from ottla.broker.slices import answer_in_slices
from ottla.broker.topic_names import check_name
from ottla.wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message


def handle(ctx: Context, request: DescribeProducersRequest) -> Message | Context:
    topics = Rows(DescribeProducersResponse, "topics", ctx.header.api_version)

    def look() -> Iterator[None]:
        # A partition named again is described once: a small request must not ask for the same a
        # thousand times.
        seen = set[int]()
        for topic in request.topics:
            partitions = topics.inner("partitions")
            for index in topic.partition_indexes:
                yield from _describe(ctx, topic.name, index, partitions, seen)
            topics.add_with(TopicResponse(name=topic.name), partitions)
            yield

    def finish() -> Encoded:
        return Encoded(topics.within(DescribeProducersResponse()))

    return answer_in_slices(ctx, look(), finish)


def _describe(ctx: Context, name: str, index: int, into: Rows, seen: set[int]) -> Iterator[None]:
    """Steps that add the answer about one partition that is not among those `seen`."""
    answer = PartitionResponse(partition_index=index)
    try:
        check_name(name)
        if ctx.broker.topics.get(name) is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
        partition = find(ctx.broker, name, index)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.error, error.message
        into.add(answer)
        yield
        return
    yield
    if partition.number in seen:
        return
    seen.add(partition.number)
    states = (
        ProducerState(
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.current_txn_start_offset,
        )
        for state in ctx.broker.store.producers_of(partition)
    )
    yield from into.add_of(answer, "active_producers", states)


def on_error(request: DescribeProducersRequest, error: KafkaError) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(
                        partition_index=index, error_code=error.error, error_message=error.message
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
    handle=handle,
    on_error=on_error,
)
