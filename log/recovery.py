"""Opening a folder: what the files say after whatever happened to them.

docs/design/log.md lists what a crash leaves; everything is settled here, before the first write.
A damaged segment is set aside by name and the rest is served.
"""

from __future__ import annotations

import logging
from pathlib import Path

import lmdb.verify

from ottla.log import pages
from ottla.log.commit import IDEMPOTENT, KEY, Commit, parse
from ottla.log.errors import Damaged, UncleanFolder
from ottla.log.folder import (
    FORMAT,
    Folder,
    Mark,
    SealedName,
    active_name,
    parse_active,
    sync_file,
    sync_folder,
)
from ottla.log.layout import Layout, Missing
from ottla.log.options import StoreOptions, Table
from ottla.log.producers import Producers
from ottla.log.segment import ActiveSegment, SealedSegment, load, map_file
from ottla.log.state import State
from ottla.wire.records import walk

_logger = logging.getLogger(__name__)


class Opened:
    """A folder that is ready to be written."""

    def __init__(self, folder: Folder, layout: Layout, state: State, producers: Producers) -> None:
        self.folder = folder
        self.layout = layout
        self.state = state
        self.producers = producers
        #: Number of the next commit.
        self.next_number = layout.active.last + 1


def open_folder(folder: Folder, options: StoreOptions, boot_id: str, now_ms: int) -> Opened:
    """Read the folder and make it ready. Raises UncleanFolder, NewerFormat, Damaged, OSError."""
    careful = _judge_mark(folder, options, boot_id)
    if careful:
        _verify(folder.state)
    if folder.mark is None:
        # Before anything else exists: segments without a mark are not ours.
        folder.write_mark(Mark(FORMAT, options.durability, boot_id, False))
    opening = _Opening(folder, options, careful)
    try:
        opening.read()
        folder.write_mark(Mark(FORMAT, options.durability, boot_id, False))
        opening.make_active(now_ms)
    except BaseException:
        opening.state.close()
        raise
    return Opened(folder, opening.layout, opening.state, opening.producers)


def _judge_mark(folder: Folder, options: StoreOptions, boot_id: str) -> bool:
    """Whether files must be verified before LMDB opens them. Raises UncleanFolder."""
    mark = folder.mark
    if mark is None or mark.clean:
        return False
    if mark.boot_id != boot_id:
        if mark.durability == "os":
            raise UncleanFolder(
                f"{folder.path} was open under durability `os` when the machine went down: what"
                f" was not yet written by the system is lost, and files may be torn. `ottla repair"
                f" {folder.path}` keeps what can be read and says what is missing"
            )
        return True
    if mark.durability == "os" and options.durability == "fsync":
        # From here on what was acknowledged before must be as safe as what comes.
        for path in (folder.state, *folder.segments.iterdir()):
            if path.exists():
                sync_file(path)
        sync_folder(folder.segments)
        sync_folder(folder.path)
    return False


def _verify(path: Path) -> None:
    """Look at every page, without LMDB. Raises Damaged."""
    if not path.exists():
        return
    try:
        # lmdb.verify has no annotations.
        problems = lmdb.verify.verify(str(path), subdir=False)  # type: ignore[no-untyped-call]
    except lmdb.verify.VerifyError as error:
        problems = [str(error)]
    if problems:
        raise Damaged(path, f"{problems[0]} (after an unclean stop of the machine)")


