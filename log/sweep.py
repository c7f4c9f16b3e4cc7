"""Sweeps: moving log starts as retention asks, and giving back the disk space of dead records.

Time, size, DeleteRecords and topic deletion all come to one thing: a partition's log start moves
(a journal entry), or the partition ends. A sweep looks at that from time to time:

1. on the loop, a few partitions a tick: move log starts (retention.py), forget the aborted
   transactions below them;
2. on the background thread: weigh each sealed segment, and the active one (weights.py);
3. on the loop: decide; then, one after the other on the background thread, remove what is dead,
   rewrite what is mostly dead, wasteful, or one of many small ones (rewrite.py). If most of the
   active segment is dead it is rolled, and a later sweep finds it sealed.

A segment is touched only when the checkpoint holds its journal: `State.applied` is past it. Files
of an older format are rewritten too, a few in each sweep.

Compactions (compaction.py) change files too, so they take turns with the sweeps, in the same steps.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.log.background import Background
from ottla.log.compaction import Compaction, Request, Steps
from ottla.log.errors import Closed, LogError
from ottla.log.folder import Folder, SealedName
from ottla.log.options import StoreOptions, Table
from ottla.log.partition import KEY, read_row
from ottla.log.retention import kept_from
from ottla.log.rewrite import rewrite
from ottla.log.segment import ActiveSegment, SealedSegment
from ottla.log.tickets import Ticket
from ottla.log.transactions import aborted_gone
from ottla.log.weights import Weighed, plan, weigh
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.log.store import Store

_logger = logging.getLogger(__name__)

#: What one tick may do, in units of a few microseconds.
BUDGET: Final = 200
#: The first sweep comes at most this much after the start, in ms.
FIRST_MS: Final = 30_000
#: One that was asked for comes this much after the last one began.
SOON_MS: Final = 1000
#: Rows let go of in one commit.
ROWS_AT_ONCE: Final = 500


class Sweep:
    """Sweeps again and again, a little in each tick."""

    def __init__(self, store: Store, background: Background) -> None:
        self._store = store
        self._background = background
        self._compaction = Compaction(store, self)
        self._compacted_last = False
        self._steps: Steps | None = None
        self._waiting = False
        self._stopped = False
        self._asked = False
        self._began_ms: int | None = None
        #: Partitions that are gone; numbers never come back.
        self._gone: set[int] = set()
        #: Files that could not be read: they are left as they are.
        self.given_up: set[SealedName] = set()
        #: The active segment that was rolled because most of it is dead.
        self._rolled: ActiveSegment | None = None

    def soon(self) -> None:
        """Something died: do not wait for the next regular sweep."""
        self._asked = True

    def stop(self) -> None:
        """No more of it: a rewrite that is under way ends at its next pause."""
        self._steps = None
        self._waiting = True
        self._stopped = True

    def pause(self) -> None:
        """On the background thread, often."""
        if self._stopped:
            raise Closed("the store is being closed")
        self._background.pause()

    def tick(self, now_ms: int, steady_ms: int) -> None:
        """Time passes. now_ms: for what is held against records' timestamps. steady_ms: for when
        something is due."""
        if self._waiting:
            return
        if self._steps is None:
            self._steps = self._next(now_ms, steady_ms)
        self._advance(None)

    def _next(self, now_ms: int, steady_ms: int) -> Steps | None:
        """A sweep or a compaction, by turns where both are due."""
        sweep, compaction = self._due(steady_ms), self._compaction.due(steady_ms)
        if compaction and not (sweep and self._compacted_last):
            self._compacted_last = True
            return self._compaction.steps(now_ms)
        if not sweep:
            return None
        self._compacted_last = False
        self._began_ms = steady_ms
        self._asked = False
        return self._sweep(now_ms)

    def retime(self, before: StoreOptions) -> None:
        """Options changed: see Maintenance.retime."""
        self._compaction.retime(before)

    def _due(self, steady_ms: int) -> bool:
        interval = self._store.options.retention_check_ms
        if self._began_ms is None:
            self._began_ms = steady_ms - interval + min(FIRST_MS, interval)
        passed = steady_ms - self._began_ms
        return passed >= interval or (self._asked and passed >= SOON_MS)

    def _advance(self, answer: object) -> None:
        """Go on until the budget of a tick is used up or a job is under way."""
        steps = self._steps
        if steps is None:
            return
        budget = BUDGET
        while budget > 0:
            try:
                if isinstance(answer, Exception):
                    request = steps.throw(answer)
                else:
                    request = steps.send(answer)
            except StopIteration:
                self._steps = None
                return
            except (LogError, OSError, KafkaError) as error:
                _logger.error("giving back disk space: %s", error)
                self._steps = None
                return
            answer = None
            if isinstance(request, int):
                budget -= request
                continue
            self._waiting = True
            self._background.submit(request, self._answered)
            return

    def _answered(self, answer: object) -> None:
        self._waiting = False
        self._advance(answer)

    # ------------------------------------------------------------------------------ one sweep

    def _sweep(self, now_ms: int) -> Steps:
        yield from self._move_starts(now_ms)
        starts = yield from self.log_starts()
        dead, groups = yield from self._decide(starts)
        if dead:
            try:
                yield from self.keep_journals(dead)
            except (LogError, OSError) as error:
                # Room is needed more than a second copy of the state, and dropping makes some.
                _logger.warning("the state cannot be copied: %s", error)
            yield from self.replace(dead, None, "drop")
        for group in groups:
            yield from self._rewrite(group, starts)

    def _decide(
        self, starts: dict[int, int]
    ) -> Generator[Request, Any, tuple[list[SealedSegment], list[list[SealedSegment]]]]:
        """Segments to drop, and segments to rewrite, each list into one file. Rolls the active one
        where that is due."""
        store = self._store
        weighed = yield from self._weigh(starts)
        self._roll_dead(weighed.active_dead)
        retention_ms = store.partitions.shortest_retention_ms()
        planned = plan(
            weighed.weights,
            segment_bytes=store.options.segment_bytes,
            span_ms=-1 if retention_ms < 0 else retention_ms // 4,
            warm=store.options.warm_segments,
            lost=[missing.first for missing in store.layout.missing],
        )
        dead = [weight.segment for weight in weighed.weights if not weight.rows]
        groups = []
        room = store.folder.free_bytes() - store.options.disk_reserve_bytes
        for group in planned:
            need = sum(weight.live for weight in group)
            if need + need // 8 <= room:  # else only dropping whole files makes room
                groups.append([weight.segment for weight in group])
        return dead, groups

    def _move_starts(self, now_ms: int) -> Steps:
        """Let go of what retention lets go of."""
        store = self._store
        for number in store.partitions.configured():
            yield 2
            try:
                partition = store.partition(number)
                start = kept_from(store.layout, partition, store.settings(number), now_ms)
            except KeyError:
                continue  # admitted, or dropped in the meantime
            except LogError as error:
                _logger.error("%s", error)
                continue
            if start > partition.start_admitted:
                told = partial(_expired, store, number, partition.start_admitted, start)
                store.delete_records(partition, start).then(told)
                yield 10
            yield from self._forget_aborted(number, partition.log_start_offset)
        store.flush()
        ticket = store.settled()
        while not ticket.done:
            yield BUDGET
        self._asked = False  # what died until now is about to be weighed

    def _forget_aborted(self, number: int, start: int) -> Steps:
        """Let go of what is known of transactions whose marker lies below log start."""
        store = self._store
        while gone := store.partitions.aborted(number).markers_below(start, ROWS_AT_ONCE):
            store.change([aborted_gone(number, marker) for marker in gone])
            store.flush()
            ticket = store.settled()
            while not ticket.done:
                yield BUDGET
            if ticket.error is not None:
                return
            yield BUDGET

    def log_starts(self) -> Generator[Request, Any, dict[int, int]]:
        """Of all partitions whose settings are known."""
        store = self._store
        starts: dict[int, int] = {}
        for number in store.partitions.configured():
            yield 1
            try:
                starts[number] = store.partition(number).log_start_offset
            except KeyError:
                continue
        return starts

    def _weigh(self, starts: dict[int, int]) -> Generator[Request, Any, Weighed]:
        """Weigh what may be touched; fills in the log starts of partitions that nobody has told
        the settings of."""
        store = self._store
        while True:
            kept = store.layout.first_kept(store.state.applied)
            sealed = [
                segment
                for segment in store.layout.sealed
                if segment.last < kept and segment.name not in self.given_up
            ]
            weighed: Weighed = yield partial(weigh, sealed, store.layout.active, starts, self.pause)
            unknown = weighed.unknown - self._gone
            if not unknown:
                return weighed
            for number in unknown:
                yield 3
                row = store.get(Table.PARTITIONS, KEY.pack(number))
                if row is None:
                    self._gone.add(number)
                else:
                    starts[number] = read_row(row)[1]

    def _roll_dead(self, dead: int) -> None:
        """Roll the active segment when most of it is dead; sweep again when it is sealed."""
        store = self._store
        active = store.layout.active
        active.measure()
        if 2 * dead > active.used and 16 * active.used >= store.options.segment_bytes:
            self._rolled = active
            store.roll()
        rolled = self._rolled
        if rolled is None:
            return
        if rolled in store.layout.unsealed() or rolled.last > store.state.applied:
            self.soon()
        else:
            self._rolled = None
            self.soon()

    def _rewrite(self, segments: list[SealedSegment], starts: dict[int, int]) -> Steps:
        store = self._store
        yield from self.keep_journals(segments)
        try:
            made = yield partial(rewrite, store.folder, segments, starts, self.pause)
        except LogError as error:
            _logger.error("%s; it is left as it is", error)
            self.given_up.update(segment.name for segment in segments)
            return
        yield from self.replace(segments, made, "rewrite")

    def keep_journals(self, gone: list[SealedSegment]) -> Steps:
        """Before files go: what their journals say must be in the copy of the state too. Raises
        LogError, OSError."""
        copy = self._store.copy
        if max(segment.last for segment in gone) > copy.applied:
            yield copy.make

    def replace(self, gone: list[SealedSegment], made: SealedSegment | None, what: str) -> Steps:
        """Reads go to the new file from now on; the old ones are removed, readers keep theirs."""
        before, after = sum(segment.size for segment in gone), 0 if made is None else made.size
        files = "1 file" if len(gone) == 1 else f"{len(gone)} files"
        into = "nothing" if made is None else f"{made.name} ({after} bytes)"
        _logger.info("%s: %s from %s (%d bytes) into %s", what, files, gone[0].name, before, into)
        self._store.layout.replace(gone, [] if made is None else [made], None)
        yield partial(_remove, self._store.folder, gone, what)


def _expired(store: Store, number: int, before: int, start: int, done: Ticket) -> None:
    if done.error is None:
        store.partitions.expired(number, before, start)


def _remove(folder: Folder, gone: list[SealedSegment], what: str) -> None:
    """Unlink the files and let go of them, here: whoever gives up the last view of a file that is
    unlinked waits for its blocks to be freed, tens of ms for a large one."""
    while gone:
        folder.remove(gone[-1].path, what)
        del gone[-1]
