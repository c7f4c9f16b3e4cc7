"""Committing: groups in, one LMDB transaction, an outcome out.

A Committer does it on whichever thread calls it; a Writer is the thread that calls it under
durability `fsync`. While one commit flushes, everything that is admitted queues up and becomes
the next one. After a failure a Committer is done for: the store makes a new one.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

import lmdb

from ottla.log.commit import ROW_SIZE, Group, Row, encode
from ottla.log.errors import DiskFull, WriteFailed
from ottla.log.folder import Folder, active_name
from ottla.log.options import Change, StoreOptions
from ottla.log.segment import PAGE, TREE_PAGES, ActiveSegment

_logger = logging.getLogger(__name__)

#: What a commit writes besides its batches: the pages of the tree, the header.
_OVERHEAD = TREE_PAGES * PAGE
#: The system is asked for the free space at the latest after so many bytes.
_ASK_BYTES = 8 << 20
#: While no new segment can be begun, the old one may get so many times its extents.
_MOST_EXTENTS = 4


class Rolled(NamedTuple):
    old: ActiveSegment
    new: ActiveSegment


class Outcome(NamedTuple):
    """One commit that is true now. Without rows and changes it was only a roll."""

    number: int
    time_ms: int
    rows: list[Row]
    changes: Sequence[Change]
    groups: list[Group]
    rolled: Rolled | None


class CommitFailed(Exception):
    """`poisoned`: the segment's file may hold part of the commit and is not written again."""

    def __init__(self, error: WriteFailed, poisoned: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.poisoned = poisoned


class Committer:
    """Writes commits into the active segment, and makes the next one when it is full."""

    def __init__(
        self, folder: Folder, active: ActiveSegment, next_number: int, options: StoreOptions
    ) -> None:
        self._folder = folder
        self._options = options
        self.active = active
        self.next_number = next_number
        self._extents = active.index.count
        #: Free space when the system was asked last, when that was, what was written since.
        self._free_asked = 0
        self._asked_ms = 0
        self._written = 0
        #: Set by the loop: the segment is old enough, roll at the next commit.
        self.roll_due = False
        #: Why no new segment could be begun: the old one is written on, and no other is tried
        #: before the loop sets `try_roll`.
        self._put_off: str | None = None
        self.try_roll = False

    def commit(self, groups: list[Group]) -> Outcome:
        """Make the groups true, in one transaction. Raises CommitFailed."""
        options = self._options
        merged = groups[0]
        if len(groups) > 1:
            merged = Group(options.large_extent_bytes)
            for group in groups:
                merged.merge(group)
        number = self.next_number
        time_ms = merged.time_ms
        empty = not merged.extents and not merged.changes
        try:
            rolled = self._prepare(merged)
        except CommitFailed as failure:
            if failure.poisoned or not empty:
                raise
            _logger.error("no new segment is begun: %s", failure)
            rolled = None  # it was about nobody's records: nobody is failed for it
        if empty:
            return Outcome(number - 1, time_ms, [], (), groups, rolled)
        large, salt = options.large_extent_bytes, self.active.salt
        puts, rows = encode(number, time_ms, merged.extents, merged.changes, large, salt)
        try:
            self._folder.step("commit: write")
            self.active.write(puts)
            self._folder.step("commit: written")
        except (lmdb.Error, OSError) as error:
            explained = self._explain(number, error, merged.size)
            if rolled is not None:
                # Nobody hears of it, and the segment that follows the failure gets its name.
                rolled.new.env.close()
            raise CommitFailed(explained, True) from error
        self.next_number = number + 1
        self._extents += len(rows)
        return Outcome(number, time_ms, rows, merged.changes, groups, rolled)

    def _prepare(self, merged: Group) -> Rolled | None:
        """See that there is room, on the disk and in the segment."""
        options = self._options
        extents = len(merged.extents)
        # A value of its own fills whole pages, and an index row will be written for each extent.
        need = merged.size + _OVERHEAD + extents * (2 * ROW_SIZE)
        large = merged.size // options.large_extent_bytes
        need += PAGE * min(extents, large + 1)
        reserve = options.disk_reserve_bytes
        if not merged.extents:
            # Moving a log start is how room is made.
            reserve //= 2
        self._look_for_room(need, need + reserve, merged.time_ms)
        active = self.active
        empty = self.next_number == active.first
        if active.used + need > options.segment_bytes:
            active.measure()
        full = (
            active.used + need > options.segment_bytes
            or self._extents + extents > options.segment_extents
        )
        if empty:
            self.roll_due = False
            return None
        if not (full or self.roll_due):
            return None
        most = 2 * options.segment_bytes + options.max_commit_bytes + options.max_request_bytes
        bursting = (
            active.used + need > most
            or self._extents + extents > _MOST_EXTENTS * options.segment_extents
        )
        if self._put_off is not None and not (self.try_roll or bursting):
            return None
        self.try_roll = False
        try:
            new = ActiveSegment.create(self._folder, self.next_number, merged.time_ms, options)
        except (lmdb.Error, OSError) as error:
            self._take_back(need)
            if bursting:
                raise CommitFailed(self._explain(self.next_number, error, need), False) from error
            self._write_on(error)
            return None
        if self._put_off is not None:
            _logger.warning("%s: new segments are begun again", self._folder.segments)
        self._put_off = None
        self.roll_due = False
        self.active = new
        self._extents = 0
        return Rolled(active, new)

    def _take_back(self, need: int) -> None:
        """See that no file is named for a commit that the old segment is going to get: a start
        would take it for the place of that commit and of all behind it. Raises CommitFailed where
        that is not certain: then the old segment ends here."""
        path = self._folder.segments / active_name(self.next_number)
        with suppress(OSError):  # a start removes it
            path.with_name(path.name + ".tmp").unlink(missing_ok=True)
        try:
            if path.exists():
                self._folder.step("roll: take back")
                path.with_name(path.name + "-lock").unlink(missing_ok=True)
                path.unlink()
                self._folder.sync()
        except OSError as error:
            raise CommitFailed(self._explain(self.next_number, error, need), True) from error

    def _write_on(self, error: Exception) -> None:
        """The old segment has room in its map; what is wrong with a new one need not concern it."""
        if self._put_off is None:
            _logger.error(
                "%s: no new segment can be begun: %s. The old one is written on; a new one is tried"
                " every few seconds",
                self._folder.segments,
                error,
            )
        self._put_off = str(error)

    def _look_for_room(self, size: int, needed: int, now_ms: int) -> None:
        """Raise CommitFailed when fewer than `needed` bytes are free.

        Asking the system gives the GIL away, so it is asked now and then, and before anything is
        refused; what was written since is counted.
        """
        fresh = 0 <= now_ms - self._asked_ms < self._options.disk_check_ms
        known = self._free_asked - self._written
        if not (fresh and known >= needed and self._written < _ASK_BYTES):
            known = self._free_asked = self._folder.free_bytes()
            self._written = 0
            self._asked_ms = now_ms
            if known < needed:
                raise CommitFailed(DiskFull(self._folder.path, known, needed), False)
        self._written += size

    def _explain(self, number: int, error: Exception, size: int) -> WriteFailed:
        """What to tell of an error of LMDB, which reports a full disk as EIO or ENOSPC."""
        free = self._folder.free_bytes()
        code = error.errno if isinstance(error, OSError) else getattr(error, "code", 0)
        if code == errno.ENOSPC or (code == errno.EIO and free < size + _OVERHEAD):
            return DiskFull(self._folder.path, free, size + _OVERHEAD)
        return WriteFailed(
            f"{self.active.path}: commit {number} failed: {error} ({free} bytes free). The file is"
            " not written again; a new segment is begun"
        )


class Writer:
    """The committing thread."""

    def __init__(
        self,
        committer: Committer,
        options: StoreOptions,
        done: Callable[[Outcome], None],
        failed: Callable[[CommitFailed], None],
    ) -> None:
        """`done` and `failed` are called on the thread: they hand over to the loop. After
        `failed` the thread ends and what is still queued is the caller's to fail."""
        self._committer = committer
        self._max_bytes = options.max_commit_bytes
        self._done = done
        self._failed = failed
        self._queue: SimpleQueue[Group | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ottla-commit", daemon=True)
        self._thread.start()

    def submit(self, group: Group) -> None:
        """Commit it after everything submitted before."""
        self._queue.put(group)

    def stop(self) -> None:
        """Finish what is queued and end; blocks."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            groups = self._next()
            if not groups:
                return
            try:
                outcome = self._committer.commit(groups)
            except CommitFailed as failure:
                self._failed(failure)
                return
            except Exception as error:
                # A bug, but one that must not leave everybody waiting for ever.
                _logger.exception("the committing thread failed")
                self._failed(CommitFailed(WriteFailed(f"commit failed: {error!r}"), True))
                return
            self._done(outcome)

    def _next(self) -> list[Group]:
        """Wait for a group; take those that queue behind it, up to the size of a commit."""
        group = self._queue.get()
        if group is None:
            return []
        groups = [group]
        size = group.size
        while size < self._max_bytes:
            try:
                group = self._queue.get_nowait()
            except Empty:
                break
            if group is None:
                self._queue.put(None)
                break
            groups.append(group)
            size += group.size
        return groups