class _Opening:
    """The steps of a start."""

    def __init__(self, folder: Folder, options: StoreOptions, careful: bool) -> None:
        self._folder = folder
        self._options = options
        self._careful = careful
        self.layout = Layout()
        self.producers = Producers()
        self._check_state_size()
        self.state = State(folder.state, sync=options.durability == "fsync")
        self._applied = self.state.applied
        self._active: list[int] = []

    def _check_state_size(self) -> None:
        path = self._folder.state
        if not path.exists() or path.stat().st_size == 0:
            return
        file = map_file(path)
        try:
            pages.check_size(file, pages.read_meta(file))
        except pages.BadPages as error:
            raise Damaged(
                path, f"{error}. `ottla repair {self._folder.path}` makes it anew"
            ) from None

    def read(self) -> None:
        """Settle which files count, and replay what the checkpoint lacks."""
        self._active, names, bad, rest = self._folder.names()
        self._clean(rest)
        self._open_sealed(names)
        for key, value in self.state.scan(Table.PRODUCERS):
            self.producers.load(key, value)
        for segment in self.layout.sealed:
            if segment.last > self._applied:
                self._replay_sealed(segment)
        for first in self._active:
            self._load_active(first)
        self._find_missing(bad)

    def make_active(self, now_ms: int) -> None:
        """Open the newest unsealed segment for writing, or make one."""
        layout = self.layout
        last = max([0, *(s.last for s in layout.sealed), *(m.last for m in layout.missing)])
        if layout.rolled and layout.rolled[-1].first > last:
            layout.active = layout.rolled.pop()
            return
        layout.active = ActiveSegment.create(self._folder, last + 1, now_ms, self._options)

    # ----------------------------------------------------------------------------------- files

    def _clean(self, rest: list[str]) -> None:
        """Remove what a crash left half made."""
        folder = self._folder
        for name in rest:
            stem = name.removesuffix("-lock")
            stray = stem != name and parse_active(stem) not in self._active
            if stem.endswith(".tmp") or stray:
                folder.remove(folder.segments / name, "start")

    def _open_sealed(self, names: list[SealedName]) -> None:
        """Open the widest complete files; remove what they hide."""
        folder = self._folder
        good: dict[SealedName, SealedSegment] = {}
        left = list(names)
        while True:
            top = [n for n in left if n not in good and not any(o.hides(n) for o in left)]
            if not top:
                break
            for name in top:
                path = folder.segments / str(name)
                try:
                    good[name] = SealedSegment(path, name)
                except Damaged as error:
                    aside = folder.set_aside(path)
                    _logger.error("%s; set aside as %s", error, aside.name)
                    left.remove(name)
        for name in left:
            if name not in good:
                folder.remove(folder.segments / str(name), "start")
        self.layout.sealed = [good[name] for name in sorted(good)]

    def _load_active(self, first: int) -> None:
        folder = self._folder
        path = folder.segments / active_name(first)
        later = [n for n in self._active if n > first]
        later += [s.first for s in self.layout.sealed if s.first > first]
        below = min(later, default=None)
        if self._careful and below is None:
            _verify(path)
        loaded = load(path, first, below, self._replay)
        if loaded.last < first and below is not None:
            # Nothing was committed into it before a later one was begun.
            folder.remove(path, "start")
            folder.remove(path.with_name(path.name + "-lock"), "start")
            return
        segment = ActiveSegment.open(path, first, loaded.created_ms, loaded.index, self._options)
        segment.last = segment.found = loaded.last
        segment.time_ms = loaded.time_ms
        self.layout.rolled.append(segment)

    def _find_missing(self, bad: list[str]) -> None:
        """Which commits lie in files that were set aside."""
        del bad

    # ---------------------------------------------------------------------------------- replay

    def _replay_sealed(self, segment: SealedSegment) -> None:
        """A segment that was sealed before its last changes were in a checkpoint."""
        file = map_file(segment.path)
        try:
            slots: dict[int, int] = {}
            commit: Commit | None = None
            for key, position, size in pages.walk(file, pages.read_meta(file)):
                number, slot = KEY.unpack(key)
                if number <= self._applied:
                    continue
                if number > segment.last:
                    break  # it failed, and the next segment begins with its number
                if slot == 0:
                    if commit is not None:
                        self._replay(commit, file, slots)
                    commit = parse(file[position : position + size], number)
                    slots = {}
                slots[slot] = position
            if commit is not None:
                self._replay(commit, file, slots)
        except pages.BadPages as error:
            raise Damaged(segment.path, str(error)) from None

    def _replay(self, commit: Commit, file: memoryview, slots: dict[int, int]) -> None:
        """What one commit changed of the state, if the checkpoint lacks it."""
        if commit.number <= self._applied:
            return
        if commit.entries:
            self.state.apply(commit.changes())
        for row in commit.rows:
            if row.flags & IDEMPOTENT:
                start = slots[row.slot] + row.position
                for _, header in walk(file[start : start + row.length]):
                    if header.has_producer:
                        self.producers.replay(row.partition, header, commit.time_ms)


__all__ = ["Missing", "Opened", "open_folder"]
