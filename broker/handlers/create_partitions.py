"""CreatePartitions v0-3: more partitions for a topic. v2 flexible; v3 may be throttled."""

from __future__ import annotations

from collections import Counter

from ottla.broker.context import Api, Context, Parked
from ottla.broker.deadlines import check_timeout
from ottla.broker.placement import MAX_PARTITIONS_PER_REQUEST, check_replicas
from ottla.log.tickets import Ticket
from ottla.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.errors import Error, KafkaError


def handle(ctx: Context, request: CreatePartitionsRequest) -> Parked:
    repeats = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    ticket: Ticket | None = None
    for topic in request.topics:
        result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        try:
            if repeats[topic.name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "the request names this topic twice")
            check_timeout(request.timeout_ms)
            _check(ctx, topic)
        except KafkaError as error:
            result.error_code, result.error_message = error.error, error.message
        else:
            if not request.validate_only:
                ticket = ctx.broker.topics.add_partitions(topic.name, topic.count)
    response = CreatePartitionsResponse(results=list(results.values()))
    return ctx.after(ticket or ctx.broker.topics.settled(), lambda _: response)


def _check(ctx: Context, wanted: CreatePartitionsTopic) -> None:
    topic = ctx.broker.topics.admitted(wanted.name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    more = wanted.count - len(topic.partitions)
    if more == 0:
        raise KafkaError(
            Error.INVALID_PARTITIONS, f"the number of partitions is {wanted.count} already"
        )
    if more < 0:
        raise KafkaError(
            Error.INVALID_PARTITIONS,
            f"the topic has {len(topic.partitions)} partitions; {wanted.count} would be fewer",
        )
    if more > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            Error.INVALID_PARTITIONS,
            f"one request makes at most {MAX_PARTITIONS_PER_REQUEST} partitions",
        )
    if wanted.assignments is None:
        return
    if len(wanted.assignments) != more:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partitions are to be added, but {len(wanted.assignments)} are assigned",
        )
    for assignment in wanted.assignments:
        check_replicas(ctx.broker.node_id, assignment.broker_ids)


def on_error(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=topic.name, error_code=error.error, error_message=error.message
            )
            for topic in request.topics
        ]
    )


API = Api(
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    handle=handle,
    on_error=on_error,
)
