"""Transactions as a partition knows them: who has one open, which ended, which were aborted.

Kafka's `ProducerStateManager` (ongoing transactions, first unstable offset) and `TransactionIndex`
(aborted ones). What is open is told by batch headers and markers (producers.py keeps it with the
producers' sequences); an aborted transaction is a row of Table.ABORTED, written by its marker's own
commit.

As with sequences, what is admitted is judged at once and only what is committed is shown: a
producer's events carry their offsets, and what was true at a commit is the last event below its
end.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.options import Change, Table
from ottla.wire.codecs import Buffer, Codec
from ottla.wire.errors import KafkaError
from ottla.wire.records import (
    CONTROL,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    Record,
    build_batch,
    open_records,
    patch,
    read_header,
    record_body,
    record_heads,
    repack,
)

if TYPE_CHECKING:
    from ottla.log.partition import Partition

#: No transaction is open; no coordinator has ended one yet.
NONE_OPEN: Final = -1
NO_COORDINATOR: Final = -1

# ----------------------------------------------------------------------------------------- markers

_ABORT: Final = 0
_COMMIT: Final = 1
_KEY: Final = Struct(">hh")  # version, type
_VALUE: Final = Struct(">hi")  # version, coordinator epoch
_TEMPLATE: Final = BatchHeader(
    base_offset=0,
    batch_length=0,
    partition_leader_epoch=0,
    magic=MAGIC,
    crc=0,
    attributes=TRANSACTIONAL | CONTROL,
    last_offset_delta=0,
    base_timestamp=0,
    max_timestamp=0,
    producer_id=0,
    producer_epoch=0,
    base_sequence=NO_SEQUENCE,
    record_count=1,
)


class Marker(NamedTuple):
    """The end of a producer's transaction in one partition (Kafka's `EndTransactionMarker`)."""

    partition: Partition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    #: 2: the coordinator has raised the epoch for this marker (KIP-890), so one that is not newer
    #: than the producer's is late. 0 and 1: it is the epoch of the batches, or a newer one.
    transaction_version: int


class MarkerRefused(KafkaError):
    """Some of the markers may not be written, so none was: INVALID_PRODUCER_EPOCH,
    TRANSACTION_COORDINATOR_FENCED, UNKNOWN_TOPIC_OR_PARTITION. As an error it is the first one."""

    def __init__(self, refused: Sequence[tuple[Marker, KafkaError]]) -> None:
        """refused: all of them, and why."""
        self.marker, first = refused[0]
        self.refused = refused
        super().__init__(first.error, first.message)


def marker_batch(marker: Marker, base_offset: int, leader_epoch: int, now_ms: int) -> bytearray:
    """The control batch that readers see, one record; the log gives it its place."""
    _, producer_id, epoch, coordinator_epoch, committed, _ = marker
    batch = bytearray(_anywhere(producer_id, epoch, coordinator_epoch, committed, now_ms))
    patch(batch, 0, base_offset, leader_epoch)
    return batch


@lru_cache(maxsize=16)
def _anywhere(
    producer_id: int, epoch: int, coordinator_epoch: int, committed: bool, now_ms: int
) -> bytes:
    """A marker but for its place, which its CRC leaves out: the same in all partitions."""
    header = _TEMPLATE._replace(
        base_timestamp=now_ms, max_timestamp=now_ms, producer_id=producer_id, producer_epoch=epoch
    )
    return bytes(repack(header, _record(committed, coordinator_epoch), Codec.none)[0])


@lru_cache(maxsize=16)
def _record(committed: bool, coordinator_epoch: int) -> bytes:
    """A marker's one record; the offset and the time are its batch's."""
    key, value = _KEY.pack(0, _COMMIT if committed else _ABORT), _VALUE.pack(0, coordinator_epoch)
    batch = build_batch([Record(0, 0, key, value)])
    return bytes(open_records(batch, read_header(batch)))


class End(NamedTuple):
    """What a control batch says."""

    committed: bool
    coordinator_epoch: int


def read_end(batch: Buffer, header: BatchHeader) -> End | None:
    """What a control batch says of its producer's transaction; None where it is about something
    else, or its record was compacted away. Raises CorruptBatch."""
    if not header.record_count:
        return None
    try:
        opened = open_records(batch, header)
        head = next(record_heads(opened, 1))
        key, value, _ = record_body(opened, head)
    except CorruptBatch:
        raise
    except KafkaError as error:
        raise CorruptBatch(f"control batch at {header.base_offset}: {error}") from None
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    kind = _KEY.unpack_from(key)[1]
    if kind not in (_ABORT, _COMMIT):
        return None
    return End(kind == _COMMIT, _VALUE.unpack_from(value)[1])


# --------------------------------------------------------------------------- one producer's history

_WIDTH: Final = 4
_OFFSET, _FIRST, _TIME, _COORDINATOR = range(_WIDTH)


class Moment(NamedTuple):
    """What is true of a producer's transactions behind some offset."""

    #: Of the batch or marker that made it true.
    offset: int
    #: First offset of the open transaction, or NONE_OPEN.
    first: int
    #: When it was opened or ended, ms.
    time_ms: int
    #: Of the last marker, or NO_COORDINATOR.
    coordinator_epoch: int


