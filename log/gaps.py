"""Offsets that no file holds, and whether that is a loss.

Compaction leaves gaps, and they are no loss. Within a file, and between files whose commits join, a
gap is compaction's unless one of the files was damaged. Between files whose commits do not join a
file is missing: it was dropped with nothing alive in it, or it is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.log.compaction import read_cleaned
from ottla.log.extents import ACTIVE_ROW
from ottla.log.layout import Layout, Missing
from ottla.log.losses import uncovered
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
        cleaned, _ = read_cleaned(state.get(Table.CLEANED, key))
        before: _Extent | None = None
        for extent in sorted(_extents(layout, number)):
            if extent.first > at and not (
                _spared(layout, damaged, before, extent, extent.first <= cleaned)
            ):
                yield Gap(number, at, extent.first - 1, False)
            at = max(at, extent.last + 1)
            before = extent
        if floor > at:
            yield Gap(number, at, floor - 1, True)


def _spared(
    layout: Layout,
    damaged: Sequence[tuple[int, int]],
    before: _Extent | None,
    extent: _Extent,
    cleaned: bool,
) -> bool:
    """Whether nothing is lost between two extents."""
    low = 0 if before is None else before.file_first
    if any(first <= extent.file_last and last >= low for first, last in damaged):
        return False
    if cleaned:
        return True
    if before is None:
        low = extent.file_first - 1
        return low == 0 or not _absent(layout, low, low)
    return not _absent(layout, before.file_last + 1, extent.file_first - 1)


def _absent(layout: Layout, first: int, last: int) -> bool:
    """Whether one of these commits is in no file."""
    return first <= last and bool(uncovered(layout, [Missing(first, last, Path())]))


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
