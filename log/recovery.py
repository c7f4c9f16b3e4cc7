"""Opening a folder: what the files say after whatever happened to them.

docs/design/log.md lists what a crash leaves; everything is settled here, before the first write.
A damaged segment is set aside by name and the rest is served.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Final

from ottla.log import pages
from ottla.log.commit import Commit
from ottla.log.errors import Damaged, UncleanFolder
from ottla.log.folder import (
    FORMAT,
    Folder,
    Mark,
    SealedName,
    active_name,
    create_file,
    parse_active,
    sync_file,
    sync_folder,
)
from ottla.log.layout import Layout, Missing
from ottla.log.losses import NUMBER_GAP, Held, Loss, examine, holes, raised, range_of, uncovered
from ottla.log.options import StoreOptions, Table
from ottla.log.partition import KEY
from ottla.log.producers import Producers
from ottla.log.replay import replay_commit
from ottla.log.sealing import seal
from ottla.log.segment import ActiveSegment, SealedSegment, load, map_file
from ottla.log.state import LEAST_SIZE, State
from ottla.log.statecopy import missing_journal
from ottla.log.unnamed import carry_over, replay_sealed

_logger = logging.getLogger(__name__)

#: Files with up to this many values are verified at every start: a fifth of a second.
VERIFIED_ENTRIES: Final = 50_000
_MANY: Final = 1 << 62


class Opened:
    """A folder that is ready to be written."""

    def __init__(self, folder: Folder, layout: Layout, state: State, producers: Producers) -> None:
        self.folder = folder
        self.layout = layout
        self.state = state
        self.producers = producers
        for number in producers.partitions():
            if state.get(Table.PARTITIONS, KEY.pack(number)) is None:
                producers.drop_partition(number)  # it went with a commit that was replayed
        producers.settle_ongoing()
        #: Number of the next commit.
        self.next_number = layout.active.last + 1


def open_folder(folder: Folder, options: StoreOptions, boot_id: str, now_ms: int) -> Opened:
    """Read the folder and make it ready. Raises UncleanFolder, NewerFormat, Damaged, OSError."""
    careful = _judge_mark(folder, options, boot_id)
    _check_state(folder, careful)
    if folder.mark is None:
        # Before anything else exists: segments without a mark are not ours.
        folder.write_mark(Mark(FORMAT, options.durability, boot_id, False))
    opening = _Opening(folder, options, careful)
    try:
        opening.state.check(_MANY if careful else VERIFIED_ENTRIES)
        folder.raise_format()
        opening.read()
        opening.find_holes()
        folder.write_mark(Mark(FORMAT, options.durability, boot_id, False))
        opening.settle_rolled()
        opening.make_active(now_ms)
        opening.settle_losses()
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
            if path.is_file():  # a mounted folder has lost+found
                sync_file(path)
        sync_folder(folder.segments)
        sync_folder(folder.path)
    return False


def _verify(path: Path, *, always: bool) -> None:
    """Look at every page without LMDB, which ends the process where a page makes no sense.

    Looks at all of them, up to a few microseconds each, where there are few, or `always`. Raises
    Damaged.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    file = map_file(path)
    try:
        meta = pages.read_meta(file)
        pages.check_size(file, meta)
    except pages.BadPages as error:
        raise Damaged(path, str(error)) from None
    if always or meta.entries <= VERIFIED_ENTRIES:
        problem = pages.verify(path)
        if problem is not None:
            raise Damaged(path, problem)


def _check_state(folder: Folder, careful: bool) -> None:
    path = folder.state
    if not path.exists() or path.stat().st_size < LEAST_SIZE:
        if missing_journal(folder, 0) is None:
            path.unlink(missing_ok=True)  # made anew from the journals, which are all there
            return
        raise Damaged(
            path,
            f"is missing or cut. `ottla repair {folder.path}` makes it anew from its copy and the"
            " journals",
        )
    try:
        _verify(path, always=careful)
    except Damaged as error:
        raise Damaged(
            error.path, f"{error.what}. `ottla repair {folder.path}` makes it anew"
        ) from None