class History:
    """One producer's transactions in one partition: the last event that is committed, and those
    that are not."""

    __slots__ = ("_events",)

    def __init__(self, moment: Moment | None = None) -> None:
        #: Four numbers each, as in Moment; rising by offset.
        self._events = array("q", moment or ())

    @property
    def open(self) -> int:
        """First offset of the transaction that is open in what is admitted, or NONE_OPEN."""
        return self._events[_FIRST - _WIDTH] if self._events else NONE_OPEN

    @property
    def coordinator_epoch(self) -> int:
        return self._events[_COORDINATOR - _WIDTH] if self._events else NO_COORDINATOR

    @property
    def last(self) -> int:
        """Offset of the last event; -1 without any."""
        return self._events[_OFFSET - _WIDTH] if self._events else -1

    def begin(self, offset: int, committed_end: int, now_ms: int) -> None:
        """A transaction is opened by the batch at `offset`."""
        self._add((offset, offset, now_ms, self.coordinator_epoch), committed_end)

    def end(self, offset: int, coordinator_epoch: int, committed_end: int, now_ms: int) -> None:
        """The marker at `offset` ends what was open, if anything was."""
        self._add((offset, NONE_OPEN, now_ms, coordinator_epoch), committed_end)

    def _add(self, event: Iterable[int], committed_end: int) -> None:
        events = self._events
        events.extend(event)
        while len(events) > _WIDTH and events[_WIDTH] < committed_end:
            del events[:_WIDTH]

    def at(self, end: int) -> Moment | None:
        """What is true below the offset `end`, which may not lie before what was committed once."""
        stop = self._below(end)
        return Moment(*self._events[stop - _WIDTH : stop]) if stop else None

    def waits(self, end: int) -> bool:
        """Whether there are events at or behind the offset `end`."""
        return self.last >= end

    def rollback(self, end: int) -> None:
        """Forget the events at or behind the offset `end`."""
        del self._events[self._below(end) :]

    def _below(self, end: int) -> int:
        events = self._events
        stop = len(events)
        while stop and events[stop - _WIDTH] >= end:
            stop -= _WIDTH
        return stop


# ------------------------------------------------------------------------ what a partition has open


class Ongoing:
    """The open transactions of one partition."""

    __slots__ = ("_ended", "_open")

    def __init__(self) -> None:
        #: Producer id -> first offset, of what is admitted; the oldest first.
        self._open: dict[int, int] = {}
        #: Offset of the marker and first offset of those whose end may not be committed yet.
        self._ended: deque[tuple[int, int]] = deque()

    def begin(self, producer_id: int, first: int) -> None:
        """A transaction is opened at the end of what is admitted."""
        self._open[producer_id] = first

    def end(self, producer_id: int, marker: int, committed_end: int) -> tuple[int, int] | None:
        """The marker at this offset ends the producer's transaction: its first offset, and the last
        stable offset once the marker is committed. None where none is open."""
        first = self._open.pop(producer_id, None)
        if first is None:
            return None
        self._settle(committed_end)
        self._ended.append((marker, first))
        return first, next(iter(self._open.values()), marker + 1)

    def first_unstable(self, committed_end: int) -> int:
        """First offset of the oldest transaction open in what is committed; else where that
        ends."""
        self._settle(committed_end)
        first = min(committed_end, next(iter(self._open.values()), committed_end))
        return min(first, *(begun for _, begun in self._ended)) if self._ended else first

    def _settle(self, committed_end: int) -> None:
        while self._ended and self._ended[0][0] < committed_end:
            self._ended.popleft()

    def all(self) -> list[tuple[int, int]]:
        """Producer id and first offset of each that is open in what is admitted."""
        return list(self._open.items())

    def reset(self, open_ones: Iterable[tuple[int, int]]) -> None:
        """All that is known is what is committed: (first offset, producer id), in any order."""
        self._open = {producer_id: first for first, producer_id in sorted(open_ones)}
        self._ended.clear()


