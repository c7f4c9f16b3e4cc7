"""CreatePartitions v0-3: more partitions for a topic. v2 flexible; v3 may be throttled."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context, Parked
from ottla.broker.deadlines import check_timeout
from ottla.broker.metadata import Topic
from ottla.broker.placement import MAX_PARTITIONS_PER_REQUEST, check_replicas
from ottla.broker.slices import answer_in_slices, reply_in_slices_after
from ottla.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

_TWICE = KafkaError(Error.INVALID_REQUEST, "the request names this topic twice")
_MANY = KafkaError(
    Error.INVALID_PARTITIONS,
    f"one request makes at most {MAX_PARTITIONS_PER_REQUEST} partitions",
)


def handle(ctx: Context, request: CreatePartitionsRequest) -> Message | Parked:
    results: dict[str, CreatePartitionsTopicResult] = {}
    prepared = ctx.broker.topics.prepare()
    rows = Rows(CreatePartitionsResponse, "results", ctx.header.api_version)

    def prepare() -> Iterator[None]:
        nonlocal prepared
        repeats: dict[str, int] = {}
        for topic in request.topics:
            repeats[topic.name] = repeats.get(topic.name, 0) + 1
            yield
        while True:
            prepared = ctx.broker.topics.prepare()
            left = MAX_PARTITIONS_PER_REQUEST
            for topic in request.topics:
                result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
                try:
                    if repeats[topic.name] > 1:
                        raise _TWICE
                    check_timeout(request.timeout_ms)
                    found = _found(ctx, topic)
                    left -= topic.count - len(found.partitions)
                    if left < 0:
                        raise _MANY
                except KafkaError as error:
                    result.error_code, result.error_message = error.error, error.message
                else:
                    if not request.validate_only:
                        yield from prepared.grow(found, topic.count)
                yield
            if prepared.stands():
                return

    def tell() -> Iterator[None]:
        for result in results.values():
            rows.add(result)
            yield

    def finish() -> Parked:
        topics = ctx.broker.topics
        ticket = topics.admit(prepared) if prepared.topics else topics.settled()
        return reply_in_slices_after(
            ticket, ctx, tell(), lambda: Encoded(rows.within(CreatePartitionsResponse()))
        )

    return answer_in_slices(ctx, prepare(), finish)


def _found(ctx: Context, wanted: CreatePartitionsTopic) -> Topic:
    """The topic, if it may have so many. Raises KafkaError."""
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
        raise _MANY
    if wanted.assignments is None:
        return topic
    if len(wanted.assignments) != more:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"{more} partitions are to be added, but {len(wanted.assignments)} are assigned",
        )
    for assignment in wanted.assignments:
        check_replicas(ctx.broker.node_id, assignment.broker_ids)
    return topic


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
