"""From a timestamp to an offset (ListOffsets): segments first, then extents, then one batch.

Each level keeps the largest timestamp below it, so that all but one batch are stepped over unseen;
that one is decompressed. Timestamps need not rise with the offsets: the answer is the first record,
by offset, that is at or after the one asked for, as Kafka's `LogSegment.findOffsetByTimestamp`
gives it.

A search is a generator: its own lines run on the loop, where the layout may be looked at; the jobs
it yields run on a reader thread, which may wait for the disk and open batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple, Protocol

from ottla.log.errors import Damaged
from ottla.log.extents import ACTIVE_ROW_SIZE, ActiveExtents, Totals
from ottla.log.layout import Layout
from ottla.log.partition import Partition
from ottla.log.readers import bring_in
from ottla.log.segment import ActiveSegment, SealedSegment
from ottla.wire.codecs import Buffer
from ottla.wire.errors import KafkaError
from ottla.wire.records import (
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    crc_ok,
    open_records,
    record_heads,
    walk,
)

#: Offset and timestamp of a record.
Found = tuple[int, int]
Job = Callable[[], object]
#: Picks a record of a batch among those from an offset on.
Pick = Callable[[Buffer, BatchHeader, int], Found | None]
Search = Generator[Job, Any, Found | None]

_BLOCK: Final = 512
#: The max timestamp in an ACTIVE_ROW.
_ACTIVE_TIME: Final = Struct("<16xq20x")
_TIMESTAMP_MAX: Final = (1 << 63) - 1


class Submit(Protocol):
    """As Readers.submit: run `job` on a thread, give `done` its result on the loop."""

    def __call__(self, job: Job, done: Callable[[Any], None]) -> None: ...


# ------------------------------------------------------------------------------------- one batch


def first_at_or_after(
    batch: Buffer, header: BatchHeader, timestamp: int, offset: int
) -> Found | None:
    """The first record of the batch at or after `timestamp` (ms) with at least this offset.

    Raises KafkaError when the batch cannot be opened.
    """
    if header.max_timestamp < timestamp:
        return None
    for found in _stamps(batch, header):
        if found[1] >= timestamp and found[0] >= offset:
            return found
    return None


def latest(batch: Buffer, header: BatchHeader, offset: int) -> Found | None:
    """The first record with the largest timestamp among those with at least this offset; None if
    none has one. Raises KafkaError when the batch cannot be opened."""
    best: Found | None = None
    for found in _stamps(batch, header):
        if found[0] >= offset and found[1] > (NO_TIMESTAMP if best is None else best[1]):
            best = found
    return best


def _stamps(batch: Buffer, header: BatchHeader) -> Generator[Found, None, None]:
    if header.log_append_time and header.record_count == header.last_offset_delta + 1:
        for offset in range(header.base_offset, header.next_offset):
            yield offset, header.max_timestamp
        return
    for head in record_heads(open_records(batch, header), header.record_count):
        timestamp = min(header.base_timestamp + head.timestamp_delta, _TIMESTAMP_MAX)
        if header.log_append_time:  # compacted: not every offset has a record
            timestamp = header.max_timestamp
        yield header.base_offset + head.offset_delta, timestamp


# --------------------------------------------------------------------------------- the searches


def find_first(layout: Layout, partition: Partition, timestamp: int) -> Search:
    """First committed record at or after `timestamp` (ms) from log start on; None if there is
    none. Raises Damaged, OSError."""

    def pick(batch: Buffer, header: BatchHeader, offset: int) -> Found | None:
        return first_at_or_after(batch, header, timestamp, offset)

    at = partition.log_start_offset
    return (yield from _search(layout, partition, at, timestamp, pick))


def find_latest(layout: Layout, partition: Partition) -> Search:
    """The first committed record with the largest timestamp (KIP-734); None in an empty log.
    Raises Damaged, OSError."""
    number = partition.number
    start = partition.log_start_offset
    extent = yield from _next_extent(layout, number, start, NO_TIMESTAMP + 1)
    if extent is None:
        return None
    # Log start may lie in this one: what its batches say may be true of deleted records only.
    row, look = extent
    edge: Found | None = yield partial(look, partial(_latest_in, offset=start))
    best = NO_TIMESTAMP if edge is None else edge[1]
    later = False
    at = row.last + 1
    while (source := _next_source(layout, number, at, best + 1)) is not None:
        found = source.max_timestamp
        if source.first < at:
            found = yield partial(source.latest, at)
        if found > best:
            best, later = found, True
        at = source.last + 1
    if not later:
        return edge
    return (yield from _search(layout, partition, row.last + 1, best, latest))


def search(steps: Search, submit: Submit, done: Callable[[Found | Exception | None], None]) -> None:
    """Go through a search; `done` gets what it returns or raises, on the loop."""

    def step(result: Any) -> None:
        try:
            failed = isinstance(result, Exception)
            job = steps.throw(result) if failed else steps.send(result)
        except StopIteration as stop:
            done(stop.value)
        except Exception as error:
            done(error)
        else:
            submit(job, step)

    step(None)


def _search(layout: Layout, partition: Partition, at: int, timestamp: int, pick: Pick) -> Search:
    """What `pick` takes from the first batch that has it, from offset `at` on, among those that
    reach `timestamp`."""
    while True:
        extent = yield from _next_extent(layout, partition.number, at, timestamp)
        if extent is None:
            return None
        row, look = extent
        inside = partial(_first_in, offset=at, timestamp=timestamp, pick=pick)
        found: Found | None = yield partial(look, inside)
        if found is not None:
            return found
        at = row.last + 1


def _next_extent(
    layout: Layout, number: int, at: int, timestamp: int
) -> Generator[Job, Any, tuple[_Row, _Look] | None]:
    """The first extent that may hold a record at or after `timestamp` from offset `at` on."""
    while True:
        source = _next_source(layout, number, at, timestamp)
        if source is None:
            return None
        row = yield partial(source.find, at, timestamp)
        if row is None:
            at = source.last + 1
            continue
        look = source.reader(layout, row)
        if look is not None:
            return row, look
        # Sealed in the meantime: the next round finds it there.


def _next_source(layout: Layout, number: int, at: int, timestamp: int) -> _Source | None:
    """The first segment that may hold a record at or after `timestamp` from offset `at` on."""
    best: _Source | None = None
    chain = layout.chain(number)
    for sealed, last in zip(chain.segments, chain.lasts, strict=True):
        totals = sealed.totals(number)
        if last >= at and totals is not None and totals.max_timestamp >= timestamp:
            best = _Sealed(sealed, totals)
            break
    for segment in layout.unsealed():
        extents = segment.index.partitions.get(number)
        if extents is None or extents.lasts[-1] < at or extents.max_timestamp < timestamp:
            continue
        if best is None or extents.first < best.first:
            best = _Unsealed(segment, extents)
    return best


# ----------------------------------------------------------------------- extents of one segment


class _Row(NamedTuple):
    """One extent: its last offset, and where it lies."""

    last: int
    #: In a sealed segment its row, in another one commit, slot, position and length.
    place: tuple[int, ...]


#: Looks for a record in an extent's bytes.
_Inside = Callable[[memoryview], Found | None]
#: Gets the bytes and has them looked at, on a thread.
_Look = Callable[[_Inside], Found | None]


class _Source(ABC):
    """One partition's extents in one segment. `find` and `latest` run on a thread."""

    first: int
    last: int
    max_timestamp: int

    def find(self, at: int, timestamp: int) -> _Row | None:
        """The first extent from offset `at` on that reaches `timestamp`."""
        for start, times in self._blocks(at):
            if max(times) >= timestamp:
                return self._row(next(i for i, t in enumerate(times, start) if t >= timestamp))
        return None

    def latest(self, at: int) -> int:
        """The largest timestamp of extents from offset `at` on."""
        return max((max(times) for _, times in self._blocks(at)), default=NO_TIMESTAMP)

    @abstractmethod
    def reader(self, layout: Layout, row: _Row) -> _Look | None:
        """What looks into that extent; None when it has moved."""

    @abstractmethod
    def _blocks(self, at: int) -> Iterator[tuple[int, Sequence[int]]]:
        """Max timestamps of extents from offset `at` on: index of the first, and some of them."""

    @abstractmethod
    def _row(self, index: int) -> _Row: ...