# --------------------------------------------------------------------------------- aborted ones

ABORTED_KEY: Final = Struct(">Iq")  # partition, the marker's offset
_ABORTED_ROW: Final = Struct("<Bqqq")  # layout version, producer id, first offset, stable offset
_ABORTED_VERSION: Final = 1


def aborted_row(number: int, marker: int, producer_id: int, first: int, stable: int) -> Change:
    """A transaction of partition `number` that the marker at this offset has aborted. stable: the
    last stable offset after it."""
    value = _ABORTED_ROW.pack(_ABORTED_VERSION, producer_id, first, stable)
    return Change(Table.ABORTED, ABORTED_KEY.pack(number, marker), value)


def aborted_gone(number: int, marker: int) -> Change:
    """The row of an aborted transaction of which nothing is left."""
    return Change(Table.ABORTED, ABORTED_KEY.pack(number, marker), None)


class Aborted:
    """The aborted transactions of one partition, by the offsets of their markers; committed ones.

    Columns of plain numbers: 32 bytes a transaction, and a range of them is found by bisection.
    """

    __slots__ = ("_firsts", "_markers", "_producers", "_stables")

    def __init__(self) -> None:
        self._markers = array("q")
        self._producers = array("q")
        self._firsts = array("q")
        #: The last stable offset once each was ended: none of those behind it began before.
        self._stables = array("q")

    def __len__(self) -> int:
        return len(self._markers)

    def add(self, marker: int, row: bytes) -> None:
        """A row of Table.ABORTED is true. One that is known already changes nothing: replaying a
        journal may begin early."""
        markers = self._markers
        if markers and marker <= markers[-1]:
            return
        _, producer_id, first, stable = _ABORTED_ROW.unpack(row)
        markers.append(marker)
        self._producers.append(producer_id)
        self._firsts.append(first)
        stables = self._stables
        # One that was opened again (its marker lay in a file that is damaged) takes it back.
        least = first if first < stable else stable
        if stables and stables[-1] > least:
            for index in range(len(stables) - 1, -1, -1):
                if stables[index] <= least:
                    break
                stables[index] = least
        stables.append(stable)

    def remove(self, gone: set[int]) -> None:
        """Rows are gone, by their markers."""
        count = len(gone)
        if gone == set(self._markers[:count]):  # the oldest, nearly always
            for name in self.__slots__:
                del getattr(self, name)[:count]
            return
        kept = [index for index, marker in enumerate(self._markers) if marker not in gone]
        for name in self.__slots__:
            column = getattr(self, name)
            setattr(self, name, array("q", [column[index] for index in kept]))

    @property
    def markers(self) -> set[int]:
        """The offsets of all markers."""
        return set(self._markers)

    def markers_below(self, offset: int, most: int) -> Sequence[int]:
        """The oldest markers, those below `offset`, at most so many."""
        return self._markers[: min(most, bisect_left(self._markers, offset))]

    def overlapping(self, start: int, end: int) -> tuple[array[int], array[int]]:
        """Producer ids and first offsets of those that touch the offsets from `start` up to `end`
        (exclusive), by their markers' offsets.

        As Kafka's `TransactionIndex.collectAbortedTxns`: the marker lies at or behind `start`, the
        first offset before `end`; and none of those behind the first whose last stable offset is
        `end` or more began before that.
        """
        markers = self._markers
        low = bisect_left(markers, start)
        if low == len(markers):
            return array("q"), array("q")
        high = min(bisect_left(self._stables, end, low) + 1, len(markers))
        producers, firsts = self._producers[low:high], self._firsts[low:high]
        if markers[high - 1] < end:  # and so does each of them begin before
            return producers, firsts
        inside = [index for index, first in enumerate(firsts) if first < end]
        return (
            array("q", [producers[index] for index in inside]),
            array("q", [firsts[index] for index in inside]),
        )

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Producer id, first offset and marker's offset of each, by the latter."""
        return zip(self._producers, self._firsts, self._markers, strict=True)

    def copy(self) -> Aborted:
        """As it is now, for another thread."""
        other = Aborted()
        for name in self.__slots__:
            setattr(other, name, getattr(self, name)[:])
        return other
