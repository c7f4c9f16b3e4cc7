"""Compaction: when a partition with cleanup.policy=compact is due, and the steps of doing it.

A pass takes the partitions that are due, as many as their keys fit into memory: learns the keys of
what is new in each (cleaning.py), writes every sealed file anew from which something goes
(rewrite.py), oldest first, and then commits one row a partition: compacted up to here. Until that
row is true the next pass does the same again, which is harmless.

When (Kafka's `LogCleanerManager.grabFilthiestCompactedLog`): the new part is more than
min.cleanable.dirty.ratio of the whole, or its oldest record is older than max.compaction.lag.ms.
And, so that deleted keys leave a topic that nobody writes to any more: the latest delete horizon
has passed. Only what is sealed and in the checkpoint is looked at, up to the first file with a
record younger than min.compaction.lag.ms, and up to the last stable offset.

Runs as the steps of a sweep (sweep.py): never at the same time as one, which changes files too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.log.cleaning import KEY_BYTES, Cleaner
from ottla.log.errors import Damaged, LogError
from ottla.log.options import Change, PartitionSettings, StoreOptions, Table
from ottla.log.partition import KEY, read_row
from ottla.log.rewrite import rewrite
from ottla.log.segment import SealedSegment
from ottla.log.transactions import aborted_gone

if TYPE_CHECKING:
    from ottla.log.store import Store
    from ottla.log.sweep import Sweep

_logger = logging.getLogger(__name__)

#: What steps yield: units of work just done on the loop, or a job for the background thread.
Request = int | Callable[[], object]
Steps = Generator[Request, Any, None]

#: Rows in one commit, and how much of a tick's budget that takes.
_ROWS_AT_ONCE: Final = 500
_A_TICK: Final = 200

#: layout version, compacted up to, latest delete horizon (-1: no tombstone is left)
_ROW: Final = Struct("<Bqq")
_ROW_VERSION: Final = 1


def cleaned_row(number: int, cleaned: int, horizon: int) -> Change:
    """Partition `number` is compacted up to the offset `cleaned`."""
    row = _ROW.pack(_ROW_VERSION, cleaned, horizon)
    return Change(Table.CLEANED, KEY.pack(number), row)


def read_cleaned(row: bytes | None) -> tuple[int, int]:
    """Compacted up to, and the latest delete horizon, ms or -1."""
    if row is None:
        return 0, -1
    _, cleaned, horizon = _ROW.unpack(row)
    return cleaned, horizon


class Candidate(NamedTuple):
    """A partition that is to be compacted now and then."""

    number: int
    settings: PartitionSettings
    #: Log start; what the last compaction got to; the delete horizon it left.
    start: int
    cleaned: int
    horizon: int
    #: The last stable offset: what lies behind it is not decided.
    stable: int
    #: The files that may be looked at, oldest first.
    segments: list[SealedSegment]


class Due(NamedTuple):
    """A partition that is to be compacted now, up to the offset `until`."""

    candidate: Candidate
    until: int
    ratio: float


def assess(
    candidates: Sequence[Candidate], now_ms: int, pause: Callable[[], None]
) -> tuple[list[Due], list[LogError]]:
    """Which are due, the dirtiest first; and what could not be read. On the background thread."""
    due: list[Due] = []
    errors: list[LogError] = []
    for candidate in candidates:
        try:
            found = _assess(candidate, now_ms)
        except LogError as error:
            errors.append(error)
        else:
            if found is not None:
                due.append(found)
        pause()
    return sorted(due, key=lambda one: -one.ratio), errors


def _assess(candidate: Candidate, now_ms: int) -> Due | None:
    number, settings, _, cleaned, horizon, stable, segments = candidate
    clean = dirty = 0
    oldest = now_ms
    until = cleaned
    for segment in segments:
        totals = segment.totals(number)
        assert totals is not None, "it is in the partition's chain"
        if totals.last < cleaned:
            clean += totals.length
            continue
        latest = totals.max_timestamp if totals.max_timestamp >= 0 else segment.time_ms
        if settings.min_compaction_lag_ms > 0 and latest > now_ms - settings.min_compaction_lag_ms:
            break
        if max(totals.first, cleaned) >= stable:
            break
        segment.check()
        index = segment.index
        split, stop = index.locate(totals, cleaned), index.locate(totals, stable)
        clean += sum(index.lengths[totals.start : split])
        dirty += sum(index.lengths[split:stop])
        oldest = min(oldest, index.times[split] if index.times[split] >= 0 else segment.time_ms)
        until = min(totals.last + 1, stable)
    ratio = dirty / (clean + dirty) if dirty else 0.0
    if (
        ratio > settings.min_cleanable_dirty_ratio
        or (dirty and now_ms - oldest > settings.max_compaction_lag_ms)
        or 0 <= horizon <= now_ms
    ):
        return Due(candidate, until, ratio)
    return None


class Compaction:
    """Says when a pass is due and makes its steps."""

    def __init__(self, store: Store, sweep: Sweep) -> None:
        self._store = store
        self._sweep = sweep
        self._next_ms: int | None = None

    def due(self, steady_ms: int) -> bool:
        """Whether it is time to look."""
        options = self._store.options
        if self._next_ms is None:
            self._next_ms = steady_ms + options.compaction_check_ms
        return options.compaction and steady_ms >= self._next_ms

    def retime(self, before: StoreOptions) -> None:
        """Options changed: see Maintenance.retime."""
        if self._next_ms is not None:
            now = self._store.options.compaction_check_ms
            self._next_ms += now - before.compaction_check_ms

    def steps(self, now_ms: int) -> Steps:
        """One pass. now_ms: the time of day, for the timestamps of records."""
        self._next_ms = self._store.steady_ms + self._store.options.compaction_check_ms
        candidates = yield from self._candidates(now_ms)
        if not candidates:
            return
        due, errors = yield partial(assess, candidates, now_ms, self._sweep.pause)
        for error in errors:
            self._give_up(error)
        if not due:
            return
        starts = yield from self._sweep.log_starts()
        try:
            cleaners = yield from self._learn(due, now_ms)
            if not (yield from self._announce(cleaners)):
                return
            if not (yield from self._clean(due, cleaners, starts)):
                return
        except LogError as error:
            self._give_up(error)
            return
        yield from self._commit(cleaners)

    def _give_up(self, error: LogError) -> None:
        """A file that cannot be read is left as it is, and so are the partitions in it."""
        _logger.error("compaction: %s", error)
        if isinstance(error, Damaged):
            sealed = self._store.layout.sealed
            self._sweep.given_up.update(s.name for s in sealed if s.path == error.path)

    # ------------------------------------------------------------------------------------- who

    def _candidates(self, now_ms: int) -> Generator[Request, Any, list[Candidate]]:
        store = self._store
        found: list[Candidate] = []
        for index, number in enumerate(store.partitions.configured()):
            if index % 16 == 0:
                yield 1
            settings = store.settings(number)
            if not settings.compact:
                continue
            yield 5
            try:
                partition = store.partition(number)
                start, stable = partition.log_start_offset, partition.last_stable_offset
            except KeyError:
                continue  # admitted, or dropped in the meantime
            cleaned, horizon = read_cleaned(store.get(Table.CLEANED, KEY.pack(number)))
            if store.layout.missing:
                # The values a tombstone stands against may come back with `ottla repair`.
                horizon = -1
            segments = self._segments(number, start)
            behind = bool(segments) and segments[-1].totals(number)
            if (behind and behind.last >= cleaned) or 0 <= horizon <= now_ms:
                cleaned = max(cleaned, start)
                found.append(Candidate(number, settings, start, cleaned, horizon, stable, segments))
        return found

    def _segments(self, number: int, start: int) -> list[SealedSegment]:
        """The partition's sealed files up to the first that may not be touched yet; none where
        one of them cannot be read."""
        layout = self._store.layout
        before = layout.first_kept(self._store.state.applied)
        chain = layout.chain(number)
        segments = []
        for segment, last in zip(chain.segments, chain.lasts, strict=True):
            if segment.last >= before:
                break
            if segment.name in self._sweep.given_up:
                return []
            if last >= start:
                segments.append(segment)
        return segments

    # -------------------------------------------------------------------------------- the steps

    def _learn(self, due: list[Due], now_ms: int) -> Generator[Request, Any, list[Cleaner]]:
        """Cleaners that have learned what is new, until the memory for keys is used up."""
        store = self._store
        room = max(1, store.options.compaction_keys_bytes // KEY_BYTES)
        cleaners: list[Cleaner] = []
        for candidate, until, _ in due:
            last_batches = set()
            for offset in store.producers.last_batches(candidate.number, until):
                last_batches.add(offset)
                yield 1
            cleaner = Cleaner(
                candidate.number,
                candidate.start,
                candidate.cleaned,
                now_ms=now_ms,
                delete_retention_ms=candidate.settings.delete_retention_ms,
                drop_tombstones=not store.layout.missing,
                last_batches=last_batches,
                aborted=store.partitions.aborted(candidate.number).copy(),
                pause=self._sweep.pause,
            )
            whole = yield partial(cleaner.learn, candidate.segments, until, room)
            cleaners.append(cleaner)
            room -= len(cleaner.latest)
            if not whole or room <= 0:
                self._next_ms = self._store.steady_ms  # the rest, as soon as this is done
                break
        return cleaners

    def _announce(self, cleaners: list[Cleaner]) -> Generator[Request, Any, bool]:
        """Give each partition its row before any file of it changes: whoever finds a gap in it then
        knows that compaction may have made it. False when that cannot be committed."""
        store = self._store
        new = [c for c in cleaners if store.get(Table.CLEANED, KEY.pack(c.number)) is None]
        if not new:
            return True
        ticket = store.change([cleaned_row(cleaner.number, 0, -1) for cleaner in new])
        store.flush()
        while not ticket.done:
            yield _A_TICK
        return ticket.error is None

    def _clean(
        self, due: list[Due], cleaners: list[Cleaner], starts: dict[int, int]
    ) -> Generator[Request, Any, bool]:
        """Write anew the files from which something goes, oldest first: a tombstone must not be
        gone before what it stands against. False when the disk has no room for it."""
        store, sweep = self._store, self._sweep
        of: dict[int, list[Cleaner]] = {}
        files: dict[int, SealedSegment] = {}
        for (candidate, _, _), cleaner in zip(due, cleaners, strict=False):
            for segment in candidate.segments:
                files[segment.first] = segment
                of.setdefault(segment.first, []).append(cleaner)
        for first in sorted(files):
            segment = files[first]
            if not (yield partial(_any_changes, of[first], segment)):
                continue
            yield from self._fill(starts, segment)
            need = len(segment.data)
            room = store.folder.free_bytes() - store.options.disk_reserve_bytes
            if need + need // 8 > room:
                _logger.warning("compaction waits for %d free bytes", need + need // 8 - room)
                return False
            yield from sweep.keep_journals([segment])
            filters = {cleaner.number: cleaner.filter for cleaner in of[first]}
            made = yield partial(rewrite, store.folder, [segment], starts, sweep.pause, filters)
            yield from sweep.replace([segment], made, "compaction")
        return True

    def _fill(self, starts: dict[int, int], segment: SealedSegment) -> Steps:
        """The log starts of partitions that nobody has told the settings of."""
        for index, number in enumerate(segment.index.numbers()):
            if index % 16 == 0:
                yield 1
            if number not in starts:
                yield 3
                row = self._store.get(Table.PARTITIONS, KEY.pack(number))
                if row is not None:  # else it is gone
                    starts[number] = read_row(row)[1]

    def _commit(self, cleaners: list[Cleaner]) -> Steps:
        """Say how far each partition is compacted, and forget the aborted transactions of which
        nothing is left: nobody reads any more what they had here."""
        store = self._store
        configured = set(store.partitions.configured())
        there = [cleaner for cleaner in cleaners if cleaner.number in configured]
        rows = [cleaned_row(one.number, one.end, one.horizon) for one in there]
        for one in there:
            known = store.partitions.aborted(one.number).markers if one.unmarked else ()
            rows += [
                aborted_gone(one.number, marker) for marker in one.unmarked.intersection(known)
            ]
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            store.change(rows[at : at + _ROWS_AT_ONCE])
            store.flush()
            yield _A_TICK


def _any_changes(cleaners: list[Cleaner], segment: SealedSegment) -> bool:
    return any(cleaner.changes(segment) for cleaner in cleaners)
