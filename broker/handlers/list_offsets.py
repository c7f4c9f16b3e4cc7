"""ListOffsets: the first or last offset of partitions, or the first at or after a time.

Versions 1 to 11; version 0 with its list of offsets is gone from Kafka 4.

    2   isolation level: under read_committed the latest offset is the last stable one
    4   leader epochs, checked and answered
    6   flexible
    7   -3, the record with the largest timestamp (KIP-734)
    8   -4, the first offset on the local disk: the first of all, nothing is tiered (KIP-405)
    9   -5, the last tiered offset: none (KIP-1005)
    10  timeout_ms, for look-ups in tiered storage
    11  -6, the first offset waiting to be tiered: none (KIP-1023)

A special timestamp in a version that did not have it is UNSUPPORTED_VERSION on its partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.broker.answers import Encoded
from ottla.broker.complaints import about_read
from ottla.broker.context import Api, Context, Parked
from ottla.broker.partitions import by_name, check_leader_epoch, committed_only, epoch_at, find
from ottla.broker.slices import answer_in_slices, reply_in_slices
from ottla.log.errors import LogError
from ottla.log.partition import Partition
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)

#: The version that brought each special timestamp.
_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}


def handle(ctx: Context, request: ListOffsetsRequest) -> Message | Parked:
    lookup = _LookUp(ctx, request)
    return answer_in_slices(ctx, lookup.look(request), lookup.looked)


class _LookUp:
    """The partitions of one request; looking for a time may take the disk, and comes later."""

    def __init__(self, ctx: Context, request: ListOffsetsRequest) -> None:
        self._ctx = ctx
        self._committed_only = committed_only(request.isolation_level)
        self._answers: dict[str, list[ListOffsetsPartitionResponse]] = {}
        self._waiting = 1

    def look(self, request: ListOffsetsRequest) -> Iterator[None]:
        """Steps that look at every partition, or begin to."""
        for name, partitions in (yield from by_name(request.topics)).items():
            answers = self._answers[name] = []
            for index, asked in partitions.items():
                answer = ListOffsetsPartitionResponse(partition_index=index)
                answers.append(answer)
                try:
                    if len(asked) > 1:  # answered once, with an error (KafkaApis)
                        raise KafkaError(Error.INVALID_REQUEST)
                    self._look(answer, find(self._ctx.broker, name, index), asked[0])
                except (KafkaError, LogError) as error:
                    self._failed(answer, error)
                yield

    def looked(self) -> Message | Parked:
        """There are no more steps."""
        self._waiting -= 1
        if self._waiting:
            return self._ctx.park()
        return answer_in_slices(self._ctx, *self._told())

    def _done(self) -> None:
        """A look-up has ended."""
        self._waiting -= 1
        if not self._waiting:
            reply_in_slices(self._ctx, *self._told())

    def _told(self) -> tuple[Iterator[None], Callable[[], Encoded]]:
        topics = Rows(ListOffsetsResponse, "topics", self._ctx.header.api_version)

        def tell() -> Iterator[None]:
            for name, answers in self._answers.items():
                yield from topics.add_of(ListOffsetsTopicResponse(name=name), "partitions", answers)

        return tell(), lambda: Encoded(topics.within(ListOffsetsResponse()))

    def _look(
        self,
        answer: ListOffsetsPartitionResponse,
        partition: Partition,
        asked: ListOffsetsPartition,
    ) -> None:
        timestamp = asked.timestamp
        if timestamp < 0 and self._ctx.header.api_version < _SINCE.get(timestamp, 0x7FFF):
            raise KafkaError(Error.UNSUPPORTED_VERSION)
        check_leader_epoch(partition, asked.current_leader_epoch)
        if timestamp == LATEST:
            answer.offset = self._end(partition)
            answer.leader_epoch = self._epoch(partition.leader_epoch)
        elif timestamp in (EARLIEST, EARLIEST_LOCAL):
            answer.offset = partition.log_start_offset
            answer.leader_epoch = self._epoch_at(partition, answer.offset)
        elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
            self._look_for_record(answer, partition, timestamp)

    def _look_for_record(
        self, answer: ListOffsetsPartitionResponse, partition: Partition, timestamp: int
    ) -> None:
        def done(found: tuple[int, int] | Exception | None) -> None:
            if isinstance(found, (KafkaError, LogError)):
                self._failed(answer, found)
            elif isinstance(found, Exception):
                self._ctx.park().fail(found)
            elif found is not None and found[0] < self._end(partition):
                answer.offset, answer.timestamp = found
                answer.leader_epoch = self._epoch_at(partition, answer.offset)
            self._done()

        self._waiting += 1
        store = self._ctx.broker.store
        try:
            if timestamp == MAX_TIMESTAMP:
                store.offset_of_max_timestamp(partition, done)
            else:
                store.offset_for_timestamp(partition, timestamp, done)
        except Exception:
            self._waiting -= 1  # `done` is not called any more
            raise

    def _failed(self, answer: ListOffsetsPartitionResponse, error: KafkaError | LogError) -> None:
        if isinstance(error, LogError):
            about_read(error)
        answer.error_code = (
            error.error if isinstance(error, KafkaError) else Error.KAFKA_STORAGE_ERROR
        )

    def _end(self, partition: Partition) -> int:
        """The end of what this client may read."""
        if self._committed_only:
            return partition.last_stable_offset
        return partition.high_watermark

    def _epoch_at(self, partition: Partition, offset: int) -> int:
        return self._epoch(epoch_at(self._ctx.broker.store, partition, offset))

    def _epoch(self, epoch: int) -> int:
        return epoch if self._ctx.header.api_version >= 4 else -1


def on_error(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, error_code=error.error
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    request=ListOffsetsRequest, response=ListOffsetsResponse, handle=handle, on_error=on_error
)
