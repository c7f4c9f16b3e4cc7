"""Reading for one Fetch request: which partition gives how much, when that is enough, and until
when to wait for more.

Limits, as Kafka applies them (ReplicaManager.readFromLog): max_bytes over all partitions, itself
bounded by fetch.max.bytes and by what slow clients have left of the memory for answers;
partition_max_bytes for each; the first batch of the first partition that has data is sent whole
whatever they say, or a consumer with small limits would never get past it. Partitions are read in
the order of the session, so what was served last time comes last.

Under read_committed a read ends at the last stable offset, and its answer names the aborted
transactions in it. A long poll for that offset is woken like any other: a marker takes an offset of
its own, so the commit that moves the one moves the high watermark too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, TypeAlias

from ottla.broker.complaints import about_read
from ottla.broker.context import Broker, Context, Parked
from ottla.broker.partitions import check_leader_epoch, committed_only
from ottla.broker.sessions import Fetch, Wanted
from ottla.broker.slices import whole
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
from ottla.wire.packed import Packed

#: Partitions looked at in one go. The rest of a larger request, and its answer, takes slices.
FEW: Final = 200
#: Partitions between two looks at the clock.
_STEP: Final = 16
#: What a look at a partition gives: batches, where logs diverge, what is wrong, or nothing.
_Found: TypeAlias = Read | EpochEndOffset | Error | None
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
        self._committed_only = committed_only(request.isolation_level)
        # Room for a byte is room for a batch. With none nothing would be too little to answer, and
        # consumers that have all there is would ask without a pause.
        room = max(broker.unsent.room, 1)
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes, room)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        #: Only news is told: a partition without any needs no further look.
        self._news_only = fetch.session is not None
        self._waiter: Waiter | None = None
        self._waited = request.max_wait_ms <= 0
        self._begin()

    def _begin(self) -> None:
        """Start a pass over all partitions."""
        self._todo = iter(self._fetch.wanted.values())
        #: What each partition gave, in order.
        self._found: list[tuple[Wanted, Partition | None, _Found]] = []
        self._size = 0
        self._urgent = False
        #: What is waited for if the pass finds too little: partition number -> (partition's end,
        #: who wants it).
        self._ends: dict[int, tuple[int, Wanted]] = {}

    def start(self) -> FetchResponse | Parked:
        """The answer at once if there is one, else it comes later."""
        if self._pass():
            if self._enough():
                return whole(self._response())
            self._park()
            self._wait()
        return self._ctx

    # -- a pass over the partitions ---------------------------------------------------------------

    def _pass(self) -> bool:
        """Read on until all partitions have been read; False when it is gone on with later."""
        end = self._read_some(FEW)
        if end is None:
            self._park()
            self._broker.slices.start(self._rest())
        return end is True

    def _rest(self) -> Iterator[None]:
        """The rest of a long pass, and the answer."""
        try:
            while not self._ctx.over:
                end = self._read_some(_STEP)
                if end is not None:
                    if end:
                        self._passed()
                    return
                yield
        except Exception as error:
            self._ctx.fail(error)

    def _read_some(self, count: int) -> bool | None:
        """Read so many partitions. True: that was all. False: one needs the reader thread, which
        then goes on. None: there are more."""
        plain = self._news_only and self._replica_id < 0
        for wanted in self._todo:
            partition: Partition | None = None
            found: _Found | Cold
            try:
                known = self._partition(wanted)
                if isinstance(known, Error):
                    found = self._failed(known)
                elif plain and _is_old_news(wanted, known):
                    self._ends[known.number] = (wanted.request.fetch_offset, wanted)
                    found = None
                else:
                    partition = known
                    found = self._look(wanted, partition)
            except (KafkaError, LogError) as error:
                found = self._failed(error)
            if isinstance(found, Cold):
                assert partition is not None
                self._read_cold(wanted, partition, found)
                return False
            if partition is not None or found is not None:
                self._found.append((wanted, partition, found))
            count -= 1
            if not count:
                return None
        return True

    def _look(self, wanted: Wanted, partition: Partition) -> _Found | Cold:
        """What one partition gives; None where it has no batches, or no room is left for them."""
        asked = wanted.request
        if self._replica_id >= 0:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)  # there are no other replicas
        if asked.current_leader_epoch >= 0:
            check_leader_epoch(partition, asked.current_leader_epoch)
        offset = asked.fetch_offset
        if asked.last_fetched_epoch >= 0:
            diverging = _diverging(self._broker, partition, asked.last_fetched_epoch, offset)
            if diverging is not None:
                self._urgent = True
                return diverging
        if not partition.log_start_offset <= offset <= partition.log_end_offset:
            raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
        end = partition.last_stable_offset if self._committed_only else partition.high_watermark
        self._ends[partition.number] = (max(end, offset), wanted)
        if offset >= end:
            return None
        if asked.partition_max_bytes < 0 or self._max_bytes < 0:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "bytes to read are 0 or more")
        room = min(asked.partition_max_bytes, self._max_bytes - self._size)
        if room <= 0 and self._size:
            return None
        found = self._broker.store.read(
            partition, offset, max(room, 0), end=end, min_one=not self._size
        )
        if isinstance(found, Read):
            self._size += found.size
        return found

    def _failed(self, error: KafkaError | LogError | Error) -> Error:
        """What a partition is answered, and at once.

        But that there is no such partition does not end a long poll for others: a consumer with one
        deleted topic would ask without a pause until its metadata is fresh.
        """
        if isinstance(error, LogError):
            about_read(error)
        code = error if isinstance(error, Error) else Error.KAFKA_STORAGE_ERROR
        if isinstance(error, KafkaError):
            code = error.error
        if code not in _UNKNOWN:
            self._urgent = True
        return code

    def _read_cold(self, wanted: Wanted, partition: Partition, cold: Cold) -> None:
        """Let the reader thread read, and go on with the next partition when it has."""
        self._park()

        def done(found: Read | Exception) -> None:
            if self._ctx.over:
                return
            if isinstance(found, Read):
                self._size += found.size
                self._found.append((wanted, partition, found))
            elif isinstance(found, (KafkaError, LogError)):
                self._found.append((wanted, partition, self._failed(found)))
            else:
                self._ctx.fail(found)
                return
            self._go_on()

        self._broker.store.read_cold(cold, done)

    # -- until it is enough -----------------------------------------------------------------------

    def _go_on(self) -> None:
        """A later part of the work: answer, or wait once more."""
        try:
            if self._pass():
                self._passed()
        except Exception as error:
            self._ctx.fail(error)

    def _passed(self) -> None:
        """All partitions have been read, later than in the call that asked for them."""
        if not self._enough():
            self._wait()
        elif len(self._found) <= FEW:
            self._ctx.reply(whole(self._response()))
        else:
            self._broker.slices.start(self._reply())

    def _reply(self) -> Iterator[None]:
        """A long answer."""
        try:
            self._ctx.reply((yield from self._response()))
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
            try:
                read = self._broker.store.read
                found = read(partition, seen, self._missing, end=end, min_one=True)
            except (KafkaError, LogError):
                return True  # the look that follows says what is wrong; others hear of the commit
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

    def _response(self) -> Generator[None, None, FetchResponse]:
        """Yields now and then."""
        fetch = self._fetch
        fetch.check_epoch()
        topics: list[FetchableTopicResponse] = []
        served: list[Wanted] = []
        last: bytes | str | None = None
        for count, (wanted, partition, found) in enumerate(self._found, 1):
            if not count % _STEP:
                yield
                fetch.check_epoch()
            data = self._answer(wanted, partition, found)
            if data is None:
                continue
            if data.records:
                served.append(wanted)
            if wanted.topic != last:  # partitions of one topic that follow each other share it
                last = wanted.topic
                topics.append(_topic(last))
            topics[-1].partitions.append(data)
        session_id = fetch.end_answer(served, self._broker.clock.monotonic_ms())
        return FetchResponse(session_id=session_id, responses=topics)

    def _answer(
        self, wanted: Wanted, partition: Partition | None, found: _Found
    ) -> PartitionData | None:
        """What the consumer is told of a partition; None where that is no news to it."""
        if self._committed_only and partition is not None and isinstance(found, Read):
            found = _forgotten(wanted, partition) or found
        if isinstance(found, Error):
            if not self._fetch.tells(wanted, -1, -1, found, False):
                return None
            data = PartitionData(partition_index=wanted.index, error_code=found, high_watermark=-1)
            if found not in _UNKNOWN:
                data.aborted_transactions = None
            return data
        assert partition is not None
        high_watermark, start = partition.high_watermark, partition.log_start_offset
        if not self._fetch.tells(wanted, high_watermark, start, 0, found is not None):
            return None
        data = PartitionData(
            partition_index=wanted.index,
            high_watermark=high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=start,
        )
        if not self._committed_only:
            data.aborted_transactions = None
        if isinstance(found, Read):
            if found.size:
                data.records = found.buffers
                if self._committed_only:
                    self._add_aborted(data, partition, wanted.request.fetch_offset, found.end)
        elif found is not None:
            data.diverging_epoch = found
        return data

    def _add_aborted(self, data: PartitionData, partition: Partition, start: int, end: int) -> None:
        """Whose records the consumer is to leave out: every aborted transaction that touches what
        was read, also where its first record or its marker lies outside."""
        columns = self._broker.store.aborted(partition, start, end)
        if columns[0]:
            data.aborted_transactions = Packed(columns)

    def _partition(self, wanted: Wanted) -> Partition | Error:
        """The partition, or that there is none: looked up again when topics have changed."""
        topics = self._broker.topics
        if wanted.version == topics.version:
            return wanted.known
        if isinstance(wanted.topic, str):
            topic = topics.get(wanted.topic)
        else:
            topic = topics.by_id(wanted.topic)
        if topic is None and isinstance(wanted.topic, bytes):
            wanted.known = _unknown_id(self._broker, wanted.topic_name)
        elif topic is None or not 0 <= wanted.index < len(topic.partitions):
            wanted.known = Error.UNKNOWN_TOPIC_OR_PARTITION
        else:
            wanted.known = self._broker.store.partition(topic.partitions[wanted.index])
        if topic is not None:
            wanted.topic_name = topic.name
        wanted.version = topics.version
        return wanted.known


def _is_old_news(wanted: Wanted, partition: Partition) -> bool:
    """Whether a session's consumer has read the partition to its end and knows where that is."""
    asked = wanted.request
    return (
        asked.fetch_offset == partition.high_watermark == wanted.high_watermark
        and partition.log_start_offset == wanted.log_start_offset
        and asked.last_fetched_epoch < 0
        and asked.current_leader_epoch in (-1, partition.leader_epoch)
    )


def _forgotten(wanted: Wanted, partition: Partition) -> Error | None:
    """What is wrong with a read if its partition's log start passed it, or its topic was deleted,
    while another partition of the request, or it, was read by the reader thread: what was aborted
    there is forgotten, and nobody could tell the consumer to leave it out."""
    if partition.dropped:
        by_name = isinstance(wanted.topic, str)
        return Error.UNKNOWN_TOPIC_OR_PARTITION if by_name else Error.UNKNOWN_TOPIC_ID
    if wanted.request.fetch_offset < partition.log_start_offset:
        return Error.OFFSET_OUT_OF_RANGE
    return None


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


def _topic(topic: bytes | str) -> FetchableTopicResponse:
    if isinstance(topic, str):
        return FetchableTopicResponse(topic=topic)
    return FetchableTopicResponse(topic_id=topic)