class _Opening:
    """The steps of a start."""

    def __init__(self, folder: Folder, options: StoreOptions, careful: bool) -> None:
        self._folder = folder
        self._options = options
        mark = folder.mark
        self._careful = careful
        self._unclean = careful or (mark is not None and not mark.clean)
        self.layout = Layout()
        self.producers = Producers()
        self.state = State(folder.state, sync=options.durability == "fsync", mode=options.file_mode)
        self._applied = self.state.applied
        self._active: list[int] = []
        self._bad: list[str] = []
        #: First commits of files whose newest tree does not hold.
        self._torn: list[int] = []
        self._losses: list[Loss] = []
        self._held: dict[Path, Held] = {}

    def read(self) -> None:
        """Settle which files count, and replay what the checkpoint lacks."""
        self._active, names, self._bad, rest = self._folder.names()
        self._clean(rest)
        self._open_sealed(names)
        self._carry_over()
        for key, value in self.state.scan(Table.PRODUCERS):
            self.producers.load(key, value)
        for first, read in sorted(self._readings(), key=itemgetter(0)):
            del first
            read()

    def _readings(self) -> Iterator[tuple[int, Callable[[], None]]]:
        """What is to be replayed, by first commit."""
        for segment in self.layout.sealed:
            if segment.last > self._applied:
                yield segment.first, partial(self._replay_sealed, segment)
        for first in self._active:
            yield first, partial(self._load_active, first)
        for loss in self._losses:
            yield loss.first, partial(self._examine, loss)

    def find_holes(self) -> None:
        """Give commits that are in no file one without content: it is set aside as a damaged one
        is, so that the hole is known from now on."""
        missing = holes(
            self.layout, [*self._bad, *(x.path.name for x in self._losses)], self._applied
        )
        for first, last in missing:
            path = self._folder.segments / str(SealedName(first, last, 0))
            _logger.error(
                "commits %d to %d were acknowledged and are in no file: what was in them is lost",
                first, last,
            )  # fmt: skip
            os.close(create_file(path, os.O_WRONLY, self._options.file_mode))
            loss = Loss(path, first, last)
            self._losses.append(loss)
            self._examine(loss)

    def settle_rolled(self) -> None:
        """Leave out files to which nothing was committed before the next one began. Seal those
        whose newest tree does not hold, which LMDB would read, and what lies before a sealed file:
        reads look at sealed files first."""
        layout = self.layout
        newest = max([0, *self._torn, *(s.first for s in layout.sealed)])
        for segment in layout.rolled.copy():
            if segment.last < segment.first:
                if segment is not layout.rolled[-1] or segment.first <= newest:
                    self._drop_empty(segment, kept=False)
            elif segment.first <= newest:
                layout.replace([], [seal(self._folder, segment, lambda: None)], segment)
                segment.env.close()

    def make_active(self, now_ms: int) -> None:
        """Make the segment that is written from now on, or open the one that a clean stop left.

        What an unclean stop left is never written again: it may hold parts of a commit that has no
        name yet, and its number is about to be given out.
        """
        layout = self.layout
        last = max(
            [
                0,
                *(s.last for s in layout.sealed),
                *(h.last_commit for h in self._held.values()),
            ]
        )
        for name in self._bad:
            found = range_of(name)
            if found is not None:
                last = max(last, found[1] or found[0])
        newest = layout.rolled[-1] if layout.rolled else None
        if (
            newest is not None
            and newest.format == FORMAT
            and not self._unclean
            and newest.first > last
            and newest.last >= self._applied
        ):
            layout.active = layout.rolled.pop()
            return
        last = max([last, self._applied, *(s.last for s in layout.rolled)])
        if any(loss.last is None for loss in self._losses):
            last += NUMBER_GAP
        if newest is not None and newest.last < newest.first:
            self._drop_empty(newest, kept=newest.first == last + 1)
        layout.active = ActiveSegment.create(self._folder, last + 1, now_ms, self._options)

    def settle_losses(self) -> None:
        """Make sure that what is missing is never given out again, then set damaged files aside."""
        layout, state = self.layout, self.state
        options = self._options
        for loss in self._losses:
            held = self._held[loss.path]
            state.apply(list(raised(layout, state, loss, held, options.segment_bytes)))
        if self._losses:
            state.apply(self.producers.take_changed(lambda _: 1 << 62))
            applied = (
                layout.active.first - 1
                if layout.active.last < layout.active.first
                else (layout.active.last)
            )
            state.write(state.freeze(), applied)
            state.thaw(applied)
        named = []
        for loss in self._losses:
            aside = self._folder.set_aside(loss.path)
            _logger.error(
                "%s is set aside as %s; its records answer KAFKA_STORAGE_ERROR until `ottla repair"
                " %s` has read what can be read of it",
                loss.path, aside.name, self._folder.path,
            )  # fmt: skip
            named.append(aside.name)
        self._find_missing([*self._bad, *named])

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
        damaged: list[SealedName] = []
        while True:
            top = [n for n in left if n not in good and not any(o.hides(n) for o in left)]
            if not top:
                break
            for name in top:
                try:
                    good[name] = SealedSegment(folder.segments / str(name), name)
                except Damaged as error:
                    _logger.error("%s", error)
                    damaged.append(name)
                    left.remove(name)
        for name in left:
            if name not in good:
                folder.remove(folder.segments / str(name), "start")
        self.layout.sealed = [good[name] for name in sorted(good)]
        for name in damaged:
            self._losses.append(Loss(folder.segments / str(name), name.first, name.last))

    def _carry_over(self) -> None:
        """Give commits whose name a power cut took files of their own."""
        for first in self._active.copy():
            below = self._next_first(first)
            # A clean stop leaves no commit without a name in the file that was written last.
            if below is None and not self._unclean:
                continue
            path = self._folder.segments / active_name(first)
            number = carry_over(self._folder, path, first, below, self._options)
            if number is not None and number != first:
                self._active.append(number)
        self._active.sort()

    def _next_first(self, first: int) -> int | None:
        """The first commit of the file behind an active one; None for the newest."""
        later = [*self._active, *(s.first for s in self.layout.sealed)]
        later += [loss.first for loss in self._losses]
        later += [found[0] for name in self._bad if (found := range_of(name)) is not None]
        return min((n for n in later if n > first), default=None)

    def _load_active(self, first: int) -> None:
        path = self._folder.segments / active_name(first)
        below = self._next_first(first)
        try:
            if below is None and not self._unclean:
                _verify(path, always=False)  # LMDB is about to write it
            loaded = load(path, first, below, self._replay)
        except Damaged as error:
            _logger.error("%s", error)
            loss = Loss(path, first, None if below is None else below - 1)
            self._losses.append(loss)
            self._examine(loss)
            return
        if loaded.torn:
            self._torn.append(first)
        segment = ActiveSegment.open(path, loaded.header, loaded.index, self._options)
        segment.last = segment.found = loaded.last
        segment.time_ms = loaded.time_ms
        self.layout.rolled.append(segment)

    def _drop_empty(self, segment: ActiveSegment, *, kept: bool) -> None:
        """kept: another is about to be made in its file's place."""
        self.layout.rolled.remove(segment)
        segment.env.close()
        if not kept:
            self._folder.remove(segment.path, "start")
            self._folder.remove(segment.path.with_name(segment.path.name + "-lock"), "start")

    def _examine(self, loss: Loss) -> None:
        self._held[loss.path] = examine(loss, self.state, self.producers)

    def _find_missing(self, bad: list[str]) -> None:
        """Which commits lie in files that were set aside."""
        layout = self.layout
        firsts = sorted([s.first for s in layout.sealed] + [s.first for s in layout.unsealed()])
        missing = []
        for name in bad:
            found = range_of(name)
            if found is None:
                continue
            first, last = found
            if last is None:
                last = min((other for other in firsts if other > first), default=first + 1) - 1
            missing.append(Missing(first, last, self._folder.segments / name))
        layout.missing = uncovered(layout, missing)

    # ---------------------------------------------------------------------------------- replay

    def _replay_sealed(self, segment: SealedSegment) -> None:
        """A segment that was sealed before its last changes were in a checkpoint."""
        try:
            replay_sealed(segment, self._replay)
        except Damaged as error:
            _logger.error("%s", error)
            self.layout.sealed.remove(segment)
            loss = Loss(segment.path, segment.first, segment.last)
            self._losses.append(loss)
            self._examine(loss)

    def _replay(self, commit: Commit, file: memoryview, slots: dict[int, int]) -> None:
        replay_commit(commit, file, slots, self.state, self.producers)
