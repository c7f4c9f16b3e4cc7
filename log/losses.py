"""What is lost with a damaged segment, and how the rest goes on without it.

No offset may be given out twice, and nobody may be told that a record was never there. So for every
partition that may have had its newest records in the damaged file the next offset is raised
beyond all that the file can have held, its leader epoch rises (clients then ask where they are),
and reads between are refused with the file's name (reading.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.log.commit import IDEMPOTENT
from ottla.log.errors import Damaged
from ottla.log.extents import BadIndex, SealedIndex, read_footer
from ottla.log.folder import SealedName, parse_active
from ottla.log.layout import Layout, Missing
from ottla.log.options import Change, Table
from ottla.log.partition import KEY, partition_row, read_row
from ottla.log.producers import Producers
from ottla.log.replay import replay_batches
from ottla.log.salvage import Found, Salvage
from ottla.log.segment import map_file
from ottla.log.state import State

_logger = logging.getLogger(__name__)

#: Commit numbers left free behind a damaged newest segment, whose last one is not known.
NUMBER_GAP = 1 << 20


class Loss(NamedTuple):
    """A damaged file that still has its own name."""

    path: Path
    first: int
    #: None: it was the newest, nobody knows.
    last: int | None


class Held(NamedTuple):
    """What a damaged file is known to have held."""

    #: The offset after the last known batch, by partition.
    ends: dict[int, int]
    #: There may have been more.
    more: bool
    last_commit: int


def holes(layout: Layout, bad: list[str], applied: int) -> list[tuple[int, int]]:
    """First and last commit of what was committed and is in no file, as far as numbers tell.

    bad: names of files that were set aside. applied: the last commit that is in the checkpoint.
    Sealed files may be dropped, so numbers between them say nothing; but behind an unsealed file
    comes the next commit, and no file ends before what the checkpoint holds.
    """
    aside = [found for name in bad if (found := range_of(name)) is not None]
    unsealed = [(s.first, s.last) for s in layout.rolled]
    ranges = [*((s.first, s.last) for s in layout.sealed), *aside, *unsealed]
    missing = []
    for at, (_, last) in enumerate(unsealed, len(ranges) - len(unsealed)):
        after = last + 1
        others = [first for first, _ in ranges[:at] + ranges[at + 1 :] if first >= after]
        following = min(others, default=after)
        if 0 < following - after < NUMBER_GAP:
            missing.append((after, following - 1))
    # Of a file that was set aside only its first commit may be known.
    newest = max((first for first, _ in ranges), default=1)
    ends = [first if last is None else last for first, last in ranges]
    end = max([newest - 1, *ends])
    if applied > end and (newest, None) not in aside:
        missing.append((end + 1, applied))
    return missing


def range_of(name: str) -> tuple[int, int | None] | None:
    """The commits of a file that was set aside, by its name."""
    stem = name.removesuffix(".bad")
    for candidate in (stem, stem.rpartition(".")[0]):
        sealed = SealedName.parse(candidate)
        if sealed is not None:
            return sealed.first, sealed.last
        first = parse_active(candidate)
        if first is not None:
            return first, None
    return None


def examine(loss: Loss, state: State, producers: Producers) -> Held:
    """Look for what the file held, and replay what can be read of its journal."""
    totals = _totals(loss.path)
    if totals is not None and loss.last is not None and loss.last <= state.applied:
        return Held(totals, False, loss.last)
    below = None if loss.last is None else loss.last + 1
    found = Salvage(loss.path, loss.first, below).commits()
    return replay(loss, found, state, producers)


def replay(loss: Loss, found: list[Found], state: State, producers: Producers) -> Held:
    """What a damaged file held, by the commits that were found in it; what the checkpoint lacks of
    their changes is replayed."""
    totals = _totals(loss.path)
    ends: dict[int, int] = {}
    numbers: set[int] = set()
    for commit, pieces, hurt in found:
        numbers.add(commit.number)
        for row in commit.rows:
            ends[row.partition] = max(ends.get(row.partition, 0), row.last + 1)
        if commit.number <= state.applied:
            continue
        state.apply(commit.changes())
        for piece in pieces:
            if piece.flags & IDEMPOTENT:
                replay_batches(piece.partition, piece.data, commit.time_ms, producers)
        for row in hurt:
            _logger.error(
                "%s: partition %d has lost records between offsets %d and %d",
                loss.path, row.partition, row.first, row.last,
            )  # fmt: skip
    last = max(numbers, default=loss.first - 1)
    if loss.last is None:
        return Held(ends, True, last)
    name = SealedName.parse(loss.path.name)
    complete = len(numbers) == loss.last - loss.first + 1
    if name is not None and name.generation:
        complete = False  # rewritten: its commits are numbered anew
    return Held(totals or ends, totals is None and not complete, loss.last)


def _totals(path: Path) -> dict[int, int] | None:
    """The end of each partition by the index of a sealed file, if that part of it is sound."""
    try:
        file = map_file(path)
        index = SealedIndex(file, read_footer(file))
        return {totals.partition: totals.last + 1 for totals in index.partitions()}
    except (BadIndex, Damaged, OSError):
        return None


def raised(
    layout: Layout, state: State, loss: Loss, held: Held, segment_bytes: int
) -> Iterator[Change]:
    """Rows for the partitions whose next offset must be raised."""
    # A batch takes more than a byte for each of its offsets, unless it is squeezed very hard.
    skip = max(segment_bytes, loss.path.stat().st_size) if held.more else 0
    for key, value in state.scan(Table.PARTITIONS):
        (number,) = KEY.unpack(key)
        epoch, start, floor = read_row(value)
        known = max(layout.end(number), start, floor)
        held_end = held.ends.get(number, 0)
        end = max(known, held_end) + skip
        if end <= known or _seen_after(layout, number, loss):
            continue
        yield partition_row(number, epoch + 1, start, end)
        yield Change(Table.EPOCHS, key + (epoch + 1).to_bytes(4, "big"), end.to_bytes(8, "little"))


def _seen_after(layout: Layout, number: int, loss: Loss) -> bool:
    """Whether a segment behind the damaged one holds the partition: then its end is known."""
    if loss.last is None:
        return False
    for segment in layout.unsealed():
        if segment.first > loss.last and number in segment.index.partitions:
            return True
    return any(
        sealed.first > loss.last and sealed.totals(number) is not None for sealed in layout.sealed
    )


def uncovered(layout: Layout, missing: list[Missing]) -> list[Missing]:
    """Those whose commits are not all in other files (a damaged wide one hides narrow ones)."""
    ranges = sorted(
        [(s.first, s.last) for s in layout.sealed] + [(s.first, s.last) for s in layout.rolled]
    )
    left = []
    for one in missing:
        at = one.first
        for first, last in ranges:
            if first <= at <= last:
                at = last + 1
        if at <= one.last:
            left.append(one)
    return left
