"""Reading for one Fetch request: which partition gives how much, when that is enough, and until
when to wait for more.

Limits, as Kafka applies them (ReplicaManager.readFromLog): max_bytes over all partitions, itself
bounded by fetch.max.bytes; partition_max_bytes for each; the first batch of the first partition
that has data is sent whole whatever they say, or a consumer with small limits would never get past
it. Partitions are read in the order of the session, so what was served last time comes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.broker.context import Broker, Context, Parked
from ottla.broker.partitions import NO_EPOCH, check_leader_epoch
from ottla.broker.sessions import Fetch, Wanted
from ottla.broker.waiters import Waiter
from ottla.log.errors import LogError
from ottla.log.partition import Partition
from ottla.log.reading import Cold, Read
from ottla.wire.api.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.errors import Error, KafkaError

READ_COMMITTED: Final = 1
_UNKNOWN: Final = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)


class Reading:
    """One Fetch request from its first look at the log to its answer."""

    def __init__(self, ctx: Context, request: FetchRequest, fetch: Fetch) -> None:
        broker = ctx.broker
        self._ctx = ctx
        self._broker = broker
        self._request = request
        self._fetch = fetch
        state = request.replica_state
        self._replica_id = request.replica_id if state is None else state.replica_id
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._waiter: Waiter | None = None
        self._waited = request.max_wait_ms <= 0
        self._begin()

    def _begin(self) -> None:
        """Start a pass over all partitions."""
        self._todo = iter(self._fetch.wanted.values())
        self._read: list[tuple[Wanted, PartitionData]] = []
        self._size = 0
        self._urgent = False
        #: What is waited for if the pass finds too little: partition number -> (partition's end,
        #: who wants it).
        self._ends: dict[int, tuple[int, Wanted]] = {}

    def start(self) -> FetchResponse | Parked:
        """The answer at once if there is one, else it comes later."""
        if self._pass():
            if self._enough():
                return self._response()
            self._park()
            self._wait()
        return self._ctx

    # -- a pass over the partitions ---------------------------------------------------------------

    def _pass(self) -> bool:
        """Read on until all partitions have been read, or (False) one needs the reader thread."""
        for wanted in self._todo:
            try:
                partition = self._partition(wanted)
                found = self._look(wanted, partition)
            except (KafkaError, LogError) as error:
                self._fail(wanted, error)
                continue
            if isinstance(found, Cold):
                self._read_cold(wanted, partition, found)
                return False
            self._found(wanted, partition, found)
        return True

    def _look(self, wanted: Wanted, partition: Partition) -> Read | Cold | EpochEndOffset | None:
        """Batches for one partition; None where it has none, or no room is left for them."""
        asked = wanted.request
        if self._replica_id >= 0:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)  # there are no other replicas
        check_leader_epoch(partition, max(asked.current_leader_epoch, NO_EPOCH))
        offset = asked.fetch_offset
        if asked.last_fetched_epoch >= 0:
            diverging = _diverging(self._broker, partition, asked.last_fetched_epoch, offset)
            if diverging is not None:
                return diverging
        if not partition.log_start_offset <= offset <= partition.log_end_offset:
            raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
        end = partition.last_stable_offset if self._committed_only else partition.high_watermark
        self._ends[partition.number] = (max(end, offset), wanted)
        if offset >= end:
            return None
        room = min(asked.partition_max_bytes, self._max_bytes - self._size)
        if room <= 0 and self._size:
            return None
        return self._broker.store.read(
            partition, offset, max(room, 0), end=end, min_one=not self._size
        )

    def _found(
        self, wanted: Wanted, partition: Partition, found: Read | EpochEndOffset | None
    ) -> None:
        data = PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
        )
        if not self._committed_only:
            data.aborted_transactions = None
        if isinstance(found, Read):
            if found.size:
                data.records = found.buffers
                self._size += found.size
        elif found is not None:
            data.diverging_epoch = found
            self._urgent = True
        self._read.append((wanted, data))

    def _fail(self, wanted: Wanted, error: KafkaError | LogError) -> None:
        """Answer an error for a partition, at once.

        But that there is no such partition does not end a long poll for others: a consumer with one
        deleted topic would ask without a pause until its metadata is fresh.
        """
        code = error.error if isinstance(error, KafkaError) else Error.KAFKA_STORAGE_ERROR
        data = PartitionData(partition_index=wanted.index, error_code=code, high_watermark=-1)
        if code not in _UNKNOWN:
            data.aborted_transactions = None
            self._urgent = True
        self._read.append((wanted, data))

    def _read_cold(self, wanted: Wanted, partition: Partition, cold: Cold) -> None:
        """Let the reader thread read, and go on with the next partition when it has."""
        self._park()

        def done(found: Read | Exception) -> None:
            if self._ctx.over:
                return
            try:
                if isinstance(found, Exception):
                    raise found
                self._found(wanted, partition, found)
            except (KafkaError, LogError) as error:
                self._fail(wanted, error)
            except Exception as error:
                self._ctx.fail(error)
                return
            self._go_on()

        self._broker.store.read_cold(cold, done)

    # -- until it is enough -----------------------------------------------------------------------

    def _go_on(self) -> None:
        """A later part of the work: answer, or wait once more."""
        try:
            if not self._pass():
                return
            if self._enough():
                self._ctx.reply(self._response())
            else:
                self._wait()
        except Exception as error:
            self._ctx.fail(error)

    def _enough(self) -> bool:
        return (
            self._size >= self._min_bytes
            or self._urgent
            or self._waited
            or not self._ends  # nothing to wait for
            or self._broker.stopping
        )

    def _park(self) -> None:
        if not self._ctx.parked:
            self._ctx.park()
            self._ctx.on_lost(self._lost)

    def _wait(self) -> None:
        self._missing = self._min_bytes - self._size
        self._waiter = self._broker.waiters.park(
            self._ends, self._request.max_wait_ms, self._moved, self._over
        )

    def _moved(self, partition: Partition) -> bool:
        """Whether what a commit brought to one of the partitions makes it enough."""
        end = partition.last_stable_offset if self._committed_only else partition.high_watermark
        seen, wanted = self._ends[partition.number]
        if end <= seen:
            return False
        if self._missing > 1:
            # fetch.min.bytes was raised: measure what came, which needs no more than a look.
            found = self._broker.store.read(partition, seen, self._missing, end=end, min_one=True)
            size = found.size if isinstance(found, Read) else self._missing
            self._missing -= size
            self._ends[partition.number] = (end, wanted)
            return self._missing <= 0
        return True

    def _over(self) -> None:
        """Woken, or out of time: read everything anew and answer with what there is."""
        self._waited = True
        self._begin()
        self._go_on()

    def _lost(self) -> None:
        if self._waiter is not None:
            self._waiter.cancel()

    # -- the answer -------------------------------------------------------------------------------

    def _response(self) -> FetchResponse:
        now_ms = self._broker.clock.monotonic_ms()
        session_id, told = self._fetch.answered(self._read, now_ms)
        return FetchResponse(session_id=session_id, responses=_by_topic(told, self._fetch.by_id))

    def _partition(self, wanted: Wanted) -> Partition:
        topics = self._broker.topics
        if isinstance(wanted.topic, str):
            topic = topics.get(wanted.topic)
        else:
            topic = topics.by_id(wanted.topic)
            if topic is None:
                raise KafkaError(_unknown_id(self._broker, wanted.topic_name))
            wanted.topic_name = topic.name
        if topic is None or not 0 <= wanted.index < len(topic.partitions):
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        return self._broker.store.partition(topic.partitions[wanted.index])


def _unknown_id(broker: Broker, name: str | None) -> Error:
    """What is wrong with a topic id nobody has: inside a session its name is remembered."""
    if name is None:
        return Error.UNKNOWN_TOPIC_ID
    if broker.topics.get(name) is not None:
        return Error.INCONSISTENT_TOPIC_ID
    return Error.UNKNOWN_TOPIC_OR_PARTITION


def _diverging(
    broker: Broker, partition: Partition, epoch: int, offset: int
) -> EpochEndOffset | None:
    """Where the reader's log and ours part, if it read batches of an epoch that we do not have, or
    beyond its end (KIP-595)."""
    ours, end = broker.store.epoch_end(partition, epoch)
    if ours < 0 or end < 0:
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
    if ours < epoch or end < offset:
        return EpochEndOffset(epoch=ours, end_offset=end)
    return None


def _by_topic(
    told: Iterable[tuple[Wanted, PartitionData]], by_id: bool
) -> list[FetchableTopicResponse]:
    """Partitions of one topic that follow each other share an entry."""
    responses: list[FetchableTopicResponse] = []
    last: bytes | str | None = None
    for wanted, data in told:
        topic = wanted.topic
        if topic != last:
            last = topic
            if isinstance(topic, str):
                responses.append(FetchableTopicResponse(topic=topic))
            else:
                responses.append(FetchableTopicResponse(topic_id=topic))
        responses[-1].partitions.append(data)
    return responses
