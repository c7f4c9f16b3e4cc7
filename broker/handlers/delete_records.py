"""DeleteRecords: partitions begin later. Versions 0 to 2; 2 is flexible.

An offset of -1 means the high watermark: all there is. The low watermark answered is the first
offset there is now, which may be above the one asked for: a log never begins earlier again.
timeout_ms is about other replicas and has nothing to bound.
"""

from __future__ import annotations

from ottla.broker.context import Api, Context, Parked
from ottla.broker.dispatch import as_kafka_error
from ottla.log.partition import Partition
from ottla.log.tickets import Ticket
from ottla.wire.api.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.wire.errors import Error, KafkaError

HIGH_WATERMARK = -1


def handle(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse | Parked:
    admitted: list[tuple[Partition, DeleteRecordsPartitionResult, Ticket]] = []
    response = DeleteRecordsResponse()
    # A partition named twice counts once, as it was named last; Kafka keeps them in a map.
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = {p.partition_index: p.offset for p in topic.partitions}
        wanted.setdefault(topic.name, {}).update(offsets)
    for name, asked in wanted.items():
        results = []
        for index, offset in asked.items():
            result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
            results.append(result)
            try:
                partition, ticket = _delete(ctx, name, index, offset)
            except Exception as error:
                result.error_code = as_kafka_error(ctx, error).error
            else:
                admitted.append((partition, result, ticket))
        response.topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    if not admitted:
        return response

    def committed(_: Ticket) -> DeleteRecordsResponse:
        for partition, result, ticket in admitted:
            if ticket.error is not None:
                result.error_code = as_kafka_error(ctx, ticket.error).error
            else:
                result.low_watermark = partition.log_start_offset
        return response

    # Commits end in the order in which they were admitted: the last one's ticket is done last.
    return ctx.after(admitted[-1][2], committed)


def _delete(ctx: Context, name: str, index: int, offset: int) -> tuple[Partition, Ticket]:
    found = ctx.broker.topics.get(name)
    partition = ctx.broker.topics.partition(name, index)
    assert found is not None
    if found.is_internal:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION)
    if not found.config.expires:
        raise KafkaError(Error.POLICY_VIOLATION, "cleanup.policy does not hold delete")
    if offset < HIGH_WATERMARK:
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
    return partition, ctx.broker.store.delete_records(partition, offset)


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
