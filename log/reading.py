"""Finding and cutting batches: from one offset on, whole batches, up to a limit.

Only the first and the last extent of a read are walked, batch header by batch header. From an
active segment bytes are copied out under LMDB's snapshot; of a sealed one views are handed out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import takewhile
from struct import Struct
from typing import Final, NamedTuple

from ottla.log.commit import KEY
from ottla.log.errors import Damaged, LogError, MissingRecords
from ottla.log.extents import ActiveExtents
from ottla.log.layout import Layout
from ottla.log.partition import Partition
from ottla.log.segment import ActiveSegment, SealedSegment, check_batches
from ottla.wire.codecs import Buffer
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import HEADER_SIZE

#: More extents than this are not looked at in one read: it would keep the loop too long.
MAX_EXTENTS: Final = 512
#: Many pieces smaller than this are joined: a socket takes one large one faster.
SMALL_PIECE: Final = 4096
#: base_offset, batch_length, last_offset_delta of a batch header
_BATCH: Final = Struct(">qi11xi")
_PREFIX: Final = 12


class Read(NamedTuple):
    """Whole batches. `buffers` keep what they view alive; size is their sum in bytes."""

    buffers: list[Buffer]
    size: int
    #: All their offsets are below this one; 0 where there are none.
    end: int = 0


class Cold(NamedTuple):
    """A read that may wait for the disk: give it to `Store.read_cold`."""

    number: int
    offset: int
    max_bytes: int
    end: int
    min_one: bool
    segments: list[SealedSegment]


class BadBatch(Exception):
    """An extent is not a row of whole batches."""


def cut(view: Buffer, offset: int, end: int, room: int, min_one: bool) -> tuple[int, int]:
    """The part of an extent from the batch that holds `offset` (or the next) on, up to `end`
    (exclusive) and at most `room` bytes; min_one: the first batch whatever its size.

    Raises BadBatch.
    """
    pos = 0
    size = len(view)
    start = -1
    unpack = _BATCH.unpack_from
    while pos < size:
        if size - pos < HEADER_SIZE:
            raise BadBatch(f"{size - pos} bytes at {pos} are no batch")
        base, length, delta = unpack(view, pos)
        next_pos = pos + length + _PREFIX
        if next_pos > size or length < HEADER_SIZE - _PREFIX:
            raise BadBatch(f"a batch of {length + _PREFIX} bytes at {pos} of {size}")
        if base + delta >= offset:
            if start < 0:
                start = pos
            if base + delta >= end or (next_pos - start > room and not (min_one and pos == start)):
                return start, pos
        pos = next_pos
    return (pos if start < 0 else start), pos


class _Collector:
    """What a read has gathered so far."""

    __slots__ = ("buffers", "end", "extents", "min_one", "next", "offset", "room", "upto")

    def __init__(self, offset: int, max_bytes: int, end: int, min_one: bool) -> None:
        self.offset = offset
        self.room = max_bytes
        self.end = end
        self.min_one = min_one
        self.extents = 0
        self.buffers: list[Buffer] = []
        #: The offset after the last extent that was taken whole.
        self.next = offset
        #: Behind the last extent of which anything was taken.
        self.upto = 0

    def bounds(self, view: Buffer, first: int, last: int) -> tuple[int, int, bool]:
        """Which part of the extent is wanted, and whether the read goes on behind it."""
        size = len(view)
        if first >= self.offset and last < self.end and size <= self.room:
            start, stop = 0, size
        else:
            start, stop = cut(view, self.offset, self.end, self.room, self.min_one)
        if stop > start:
            self.room -= stop - start
            self.min_one = False
            self.upto = last + 1
        self.extents += 1
        self.next = last + 1
        return start, stop, stop == size and self.room > 0 and self.extents < MAX_EXTENTS

    def result(self) -> Read:
        buffers = self.buffers
        size = sum(map(len, buffers))
        if len(buffers) > 8 and size < SMALL_PIECE * len(buffers):
            buffers = [b"".join(buffers)]
        return Read(buffers, size, min(self.upto, self.end))


def read(
    layout: Layout,
    partition: Partition,
    offset: int,
    max_bytes: int,
    end: int,
    min_one: bool,
    warm_segments: int,
) -> Read | Cold:
    """See Store.read."""
    if not partition.log_start_offset <= offset <= partition.log_end_offset:
        raise KafkaError(
            Error.OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {partition.log_start_offset} to {partition.log_end_offset}",
        )
    end = min(end, partition.high_watermark)
    if offset >= end or (max_bytes <= 0 and not min_one):
        return Read([], 0)
    number = partition.number
    out = _Collector(offset, max_bytes, end, min_one)
    active = layout.active.index.partitions.get(number)
    if active is not None and offset >= active.first:
        # Where nearly all reads end: at the tail.
        _take_active(layout.active, active, out)
        return out.result()
    chain = layout.chain(number)
    at = bisect_left(chain.lasts, offset)
    if at < len(chain.lasts):
        segments = chain.segments[at:]
        _check_gap(layout, partition, offset, segments[0], at)
        warm = _warm(layout, segments, warm_segments)
        if not warm:
            return Cold(number, offset, max_bytes, end, min_one, segments)
        if not _take_chain(warm, number, out) or len(warm) < len(segments):
            return out.result()
    elif not _lies_in_unsealed(layout, number, offset):
        _raise_missing(layout, partition, offset, None)
    for segment in [*layout.rolled, layout.active]:
        extents = segment.index.partitions.get(number)
        if extents is None or extents.lasts[-1] < out.offset:
            continue
        if out.extents and extents.first != out.next:
            break
        if not out.extents and extents.first > offset:
            _raise_missing(layout, partition, offset, segment.first)
        if not _take_active(segment, extents, out):
            break
    return out.result()


def cold_ranges(cold: Cold) -> Iterator[tuple[SealedSegment, int, int]]:
    """Which bytes of which files a cold read is going to look at."""
    room = cold.max_bytes
    for segment in cold.segments:
        totals = segment.totals(cold.number)
        assert totals is not None
        segment.check()
        index = segment.index
        start = stop = 0
        for row in range(index.locate(totals, cold.offset), totals.start + totals.rows):
            position, length = index.positions[row], index.lengths[row]
            if position != stop:
                if stop > start:
                    yield segment, start, stop
                start = position
            stop = position + length
            room -= length
            if room <= 0 or index.lasts[row] >= cold.end:
                break
        if stop > start:
            yield segment, start, stop
        if room <= 0:
            return


def read_cold(cold: Cold) -> Read:
    """A cold read, on a thread that may wait. Raises Damaged."""
    out = _Collector(cold.offset, cold.max_bytes, cold.end, cold.min_one)
    _take_chain(cold.segments, cold.number, out)
    return out.result()


def _warm(layout: Layout, segments: list[SealedSegment], warm_segments: int) -> list[SealedSegment]:
    """Those at the beginning that are read on the loop: among the newest, and written by this
    process, so that they are in memory still."""
    newest = layout.sealed[-warm_segments:] if warm_segments else []
    first = newest[0].first if newest else 1 << 63
    return list(takewhile(lambda s: s.trusted and s.first >= first, segments))


def _take_chain(segments: list[SealedSegment], number: int, out: _Collector) -> bool:
    """Take from sealed segments while they follow one another; whether there may be more."""
    for segment in segments:
        totals = segment.totals(number)
        assert totals is not None
        if out.extents and totals.first != out.next:
            return False
        segment.check()
        index = segment.index
        for row in range(index.locate(totals, out.offset), totals.start + totals.rows):
            view = segment.extent(row)
            try:
                start, stop, more = out.bounds(view, index.firsts[row], index.lasts[row])
            except BadBatch as error:
                raise Damaged(segment.path, f"partition {number}: {error}") from None
            if stop > start:
                out.buffers.append(view[start:stop])
            if not more:
                return False
    return True


def _take_active(segment: ActiveSegment, extents: ActiveExtents, out: _Collector) -> bool:
    """Copy from a segment whose index is in RAM; whether there may be more."""
    with segment.reading() as txn:
        for index in range(extents.locate(out.offset), len(extents.lasts)):
            first, last, _, commit, position, length, slot, _ = extents.row(index)
            if first >= out.end:
                return False
            value = txn.get(KEY.pack(commit, slot))
            if value is None or len(value) < position + length:
                raise Damaged(segment.path, f"commit {commit} is not as its directory says")
            view = value[position : position + length]
            if commit <= segment.found:
                check_batches(view, segment.path, first, last)
            try:
                start, stop, more = out.bounds(view, first, last)
            except BadBatch as error:
                raise Damaged(segment.path, f"commit {commit}: {error}") from None
            if stop > start:
                out.buffers.append(bytes(view[start:stop]))
            if not more:
                return False
    return True


# ------------------------------------------------------------------------------ what is missing


def _lies_in_unsealed(layout: Layout, number: int, offset: int) -> bool:
    for segment in layout.unsealed():
        extents = segment.index.partitions.get(number)
        if extents is not None and extents.lasts[-1] >= offset:
            return True
    return False


def _check_gap(
    layout: Layout, partition: Partition, offset: int, segment: SealedSegment, at: int
) -> None:
    """Raise MissingRecords where `offset` lay in a file between this segment and the one before."""
    if not layout.missing:
        return
    totals = segment.totals(partition.number)
    assert totals is not None
    if totals.first > offset:
        _raise_missing(layout, partition, offset, segment.first)


def _raise_missing(layout: Layout, partition: Partition, offset: int, before: int | None) -> None:
    """`offset` is in no segment below commit `before`: say which file held it, if one did."""
    number = partition.number
    chain = layout.chain(number)
    at = bisect_left(chain.lasts, offset) - 1
    after = chain.segments[at].last if at >= 0 else 0
    for segment in layout.unsealed():
        extents = segment.index.partitions.get(number)
        if extents is not None and extents.lasts[-1] < offset:
            after = max(after, segment.last)
    missing = layout.lost_between(after, before)
    if missing is None:
        if before is None and offset >= partition.floor:
            raise LogError(
                f"offset {offset} of partition {number} is in none of its segments, though its"
                f" log ends at {partition.high_watermark}"
            )
        return
    last = _next_first(layout, number, offset, partition.high_watermark) - 1
    raise MissingRecords(missing.path, number, offset, last)


def _next_first(layout: Layout, number: int, offset: int, end: int) -> int:
    """The first offset behind `offset` that is there; `end` when none is."""
    chain = layout.chain(number)
    at = bisect_left(chain.lasts, offset)
    if at < len(chain.lasts):
        totals = chain.segments[at].totals(number)
        assert totals is not None
        return totals.first
    for segment in reversed(list(layout.unsealed())):
        extents = segment.index.partitions.get(number)
        if extents is not None and extents.lasts[-1] >= offset:
            return extents.first
    return end
