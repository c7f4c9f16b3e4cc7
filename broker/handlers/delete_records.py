"""DeleteRecords: partitions begin later. Versions 0 to 2; 2 is flexible.

An offset of -1 means the high watermark: all there is. The low watermark answered is the first
offset there is now, which may be above the one asked for: a log never begins earlier again.
timeout_ms is about other replicas and has nothing to bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context, Parked
from ottla.broker.dispatch import as_kafka_error
from ottla.broker.partitions import by_name
from ottla.broker.slices import answer_in_slices, reply_in_slices
from ottla.log.partition import Partition
from ottla.log.tickets import Ticket
from ottla.wire.api.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

HIGH_WATERMARK = -1


def handle(ctx: Context, request: DeleteRecordsRequest) -> Message | Parked:
    topics = Rows(DeleteRecordsResponse, "topics", ctx.header.api_version)
    deleted: list[tuple[str, list[_Deleted]]] = []
    last: Ticket | None = None

    def delete() -> Iterator[None]:
        nonlocal last
        for name, partitions in (yield from by_name(request.topics)).items():
            mine: list[_Deleted] = []
            deleted.append((name, mine))
            for index, asked in partitions.items():
                # A partition named twice counts once, as it was named last; Kafka keeps them in a
                # map.
                mine.append(_delete(ctx, name, index, asked[-1].offset))
                last = mine[-1].ticket or last
                yield

    def tell() -> Iterator[None]:
        for name, mine in deleted:
            answers = (_answer(ctx, one) for one in mine)
            yield from topics.add_of(DeleteRecordsTopicResult(name=name), "partitions", answers)

    def told() -> Encoded:
        return Encoded(topics.within(DeleteRecordsResponse()))

    def finish() -> Message | Parked:
        if last is None:
            return answer_in_slices(ctx, tell(), told)
        # Commits end in the order in which they were admitted: the last one's ticket is done last.
        ctx.park()
        last.then(lambda _: reply_in_slices(ctx, tell(), told))
        return ctx

    return answer_in_slices(ctx, delete(), finish)


class _Deleted(NamedTuple):
    """What came of one partition so far."""

    partition_index: int
    partition: Partition | None
    ticket: Ticket | None
    error: Error


def _answer(ctx: Context, one: _Deleted) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(
        partition_index=one.partition_index, low_watermark=-1, error_code=one.error
    )
    if one.ticket is not None and one.ticket.error is not None:
        answer.error_code = as_kafka_error(ctx, one.ticket.error).error
    elif one.partition is not None:
        answer.low_watermark = one.partition.log_start_offset
    return answer


def _delete(ctx: Context, name: str, index: int, offset: int) -> _Deleted:
    try:
        partition = _deletable(ctx, name, index, offset)
        ticket = ctx.broker.store.delete_records(partition, offset)
    except Exception as error:
        return _Deleted(index, None, None, as_kafka_error(ctx, error).error)
    return _Deleted(index, partition, ticket, Error.NONE)


def _deletable(ctx: Context, name: str, index: int, offset: int) -> Partition:
    """Raises KafkaError where records of it may not be deleted."""
    partition = ctx.broker.topics.partition(name, index)
    found = ctx.broker.topics.get(name)
    assert found is not None
    if found.is_internal:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION)
    if not found.config.expires:
        raise KafkaError(Error.POLICY_VIOLATION, "cleanup.policy does not hold delete")
    if offset < HIGH_WATERMARK:
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
    return partition


def on_error(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=partition.partition_index,
                        low_watermark=-1,
                        error_code=error.error,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
    handle=handle,
    on_error=on_error,
)
