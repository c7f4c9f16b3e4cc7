"""Which segments there are, oldest to newest: sealed, rolled (no index on disk yet), active.

Changed on the loop only. A partition's sealed segments are looked up when first asked for and
kept until the set changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.log.segment import ActiveSegment, SealedSegment


class Missing(NamedTuple):
    """Commits that lay in a file which was set aside."""

    first: int
    last: int
    path: Path


class Chain(NamedTuple):
    """One partition's sealed segments, oldest first, and its last offset in each."""

    segments: list[SealedSegment]
    lasts: list[int]


class Layout:
    """The segments of a store."""

    def __init__(self) -> None:
        self.sealed: list[SealedSegment] = []
        self.rolled: list[ActiveSegment] = []
        self._active: ActiveSegment | None = None
        self.missing: list[Missing] = []
        self._chains: dict[int, Chain] = {}

    @property
    def active(self) -> ActiveSegment:
        assert self._active is not None, "the store is being opened"
        return self._active

    @active.setter
    def active(self, segment: ActiveSegment) -> None:
        self._active = segment

    def unsealed(self) -> Iterator[ActiveSegment]:
        """Segments whose index is in RAM, newest first."""
        if self._active is not None:
            yield self._active
        yield from reversed(self.rolled)

    # ---------------------------------------------------------------------------------- changes

    def replace(
        self, gone: list[SealedSegment], come: list[SealedSegment], rolled: ActiveSegment | None
    ) -> None:
        """Sealed segments `gone`, and one rolled, make room for `come`."""
        dead = {id(segment) for segment in gone}
        kept = [segment for segment in self.sealed if id(segment) not in dead]
        self.sealed = sorted([*kept, *come], key=lambda segment: segment.first)
        if rolled is not None:
            self.rolled.remove(rolled)
        self._chains.clear()

    # --------------------------------------------------------------------------------- questions

    def chain(self, number: int) -> Chain:
        """The sealed segments that hold partition `number`."""
        chain = self._chains.get(number)
        if chain is None:
            found = [
                (segment, totals.last)
                for segment in self.sealed
                if (totals := segment.totals(number)) is not None
            ]
            chain = Chain([segment for segment, _ in found], [last for _, last in found])
            self._chains[number] = chain
        return chain

    def first_kept(self, applied: int) -> int:
        """The first commit whose file may not be dropped or rewritten yet: its journal is not in
        the checkpoint, or a file before it waits for its index (a start then takes what is missing
        behind that one for lost)."""
        return min([applied + 1, *(segment.first for segment in self.rolled)])

    def end(self, number: int) -> int:
        """The offset after the newest batch of the partition; 0 when there is none."""
        for segment in self.unsealed():
            extents = segment.index.partitions.get(number)
            if extents is not None:
                return extents.lasts[-1] + 1
        for sealed in reversed(self.sealed):
            totals = sealed.totals(number)
            if totals is not None:
                return totals.last + 1
        return 0

    def size(self, number: int, start: int) -> int:
        """Bytes of the partition's extents that reach `start` or later."""
        size = 0
        for segment in self.unsealed():
            extents = segment.index.partitions.get(number)
            if extents is None:
                continue
            size += extents.length
            for index in range(extents.locate(start)):
                size -= extents.row(index)[5]
        chain = self.chain(number)
        for at in range(bisect_left(chain.lasts, start), len(chain.lasts)):
            sealed = chain.segments[at]
            totals = sealed.totals(number)
            assert totals is not None
            size += totals.length
            if totals.first < start:
                size -= sum(sealed.index.lengths[totals.start : sealed.index.locate(totals, start)])
        return size

    def lost_between(self, after: int, before: int | None) -> Missing | None:
        """What was set aside of the commits between two segments; `before` None: up to now."""
        for missing in self.missing:
            if missing.first > after and (before is None or missing.last < before):
                return missing
        return None
