"""DescribeTopicPartitions v0 (KIP-966): topics and partitions in pages; kafka-topics --describe.

Topics come in the order of their names. A page ends at response_partition_limit partitions or at
max.request.partition.size.limit, whichever is less, and its cursor names the first one left out.
"""

from __future__ import annotations

from ottla.broker.context import Api, Broker, Context
from ottla.broker.metadata import Topic, check_name
from ottla.broker.operations import TOPIC_OPERATIONS
from ottla.wire.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.wire.errors import Error, KafkaError


def handle(
    ctx: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    broker, cursor = ctx.broker, request.cursor
    names = _names(broker, request)
    limit = min(broker.config.max_request_partition_size_limit, request.response_partition_limit)
    left = max(limit, 1)  # a page is never empty, or nobody would get to the end
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if left <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = broker.topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name))
            continue
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        answer = _described(broker, topic, first, left)
        response.topics.append(answer)
        left -= len(answer.partitions)
        end = first + len(answer.partitions)
        if end < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _names(broker: Broker, request: DescribeTopicPartitionsRequest) -> list[str]:
    cursor = request.cursor
    start = cursor.topic_name if cursor else ""
    if cursor and cursor.partition_index < 0:
        raise KafkaError(Error.INVALID_REQUEST, "the cursor's partition is negative")
    if not request.topics:
        return [topic.name for topic in broker.topics if topic.name >= start]
    names = sorted({topic.name for topic in request.topics if topic.name >= start})
    if cursor and start not in names:
        raise KafkaError(
            Error.INVALID_REQUEST, f"the cursor's topic {start} is not among the topics asked for"
        )
    return names


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = Error.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as refused:
        error = refused.error
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _described(
    broker: Broker, topic: Topic, first: int, limit: int
) -> DescribeTopicPartitionsResponseTopic:
    node = broker.node_id
    last = min(len(topic.partitions), first + limit)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=node,
                leader_epoch=broker.store.partition(topic.partitions[index]).leader_epoch,
                replica_nodes=[node],
                isr_nodes=[node],
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for index in range(first, last)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


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
