"""WriteTxnMarkers: end a transaction in partitions, past its coordinator. Versions 1 and 2.

    1   flexible
    2   the transaction version, by which a late marker is told from one that is due (KIP-1228)

Brokers of Kafka tell each other so; here only an administrator does, to abort what hangs
(Admin.abortTransaction, KIP-664). The coordinator is not asked and not told. Each marker is
written by itself: none waits for the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.context import Api, Context, Parked
from ottla.broker.dispatch import as_kafka_error
from ottla.broker.slices import answer_in_slices
from ottla.log.tickets import Ticket
from ottla.log.transactions import Marker
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.schema import Message

#: The id, or the epoch, of no producer at all.
NOBODY = -1


def handle(ctx: Context, request: WriteTxnMarkersRequest) -> Message | Parked:
    admitted: list[tuple[Ticket, WritableTxnMarkerPartitionResult]] = []
    response = WriteTxnMarkersResponse()

    def write() -> Iterator[None]:
        for marker in request.markers:
            result = WritableTxnMarkerResult(producer_id=marker.producer_id)
            response.markers.append(result)
            for topic in marker.topics:
                partitions: list[WritableTxnMarkerPartitionResult] = []
                result.topics.append(
                    WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions)
                )
                for index in topic.partition_indexes:
                    partitions.append(_write(ctx, marker, topic.name, index, admitted))
                    yield

    def finish() -> Message | Parked:
        # Commits end in the order in which they were admitted: the last one's is done last.
        return ctx.after(admitted[-1][0], committed) if admitted else response

    def committed(_: Ticket) -> WriteTxnMarkersResponse:
        for ticket, result in admitted:
            if ticket.error is not None:
                result.error_code = as_kafka_error(ctx, ticket.error).error
        return response

    return answer_in_slices(ctx, write(), finish)


def _write(
    ctx: Context,
    asked: WritableTxnMarker,
    topic: str,
    index: int,
    admitted: list[tuple[Ticket, WritableTxnMarkerPartitionResult]],
) -> WritableTxnMarkerPartitionResult:
    """Admit one marker; its result is true once its ticket is done."""
    result = WritableTxnMarkerPartitionResult(partition_index=index)
    try:
        partition = ctx.broker.topics.partition(topic, index)
        if NOBODY in (asked.producer_id, asked.producer_epoch):
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "a marker needs a producer and its epoch")
        marker = Marker(
            partition,
            asked.producer_id,
            asked.producer_epoch,
            asked.coordinator_epoch,
            asked.transaction_result,
            asked.transaction_version,
        )
        admitted.append((ctx.broker.store.write_markers((marker,), (), ctx.now_ms), result))
    except Exception as error:
        result.error_code = as_kafka_error(ctx, error).error
    return result


def on_error(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=error.error
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


API = Api(
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
    handle=handle,
    on_error=on_error,
)