class _Sealed(_Source):
    def __init__(self, segment: SealedSegment, totals: Totals) -> None:
        self._segment = segment
        self._totals = totals
        self.first = totals.first
        self.last = totals.last
        self.max_timestamp = totals.max_timestamp

    def _blocks(self, at: int) -> Iterator[tuple[int, Sequence[int]]]:
        self._segment.check()
        index, totals = self._segment.index, self._totals
        stop = totals.start + totals.rows
        for start in range(index.locate(totals, at), stop, _BLOCK):
            yield start, index.times[start : min(start + _BLOCK, stop)]

    def _row(self, index: int) -> _Row:
        return _Row(self._segment.index.lasts[index], (index,))

    def reader(self, layout: Layout, row: _Row) -> _Look:
        (index,) = row.place
        segment = self._segment
        position, length = segment.index.positions[index], segment.index.lengths[index]

        def look(inside: _Inside) -> Found | None:
            bring_in(segment, position, position + length)
            return _look(segment.path, segment.extent(index), inside)

        return look


class _Unsealed(_Source):
    def __init__(self, segment: ActiveSegment, extents: ActiveExtents) -> None:
        self._segment = segment
        self._extents = extents
        #: The index grows while the thread looks at it: this much is there.
        self._count = len(extents.lasts)
        self.first = extents.first
        self.last = extents.lasts[-1]
        self.max_timestamp = extents.max_timestamp

    def _blocks(self, at: int) -> Iterator[tuple[int, Sequence[int]]]:
        extents, count = self._extents, self._count
        for start in range(extents.locate(at), count, _BLOCK):
            stop = min(start + _BLOCK, count)
            rows = extents.rows[start * ACTIVE_ROW_SIZE : stop * ACTIVE_ROW_SIZE]
            yield start, [time for (time,) in _ACTIVE_TIME.iter_unpack(rows)]

    def _row(self, index: int) -> _Row:
        _, last, _, commit, position, length, slot, _ = self._extents.row(index)
        return _Row(last, (commit, slot, position, length))

    def reader(self, layout: Layout, row: _Row) -> _Look | None:
        segment = self._segment
        if segment not in layout.unsealed():
            return None
        return partial(_look, segment.path, memoryview(segment.get(*row.place)))


