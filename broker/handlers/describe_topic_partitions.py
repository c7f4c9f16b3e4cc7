"""DescribeTopicPartitions v0 (KIP-966): topics and partitions in pages; kafka-topics --describe.

Topics come in the order of their names. A page ends at response_partition_limit partitions or at
max.request.partition.size.limit, whichever is less, and its cursor names the first one left out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Broker, Context, Parked
from ottla.broker.metadata import Topic
from ottla.broker.operations import TOPIC_OPERATIONS
from ottla.broker.partitions import view
from ottla.broker.slices import answer_in_slices, in_order
from ottla.broker.topic_names import check_name
from ottla.wire.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message


def handle(ctx: Context, request: DescribeTopicPartitionsRequest) -> Message | Parked:
    response = DescribeTopicPartitionsResponse()
    topics = Rows(DescribeTopicPartitionsResponse, "topics", ctx.header.api_version)

    def finish() -> Encoded:
        return Encoded(topics.within(response))

    return answer_in_slices(ctx, _look(ctx.broker, request, response, topics), finish)


def _look(
    broker: Broker,
    request: DescribeTopicPartitionsRequest,
    response: DescribeTopicPartitionsResponse,
    into: Rows,
) -> Iterator[None]:
    """Steps that make one page."""
    cursor = request.cursor
    limit = min(broker.config.max_request_partition_size_limit, request.response_partition_limit)
    left = max(limit, 1)  # a page is never empty, or nobody would get to the end
    for name in (yield from _names(broker, request)):
        if left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            return
        topic = broker.topics.get(name)
        if topic is None:
            into.add(_unknown(name))
            yield
            continue
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        last = min(len(topic.partitions), first + left)
        yield from _describe(broker, topic, range(first, last), into)
        left -= max(last - first, 0)
        if last < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=last)
            return


def _names(
    broker: Broker, request: DescribeTopicPartitionsRequest
) -> Generator[None, None, Iterable[str]]:
    """Steps, and the topics that the page may begin with and go on to."""
    cursor = request.cursor
    start = cursor.topic_name if cursor else ""
    if cursor and cursor.partition_index < 0:
        raise KafkaError(Error.INVALID_REQUEST, "the cursor's partition is negative")
    if not request.topics:
        return (topic.name for topic in broker.topics.from_name(start))
    names = set()
    for topic in request.topics:
        if topic.name >= start:
            names.add(topic.name)
        yield
    if cursor and start not in names:
        raise KafkaError(
            Error.INVALID_REQUEST, f"the cursor's topic {start} is not among the topics asked for"
        )
    return (yield from in_order(names))


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = Error.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as refused:
        error = refused.error
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _describe(broker: Broker, topic: Topic, indexes: Iterable[int], into: Rows) -> Iterator[None]:
    node = [broker.node_id]
    views = ((index, view(broker, topic.partitions[index])) for index in indexes)
    described = DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
    partitions = (
        DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=broker.node_id,
            leader_epoch=0 if partition is None else partition.leader_epoch,
            replica_nodes=node,
            isr_nodes=node,
            eligible_leader_replicas=[],
            last_known_elr=[],
        )
        for index, partition in views
    )
    return into.add_of(described, "partitions", partitions)


def on_error(
    request: DescribeTopicPartitionsRequest, error: KafkaError
) -> DescribeTopicPartitionsResponse:
    # the message has no error of its own: Kafka answers it with every topic asked for
    asked: list[TopicRequest] = request.topics
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error.error, name=topic.name)
            for topic in asked
        ]
    )


API = Api(
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
    handle=handle,
    on_error=on_error,
)
