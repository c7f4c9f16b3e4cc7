"""ElectLeaders v0-2: each partition has one replica, which leads, so no election is ever needed. v1
elections of replicas that are not in sync (KIP-460); v2 flexible.

Asked for all partitions, Kafka leaves out those that need no election: every topic is answered
without any. kafka-leader-election prints what was named as elected already.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context
from ottla.broker.deadlines import timed_out
from ottla.broker.slices import answer_in_slices
from ottla.wire.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

PREFERRED, UNCLEAN = 0, 1


def handle(ctx: Context, request: ElectLeadersRequest) -> Message | Context:
    refusal = _refusal(request)
    results = Rows(ElectLeadersResponse, "replica_election_results", ctx.header.api_version)

    def elect() -> Iterator[None]:
        for asked in _asked(ctx, request, refusal):
            partitions = results.inner("partition_result")
            topic = ctx.broker.topics.get(asked.topic)
            count = 0 if topic is None else len(topic.partitions)
            for index in asked.partitions:
                error = refusal
                if error is Error.NONE:
                    known = 0 <= index < count
                    error = Error.ELECTION_NOT_NEEDED if known else Error.UNKNOWN_TOPIC_OR_PARTITION
                partitions.add(
                    PartitionResult(partition_id=index, error_code=error, error_message=None)
                )
                yield
            results.add_with(ReplicaElectionResult(topic=asked.topic), partitions)
            yield

    def finish() -> Encoded:
        version = ctx.header.api_version
        head = ElectLeadersResponse(error_code=refusal if version > 0 else Error.NONE)
        return Encoded(results.within(head))

    return answer_in_slices(ctx, elect(), finish)


def _refusal(request: ElectLeadersRequest) -> Error:
    """What is wrong with the request as a whole."""
    if request.topic_partitions == []:
        return Error.NONE
    if timed_out(request.timeout_ms):
        return Error.REQUEST_TIMED_OUT
    if request.election_type not in (PREFERRED, UNCLEAN):
        return Error.INVALID_REQUEST
    return Error.NONE


def _asked(ctx: Context, request: ElectLeadersRequest, refusal: Error) -> Iterator[TopicPartitions]:
    if request.topic_partitions is not None:
        return iter(request.topic_partitions)
    if refusal is not Error.NONE:
        return iter(())
    names = [topic.name for topic in ctx.broker.topics]
    return (TopicPartitions(topic=name) for name in names)


def on_error(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    # no error of its own: version 0 has no field for it
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    PartitionResult(
                        partition_id=index, error_code=error.error, error_message=error.message
                    )
                    for index in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ],
    )


API = Api(
    request=ElectLeadersRequest, response=ElectLeadersResponse, handle=handle, on_error=on_error
)