def _look(path: Path, view: memoryview, inside: _Inside) -> Found | None:
    try:
        return inside(view)
    except CorruptBatch as error:
        raise Damaged(path, str(error)) from None


def _first_in(view: memoryview, offset: int, timestamp: int, pick: Pick) -> Found | None:
    """The record picked from the first batch that has one."""
    for batch, header in _batches(view, offset, timestamp):
        with suppress(KafkaError):  # its producer's doing: no record of it can be read
            found = pick(batch, header, offset)
            if found is not None:
                return found
    return None


def _latest_in(view: memoryview, offset: int) -> Found | None:
    """The first record with the largest timestamp from `offset` on."""
    best: Found | None = None
    for batch, header in _batches(view, offset, NO_TIMESTAMP + 1):
        with suppress(KafkaError):
            found = (
                None if best and header.max_timestamp <= best[1] else latest(batch, header, offset)
            )
            if found is not None and (best is None or found[1] > best[1]):
                best = found
    return best


def _batches(
    view: memoryview, offset: int, timestamp: int
) -> Iterator[tuple[memoryview, BatchHeader]]:
    """The batches that may hold a record at or after `timestamp` from `offset` on, each with the
    right CRC. Raises CorruptBatch."""
    for pos, header in walk(view):
        if header.max_timestamp < timestamp or header.last_offset < offset:
            continue
        if not crc_ok(view, header, pos):
            raise CorruptBatch(f"the batch with offset {header.base_offset} is altered")
        yield view[pos : pos + header.size], header
