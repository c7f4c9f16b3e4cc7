"""Offsets that no file holds, and whether that is a loss.

Compaction leaves gaps, and gives a partition its row before it changes a file of it. So a gap is a
loss in a partition without that row, and where a file was damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.log.extents import ACTIVE_ROW
from ottla.log.layout import Layout
from ottla.log.options import Table
from ottla.log.partition import KEY, read_row
from ottla.log.state import State


class Gap(NamedTuple):
    """Offsets that are lost, or were never given out."""

    partition: int
    first: int
    last: int
    #: They may never have been given out: the next offset was raised to be sure.
    skipped: bool


class _Extent(NamedTuple):
    """An extent, and the commits of its file."""

    first: int
    last: int
    file_first: int
    file_last: int


def find_gaps(layout: Layout, state: State, damaged: Sequence[tuple[int, int]]) -> Iterator[Gap]:
    """What is lost of each partition.

    layout: sealed and rolled files. damaged: first and last commit of files of which not all could
    be read, whatever files hold the rest of them now.
    """
    for key, value in state.scan(Table.PARTITIONS):
        (number,) = KEY.unpack(key)
        _, at, floor = read_row(value)
        compacted = state.get(Table.CLEANED, key) is not None  # since before its first pass
        before: _Extent | None = None
        for extent in sorted(_extents(layout, number)):
            low = 0 if before is None else before.file_first
            hurt = any(first <= extent.file_last and last >= low for first, last in damaged)
            if extent.first > at and (hurt or not compacted):
                yield Gap(number, at, extent.first - 1, False)
            at = max(at, extent.last + 1)
            before = extent
        if floor > at:
            yield Gap(number, at, floor - 1, True)


def _extents(layout: Layout, number: int) -> Iterator[_Extent]:
    """All extents of a partition; an unsealed file may lie before a sealed one."""
    for sealed in layout.sealed:
        totals = sealed.totals(number)
        if totals is not None:
            for row in range(totals.start, totals.start + totals.rows):
                first, last = sealed.index.firsts[row], sealed.index.lasts[row]
                yield _Extent(first, last, sealed.first, sealed.last)
    for rolled in layout.rolled:
        extents = rolled.index.partitions.get(number)
        if extents is not None:
            for first, last, *_ in ACTIVE_ROW.iter_unpack(extents.rows):
                yield _Extent(first, last, rolled.first, rolled.last)
