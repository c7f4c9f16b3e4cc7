"""Rescuing a folder: keep what can be read of damaged files, say what cannot.

Every batch of every file is held against its CRC. From a damaged file the sound batches go into a
new sealed file for the same commits; the damaged one stays beside it under another name. Where
records may be lost at the end of a partition its next offset is raised and its leader epoch rises,
as at a start (losses.py). Works on a folder that no broker has open.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb

from ottla.log import pages
from ottla.log.commit import Commit, Extent
from ottla.log.errors import Damaged, LogError, NotALog
from ottla.log.folder import (
    FORMAT,
    Folder,
    Mark,
    SealedName,
    Step,
    active_name,
    create_file,
    no_step,
    parse_active,
    sync_file,
)
from ottla.log.gaps import Gap, find_gaps
from ottla.log.layout import Layout, Missing
from ottla.log.losses import Held, Loss, holes, raised, range_of, replay, uncovered
from ottla.log.options import StoreOptions, Table
from ottla.log.partition import KEY, NEXT_PARTITION, counter_row, read_counter
from ottla.log.producers import Producers
from ottla.log.replay import replay_commit
from ottla.log.rewrite import write_sealed
from ottla.log.salvage import Found, Salvage
from ottla.log.segment import ActiveSegment, SealedSegment, check_batches, load, make_file
from ottla.log.state import LEAST_SIZE, State
from ottla.log.statecopy import copies, missing_journal
from ottla.log.unnamed import carry_over, replay_sealed

#: What a file that was read out is called from then on.
DONE: Final = ".repaired"


@dataclass
class Report:
    """What a repair found, did, and could not bring back."""

    folder: str
    #: Name and what became of it, for each file that was not sound.
    files: list[tuple[str, str]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sound: int = 0

    @property
    def lost(self) -> bool:
        """Whether something that was in the folder, or may have been, is not there any more."""
        return bool(self.gaps or self.notes)

    def lines(self) -> list[str]:
        """For people."""
        files = "1 file is" if self.sound == 1 else f"{self.sound} files are"
        lines = [f"{self.folder}: {files} sound"]
        lines += [f"{name}: {what}" for name, what in self.files]
        lines += self.notes
        for gap in self.gaps:
            kind = "skipped, so that none is given out twice" if gap.skipped else "lost"
            lines.append(f"partition {gap.partition}: offsets {gap.first} to {gap.last} {kind}")
        if not self.lost:
            lines.append("nothing is lost")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "folder": self.folder,
            "sound_files": self.sound,
            "files": [{"name": name, "result": what} for name, what in self.files],
            "notes": self.notes,
            "gaps": [gap._asdict() for gap in self.gaps],
            "lost": self.lost,
        }


def repair(path: Path, step: Step = no_step) -> Report:
    """Rescue folder `path`. Raises LogError (FolderLocked, NewerFormat, NotALog), OSError."""
    if not (path / "log").is_dir():
        raise NotALog(f"{path} is not an Ottla data folder (no log/ in it)")
    folder = Folder(path, step, lenient=True)
    try:
        return _Repair(folder).run()
    except lmdb.Error as error:
        raise LogError(f"{path} cannot be repaired: {error}") from None
    finally:
        folder.close()


class _File(NamedTuple):
    """A file that must be read out."""

    loss: Loss
    found: list[Found]
    held: Held
    #: It was set aside by a start, which raised what had to be raised.
    settled: bool
    generation: int

    @property
    def lossy(self) -> bool:
        """Whether batches of it may be lost. The commits of a rewritten file do not tell."""
        return self.generation > 1 or self.held.more or any(found.hurt for found in self.found)


class _Repair:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._options = StoreOptions()
        self._report = Report(str(folder.path))
        self._layout = Layout()
        self._producers = Producers()
        mark = folder.mark
        #: Commits may be missing at the end of a file that looks sound.
        self._torn = mark is None or (mark.durability == "os" and not mark.clean)
        self._unclean = mark is None or not mark.clean
        self._rebuilt = False
        self._state = self._open_state()
        self._hurt: list[_File] = []

    def run(self) -> Report:
        """The whole repair."""
        try:
            self._folder.raise_format()
            self._read()
            self._write()
        finally:
            for segment in self._layout.rolled:
                segment.env.close()
            self._state.close()
        mark = self._folder.mark
        durability = "fsync" if mark is None else mark.durability
        boot_id = "" if mark is None else mark.boot_id
        self._folder.write_mark(Mark(FORMAT, durability, boot_id, True))
        return self._report

    # ------------------------------------------------------------------------------------- state

    def _open_state(self) -> State:
        path = self._folder.state
        problem = _state_problem(path)
        if problem is None:
            return State(path, sync=True)
        if path.exists():
            path.replace(path.with_name(path.name + DONE))
        path.with_name(path.name + "-lock").unlink(missing_ok=True)
        source = "the journals"
        for _, copy in copies(self._folder.path):
            bad = _state_problem(copy)
            if bad is None:
                source = f"{copy.name} and the journals behind it"
                shutil.copyfile(copy, path)
                sync_file(path)
                break
            self._report.files.append((copy.name, f"{bad}: not used"))
        self._report.files.append((path.name, f"{problem}: made anew from {source}"))
        self._rebuilt = True
        return State(path, sync=True)

    def _check_journals(self) -> None:
        """Whether all changes behind the state's copy can be there."""
        gone = missing_journal(self._folder, self._state.applied)
        if self._rebuilt and gone is not None:
            self._report.notes.append(
                f"{self._folder.state.name} was damaged, and journals from commit {gone} on are"
                " gone with their segments: topics, settings, groups and offsets that changed last"
                " there are lost"
            )

    # ----------------------------------------------------------------------------------- reading

    def _read(self) -> None:
        """Read all files in the order of their commits."""
        for key, value in self._state.scan(Table.PRODUCERS):
            self._producers.load(key, value)
        active, sealed, bad, _ = self._folder.names()
        tops = [name for name in sealed if not any(other.hides(name) for other in sealed)]
        known = [(name.first, str(name)) for name in tops]
        known += [(found[0], name) for name in bad if (found := range_of(name)) is not None]
        if self._unclean:
            active = self._carry_over(active, [first for first, _ in known])
        known += [(first, active_name(first)) for first in active]
        firsts = sorted(first for first, _ in known)
        self._check_journals()
        for first, name in sorted(known):
            below = min((other for other in firsts if other > first), default=None)
            self._read_file(self._folder.segments / name, first, below)
        self._read_holes(bad)

    def _read_holes(self, bad: list[str]) -> None:
        """Commits that are in no file: as one that is damaged whole."""
        named = [*bad, *(file.loss.path.name for file in self._hurt)]
        for first, last in holes(self._layout, named, self._state.applied):
            path = self._folder.segments / str(SealedName(first, last, 0))
            os.close(create_file(path, os.O_WRONLY, self._folder.file_mode))
            self._report.notes.append(
                f"commits {first} to {last} were acknowledged and are in no file: what was in them"
                " is lost, but for topics, settings, groups and offsets as of the last checkpoint"
            )
            self._read_out(Loss(path, first, last), False, "is missing")

    def _carry_over(self, active: list[int], later: list[int]) -> list[int]:
        """Give commits whose name a power cut took files of their own; all active files then.

        later: first commits of the other files.
        """
        every = list(active)
        for first in active:
            below = min((other for other in [*active, *later] if other > first), default=None)
            path = self._folder.segments / active_name(first)
            number = carry_over(self._folder, path, first, below, self._options)
            if number is not None and number != first:
                every.append(number)
        return sorted(every)

    def _read_file(self, path: Path, first: int, below: int | None) -> None:
        name = SealedName.parse(path.name)
        last = None if below is None else below - 1
        if path.name.endswith(".bad"):
            found = range_of(path.name)
            assert found is not None
            self._read_out(Loss(path, first, found[1] or last), True, "was set aside")
            return
        try:
            if name is not None:
                last = name.last
                self._read_sealed(SealedSegment(path, name))
            elif parse_active(path.name) is not None:
                self._read_active(path, first, below)
            self._report.sound += 1
        except Damaged as error:
            self._read_out(Loss(path, first, last), False, error.what)

    def _read_sealed(self, segment: SealedSegment) -> None:
        """Raises Damaged."""
        segment.check()
        for row in range(len(segment.index.lasts)):
            segment.extent(row)
        if segment.last > self._state.applied and not segment.name.generation:
            replay_sealed(segment, self._replay)
        self._layout.sealed.append(segment)

    def _read_active(self, path: Path, first: int, below: int | None) -> None:
        """Raises Damaged."""
        if self._torn:
            raise Damaged(path, "may lack its newest commits")
        problem = pages.verify(path)
        if problem is not None:
            raise Damaged(path, problem)

        def check(commit: Commit, file: memoryview, slots: dict[int, int]) -> None:
            for row in commit.rows:
                start = slots[row.slot] + row.position
                check_batches(file[start : start + row.length], path, row.first, row.last)

        load(path, first, below, check)
        loaded = load(path, first, below, self._replay)
        sync_file(path)
        segment = ActiveSegment.open(path, loaded.header, loaded.index, self._options)
        segment.last = loaded.last
        self._layout.rolled.append(segment)

    def _replay(self, commit: Commit, file: memoryview, slots: dict[int, int]) -> None:
        replay_commit(commit, file, slots, self._state, self._producers)

    def _read_out(self, loss: Loss, settled: bool, why: str) -> None:
        """Find what a damaged file still holds."""
        below = None if loss.last is None else loss.last + 1
        found = Salvage(loss.path, loss.first, below).commits()
        held = replay(loss, found, self._state, self._producers)
        last = held.last_commit if loss.last is None else loss.last
        name = SealedName.parse(loss.path.name.partition(".sealed")[0] + ".sealed")
        generation = 0 if name is None else name.generation + 1
        self._hurt.append(_File(loss, found, held, settled, generation))
        self._note_lost_commits(loss, found, generation)
        hurt = sum(bool(commit.hurt) for commit in found)
        pieces = sum(len(commit.pieces) for commit in found)
        self._report.files.append(
            (
                loss.path.name,
                f"{why}: {len(found)} commits up to {last} found, {hurt} of them incomplete,"
                f" {pieces} runs of batches kept",
            )
        )

    def _note_lost_commits(self, loss: Loss, found: list[Found], generation: int) -> None:
        """Journals that are lost with commits of which not even the directory is sound."""
        if generation > 1:
            return  # rewritten: it had none
        numbers = {commit.commit.number for commit in found}
        last = max(numbers, default=loss.first - 1) if loss.last is None else loss.last
        first = max(loss.first, self._state.applied + 1)
        lost = last - first + 1 - len([number for number in numbers if number >= first])
        if lost > 0:
            self._report.notes.append(
                f"{loss.path.name}: {lost} commits of {first} to {last} could not be read; topics,"
                " settings, groups and offsets that changed in them are as they were before"
            )

    # ----------------------------------------------------------------------------------- writing

    def _write(self) -> None:
        layout, state = self._layout, self._state
        for file in self._hurt:
            self._write_file(file)
        for file in self._hurt:
            if not file.settled:
                size = self._options.segment_bytes
                state.apply(list(raised(layout, state, file.loss, file.held, size)))
        self._count_partitions()
        state.apply(self._producers.take_changed(lambda _: 1 << 62))
        applied = max(
            [
                state.applied,
                *(s.last for s in layout.sealed),
                *(s.last for s in layout.rolled),
                *(file.held.last_commit for file in self._hurt),
            ]
        )
        state.write(state.freeze(), applied)
        state.thaw(applied)
        damaged = [(f.loss.first, self._last_of(f)) for f in self._hurt if f.lossy]
        self._report.gaps += find_gaps(layout, state, damaged)
        for file in self._hurt:
            path = file.loss.path
            done = path.with_name(path.name.removesuffix(".bad") + DONE)
            self._folder.rename(path, done, "repair")
        if self._unclean and layout.rolled:
            self._leave_segment(applied + 1)

    def _leave_segment(self, number: int) -> None:
        """Begin the next file, as a start does: what an unclean stop left is never written again,
        and the mark is about to say that the folder is clean."""
        newest = self._layout.rolled[-1]
        make_file(self._folder, number, newest.time_ms, self._options)

    def _write_file(self, file: _File) -> None:
        """The sound batches of a damaged file, as a sealed one; also where there are none, so that
        a start finds every commit in some file."""
        name = SealedName(file.loss.first, self._last_of(file), file.generation)
        if not uncovered(self._layout, [Missing(name.first, name.last, file.loss.path)]):
            return  # narrower files hold it all
        pieces = [piece for commit in file.found for piece in commit.pieces]
        times = [commit.commit.time_ms for commit in file.found] or [0]
        made = write_sealed(
            self._folder,
            name,
            (times[0], times[-1]),
            _extents_in_order(file.found),
            sum(len(piece.data) for piece in pieces),
            lambda: None,
            empty=True,
        )
        assert made is not None
        self._layout.replace([], [made], None)

    def _last_of(self, file: _File) -> int:
        """The last commit that may have been in a damaged file."""
        if file.loss.last is not None:
            return file.loss.last
        numbers = [commit.commit.number for commit in file.found]
        return max([file.loss.first, self._state.applied, *numbers])

    def _count_partitions(self) -> None:
        """No number that any file knows may be given out again."""
        numbers = {KEY.unpack(key)[0] for key, _ in self._state.scan(Table.PARTITIONS)}
        for sealed in self._layout.sealed:
            numbers.update(sealed.index.numbers())
        for segment in self._layout.rolled:
            numbers.update(segment.index.partitions)
        next_number = max(numbers, default=0) + 1
        if read_counter(self._state.get(Table.META, NEXT_PARTITION)) < next_number:
            self._state.apply([counter_row(next_number)])


def _state_problem(path: Path) -> str | None:
    """What is wrong with a checkpoint, or a copy of one; None for a sound one."""
    if not path.exists():
        return "is missing"
    if path.stat().st_size < LEAST_SIZE:
        return "is cut"
    problem = pages.verify(path)
    if problem is not None:
        return problem
    state = State(path, sync=True)
    try:
        state.check(1 << 62)
    except Damaged as error:
        return error.what
    finally:
        state.close()
        if path.suffix == ".copy":
            path.with_name(path.name + "-lock").unlink(missing_ok=True)
    return None


def _extents_in_order(found: list[Found]) -> Iterator[Extent]:
    """Sound batches by partition and offset, each offset once."""
    pieces = [piece for commit in found for piece in commit.pieces]
    pieces.sort(key=lambda piece: (piece.partition, piece.first))
    before = (-1, -1)
    for piece in pieces:
        if piece.partition == before[0] and piece.first <= before[1]:
            continue
        before = piece.partition, piece.last
        yield Extent(
            piece.partition,
            piece.flags,
            piece.first,
            piece.last,
            piece.max_timestamp,
            len(piece.data),
            [piece.data],
        )
