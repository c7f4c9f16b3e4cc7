"""Retention: from which offset on a partition is kept, by the age and size of its records.

Kafka's rules (`UnifiedLog.deleteRetentionMsBreachedSegments` and `...SizeBreachedSegments`): from
the oldest on, whole units go whose newest record is too old, or while at least retention.bytes
stay. The unit of age is a partition's part of a segment; segments are rolled at a quarter of the
shortest retention. The unit of size is an extent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.log.extents import ACTIVE_ROW_SIZE, ActiveExtents
from ottla.log.layout import Layout
from ottla.log.options import PartitionSettings
from ottla.log.partition import Partition
from ottla.log.segment import ActiveSegment, SealedSegment

_BLOCK: Final = 512
#: The length in an ACTIVE_ROW.
_ACTIVE_LENGTH: Final = Struct("<36xI4x")


class Part(NamedTuple):
    """One partition's part of one segment."""

    last: int
    length: int
    #: Of its records, or of the segment's last commit where they have none.
    time_ms: int
    source: SealedSegment | ActiveSegment


def parts(layout: Layout, number: int, start: int) -> Iterator[Part]:
    """From the one that holds the offset `start` on, oldest first."""
    chain = layout.chain(number)
    for sealed, last in zip(chain.segments, chain.lasts, strict=True):
        totals = sealed.totals(number)
        if last >= start and totals is not None:
            time = totals.max_timestamp if totals.max_timestamp >= 0 else sealed.time_ms
            yield Part(last, totals.length, time, sealed)
    for segment in (*layout.rolled, layout.active):
        extents = segment.index.partitions.get(number)
        if extents is not None and extents.lasts[-1] >= start:
            time = extents.max_timestamp if extents.max_timestamp >= 0 else segment.time_ms
            yield Part(extents.lasts[-1], extents.length, time, segment)


def kept_from(
    layout: Layout, partition: Partition, settings: PartitionSettings, now_ms: int
) -> int:
    """Where the log of `partition` should start. Raises Damaged."""
    start = partition.log_start_offset
    if not settings.delete:
        return start
    if settings.retention_ms >= 0:
        for part in parts(layout, partition.number, start):
            if now_ms - part.time_ms <= settings.retention_ms:
                break
            start = part.last + 1
    if settings.retention_bytes >= 0:
        start = _within(layout, partition.number, start, settings.retention_bytes)
    return start


def _within(layout: Layout, number: int, start: int, retention_bytes: int) -> int:
    """The last start that leaves at least `retention_bytes`; as it is while there is little more,
    or each pass would move it by a few bytes."""
    excess = layout.size(number, start) - retention_bytes
    if excess <= retention_bytes // 8:
        return start
    for part in parts(layout, number, start):
        lasts, blocks = _extents(part.source, number, start)
        for row, lengths in blocks:
            if (size := sum(lengths)) <= excess:
                excess -= size
                start = lasts[row + len(lengths) - 1] + 1
                continue
            for index, length in enumerate(lengths, row):
                if length > excess:
                    return start
                excess -= length
                start = lasts[index] + 1
    return start


def _extents(
    source: SealedSegment | ActiveSegment, number: int, start: int
) -> tuple[Sequence[int], Iterator[tuple[int, Sequence[int]]]]:
    """Last offsets of a partition's extents in a segment, and their lengths from `start` on, in
    blocks: index of the first, lengths. Raises Damaged."""
    if isinstance(source, ActiveSegment):
        extents = source.index.partitions[number]
        return extents.lasts, _active_lengths(extents, extents.locate(start))
    source.check()
    index = source.index
    totals = source.totals(number)
    assert totals is not None
    rows = range(index.locate(totals, start), totals.start + totals.rows, _BLOCK)
    stop = totals.start + totals.rows
    return index.lasts, ((row, index.lengths[row : min(row + _BLOCK, stop)]) for row in rows)


def _active_lengths(extents: ActiveExtents, first: int) -> Iterator[tuple[int, Sequence[int]]]:
    for row in range(first, len(extents.lasts), _BLOCK):
        block = bytes(extents.rows[row * ACTIVE_ROW_SIZE : (row + _BLOCK) * ACTIVE_ROW_SIZE])
        yield row, [length for (length,) in _ACTIVE_LENGTH.iter_unpack(block)]
