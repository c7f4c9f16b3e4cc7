"""What is alive of each segment, and what to do about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.log.errors import LogError
from ottla.log.folder import FORMAT
from ottla.log.segment import ActiveSegment, SealedSegment

_logger = logging.getLogger(__name__)

#: Extents smaller than this on average are joined by a rewrite.
FINE_BYTES: Final = 4096
#: This many small neighbours become one file.
MERGED: Final = 8
#: Files rewritten in one sweep only because their format is old.
MIGRATED: Final = 4


class Weight(NamedTuple):
    """What is alive of a sealed segment."""

    segment: SealedSegment
    #: Bytes of all extents, and of those that are alive, and how many these are.
    total: int
    live: int
    rows: int

    @property
    def mostly_dead(self) -> bool:
        """Under half of its records are alive."""
        return 2 * self.live < self.total

    @property
    def wasteful(self) -> bool:
        """Joined and without journals it would be smaller or quicker to read. Rewriting it a
        second time would give the same."""
        if self.segment.name.generation:
            return False
        return self.live < FINE_BYTES * self.rows or 2 * self.live < self.segment.size

    @property
    def outdated(self) -> bool:
        """Written in an older format."""
        return self.segment.format < FORMAT


class Weighed(NamedTuple):
    weights: list[Weight]
    #: Bytes of dead partitions in the active segment.
    active_dead: int
    #: Partitions met that no log start was given for.
    unknown: set[int]


def weigh(
    segments: Sequence[SealedSegment],
    active: ActiveSegment,
    starts: Mapping[int, int],
    pause: Callable[[], None],
) -> Weighed:
    """On the background thread. Segments whose index is damaged are left out, and logged."""
    weights: list[Weight] = []
    unknown: set[int] = set()
    for segment in segments:
        try:
            weights.append(_weigh(segment, starts, unknown))
        except LogError as error:
            _logger.error("%s", error)
        pause()
    dead = 0
    for number, extents in list(active.index.partitions.items()):
        start = starts.get(number)
        if start is None:
            unknown.add(number)
        if start is None or start > extents.lasts[-1]:
            dead += extents.length
    return Weighed(weights, dead, unknown)


def _weigh(segment: SealedSegment, starts: Mapping[int, int], unknown: set[int]) -> Weight:
    total = live = rows = 0
    for part in segment.index.partitions():
        total += part.length
        start = starts.get(part.partition)
        if start is None:
            unknown.add(part.partition)
        elif start <= part.first:
            live += part.length
            rows += part.rows
        elif start <= part.last:
            segment.check()
            stop = part.start + part.rows
            first = segment.index.locate(part, start)
            live += sum(segment.index.lengths[first:stop])
            rows += stop - first
    return Weight(segment, total, live, rows)


def plan(
    weights: Sequence[Weight], *, segment_bytes: int, span_ms: int, warm: int, lost: Sequence[int]
) -> list[list[Weight]]:
    """Which segments to rewrite, each list into one file; those without life are left out.

    weights: ascending. span_ms: a file may stand for at most this much time (-1: any), or the
    newest of it would keep the oldest on disk. warm: the newest so many are read from memory, and
    left unless they are mostly dead. lost: commits of files that were set aside; none may vanish
    within a wider file.
    """
    alive = [weight for weight in weights if weight.rows]
    cold = alive[: len(alive) - warm] if warm else alive
    groups: list[list[Weight]] = []
    run: list[Weight] = []

    def close() -> None:
        if len(run) >= MERGED:
            groups.append(run.copy())
        else:
            groups.extend([w] for w in run if w.mostly_dead or w.wasteful)
        run.clear()

    for weight in cold:
        small = 8 * weight.live < segment_bytes
        if run and not (small and _fits([*run, weight], segment_bytes, span_ms, lost)):
            close()
        run.append(weight)
        if not small:
            close()
    close()
    groups.extend([weight] for weight in alive[len(cold) :] if weight.mostly_dead)
    taken = {id(weight) for group in groups for weight in group}
    outdated = [weight for weight in alive if weight.outdated and id(weight) not in taken]
    groups.extend([weight] for weight in outdated[:MIGRATED])
    return groups


def _fits(run: Sequence[Weight], segment_bytes: int, span_ms: int, lost: Sequence[int]) -> bool:
    first, last = run[0].segment, run[-1].segment
    return (
        sum(weight.live for weight in run) <= segment_bytes
        and (span_ms < 0 or last.time_ms - first.time_ms <= span_ms)
        and not any(first.last < commit < last.first for commit in lost)
    )
