"""AlterPartitionReassignments v0-1 (KIP-455): there is one node to hold a partition, so the only
move that can be asked for is the one that changes nothing, and none is ever under way that could be
stopped. v1 asks that the number of replicas stays (KIP-860), which it always does.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context
from ottla.broker.deadlines import check_timeout
from ottla.broker.metadata import Topic
from ottla.broker.placement import check_replicas
from ottla.broker.slices import answer_in_slices
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message


def handle(ctx: Context, request: AlterPartitionReassignmentsRequest) -> Message | Context:
    head = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
    )
    try:
        if request.topics:
            check_timeout(request.timeout_ms)
    except KafkaError as late:
        head.error_code = late.error
    topics = Rows(AlterPartitionReassignmentsResponse, "responses", ctx.header.api_version)

    def judge() -> Iterator[None]:
        for asked in request.topics:
            topic = ctx.broker.topics.get(asked.name)
            partitions = topics.inner("partitions")
            for one in asked.partitions:
                answer = ReassignablePartitionResponse(
                    partition_index=one.partition_index,
                    error_code=head.error_code,
                    error_message=None,
                )
                if not head.error_code:
                    _judge(ctx, topic, one, answer)
                partitions.add(answer)
                yield
            topics.add_with(ReassignableTopicResponse(name=asked.name), partitions)
            yield

    def finish() -> Encoded:
        return Encoded(topics.within(head))

    return answer_in_slices(ctx, judge(), finish)


def _judge(
    ctx: Context,
    topic: Topic | None,
    asked: ReassignablePartition,
    answer: ReassignablePartitionResponse,
) -> None:
    try:
        if topic is None or not 0 <= asked.partition_index < len(topic.partitions):
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        if asked.replicas is None:
            raise KafkaError(Error.NO_REASSIGNMENT_IN_PROGRESS)
        check_replicas(ctx.broker.node_id, asked.replicas)
    except KafkaError as error:
        answer.error_code, answer.error_message = error.error, error.message


def on_error(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=error.error, error_message=error.message)


API = Api(
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
    handle=handle,
    on_error=on_error,
)
