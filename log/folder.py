"""The folder: lock, mark, names, and the few file operations that must be durable.

Every operation that changes the folder calls `step` with its name first: tests stop the world
there and look at what a crash would have left.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from ottla.log.errors import FolderLocked, NewerFormat, NotALog
from ottla.log.options import Durability

#: What is written. Format 1, whose commits have no salt, is read.
FORMAT: Final = 2
#: Permissions of files and folders unless configured: the owner's, and the group's to read.
FILE_MODE: Final = 0o640
_ACTIVE: Final = re.compile(r"(\d{20})\.active")
#: What may be in a folder that was being made when the process was killed.
_OURS: Final = {
    "lock", "log", "lost+found", "mark.tmp", "state.lmdb", "state.lmdb-lock", "state.lmdb.tmp",
}  # fmt: skip
_SEALED: Final = re.compile(r"(\d{20})-(\d{20})\.(\d+)\.sealed")

Step = Callable[[str], None]


def no_step(name: str) -> None:
    """Go on."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the folder says of its last use."""

    format: int
    durability: Durability
    boot_id: str
    clean: bool


@dataclass(frozen=True, slots=True, order=True)
class SealedName:
    """Commits `first` to `last`, in its n-th writing."""

    first: int
    last: int
    generation: int

    def __str__(self) -> str:
        return f"{self.first:020d}-{self.last:020d}.{self.generation}.sealed"

    def hides(self, other: SealedName) -> bool:
        """Whether this file holds all that the other one was made of."""
        if (self.first, self.last) == (other.first, other.last):
            return self.generation > other.generation
        return self.first <= other.first and other.last <= self.last

    @staticmethod
    def parse(name: str) -> SealedName | None:
        match = _SEALED.fullmatch(name)
        return SealedName(*map(int, match.groups())) if match else None


def active_name(first: int) -> str:
    return f"{first:020d}.active"


def parse_active(name: str) -> int | None:
    match = _ACTIVE.fullmatch(name)
    return int(match[1]) if match else None


class Folder:
    """Paths below one data folder, locked while this object is open."""

    def __init__(
        self,
        path: Path,
        step: Step = no_step,
        *,
        file_mode: int = FILE_MODE,
        lenient: bool = False,
    ) -> None:
        """Make what is missing and take the lock. Raises FolderLocked, NotALog, NewerFormat,
        OSError; a folder that is not Ottla's is left as it is.

        file_mode: permissions of the files; folders can be entered by those who may read. lenient:
        without a readable mark `mark` is None.
        """
        self.path = path
        self.segments = path / "log"
        self.state = path / "state.lmdb"
        self._mark = path / "mark"
        self.step = step
        self.file_mode = file_mode
        #: Whether something must be removed again if the folder is refused.
        made = not (path / "lock").exists()
        make_folder(path, file_mode)
        self._refuse_foreign()
        self._lock = self._take_lock()
        try:
            self.mark = self._mark_of(lenient)
            for name in ("mark.tmp", "state.copy.tmp", "state.lmdb.tmp"):
                (path / name).unlink(missing_ok=True)
            if not self.segments.is_dir():
                make_folder(self.segments, file_mode)
        except BaseException:
            if made:
                (path / "lock").unlink(missing_ok=True)
            self.close()
            raise

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._lock)

    def _refuse_foreign(self) -> None:
        """Raise NotALog for a folder that holds other things and nothing of Ottla's."""
        if self._mark.exists() or self._has_segments():
            return
        foreign = sorted(p.name for p in self.path.iterdir() if p.name not in _OURS)
        if not foreign and self.segments.is_dir():
            foreign = sorted(f"log/{p.name}" for p in self.segments.iterdir())
        if foreign:
            raise NotALog(
                f"{self.path} is not a data folder of Ottla and is not empty ({foreign[0]}):"
                " set log.dirs (or --data-dir) to an empty folder"
            )

    def _has_segments(self) -> bool:
        if not self.segments.is_dir():
            return False
        active, sealed, bad, _ = self.names()
        return bool(active or sealed or bad)

    def _take_lock(self) -> int:
        path = self.path / "lock"
        fd = create_file(path, os.O_RDWR, self.file_mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(fd, 64, 0).decode("ascii", "replace").strip() or "another process"
            os.close(fd)
            raise FolderLocked(
                f"{self.path} is in use by {holder}: stop it, or give this one another folder"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()}\n".encode(), 0)
        return fd

    def _mark_of(self, lenient: bool) -> Mark | None:
        try:
            return self._read_mark()
        except NotALog:
            if lenient and self.segments.is_dir():
                return None
            raise

    def _read_mark(self) -> Mark | None:
        try:
            text = self._mark.read_bytes()
        except FileNotFoundError:
            if self._has_segments():
                raise NotALog(
                    f"{self._mark} is missing though there are segments: `ottla repair"
                    f" {self.path}` makes it again"
                ) from None
            return None
        try:
            fields = json.loads(text)
            number = int(fields["format"])
            if number > FORMAT:
                raise NewerFormat(
                    f"{self.path} is in format {number}, this version of Ottla reads up to"
                    f" {FORMAT}: use the version that wrote it, or a later one"
                )
            return Mark(number, fields["durability"], str(fields["boot_id"]), bool(fields["clean"]))
        except (ValueError, KeyError, TypeError):
            raise NotALog(
                f"{self._mark} is not readable: `ottla repair {self.path}` makes it again"
            ) from None

    def write_mark(self, mark: Mark) -> None:
        """Durable when it returns. Nothing is written when it says so already."""
        if mark == self.mark:
            return
        self.step("mark: write")
        temporary = self.path / "mark.tmp"
        with open(create_file(temporary, os.O_WRONLY | os.O_TRUNC, self.file_mode), "w") as file:
            file.write(json.dumps(asdict(mark)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.step("mark: rename")
        os.replace(temporary, self._mark)
        sync_folder(self.path)
        self.mark = mark

    def raise_format(self) -> None:
        """Let no older version open the folder; before the first file of this format is made. The
        rest of the mark stays as it is."""
        if self.mark is not None and self.mark.format < FORMAT:
            self.write_mark(replace(self.mark, format=FORMAT))

    # ------------------------------------------------------------------------------- segments

    def names(self) -> tuple[list[int], list[SealedName], list[str], list[str]]:
        """Active segments' first commits and sealed names, ascending; damaged; other files."""
        active: list[int] = []
        sealed: list[SealedName] = []
        bad: list[str] = []
        rest: list[str] = []
        for name in os.listdir(self.segments):
            first = parse_active(name)
            parsed = SealedName.parse(name)
            if first is not None:
                active.append(first)
            elif parsed is not None:
                sealed.append(parsed)
            elif name.endswith(".bad"):
                bad.append(name)
            else:
                rest.append(name)
        return sorted(active), sorted(sealed), sorted(bad), sorted(rest)

    def rename(self, old: Path, new: Path, what: str) -> None:
        """Rename within the segments' folder; durable when it returns."""
        self.step(f"{what}: rename")
        os.rename(old, new)
        self.step(f"{what}: sync folder")
        sync_folder(self.segments)

    def remove(self, path: Path, what: str) -> None:
        """Unlink, if it is there."""
        self.step(f"{what}: remove")
        path.unlink(missing_ok=True)

    def set_aside(self, path: Path) -> Path:
        """Rename a damaged segment so that it is not opened again; its new path."""
        target = path.with_name(path.name + ".bad")
        count = 1
        while target.exists():
            count += 1
            target = path.with_name(f"{path.name}.{count}.bad")
        self.rename(path, target, "set aside")
        return target

    def sync(self) -> None:
        """Make the segments' names durable."""
        sync_folder(self.segments)

    def free_bytes(self) -> int:
        """What an ordinary user may still write."""
        stat = os.statvfs(self.segments)
        return stat.f_bavail * stat.f_frsize


def make_folder(path: Path, file_mode: int = FILE_MODE) -> None:
    """Make a folder, and those above it, unless it is there; their names are flushed. Raises
    OSError."""
    if path.is_dir():
        return
    make_folder(path.parent, file_mode)
    mode = file_mode | (file_mode & 0o444) >> 2
    path.mkdir(mode=mode)
    path.chmod(mode)  # whatever the process's umask is
    sync_folder(path.parent)


def create_file(path: Path, flags: int, mode: int) -> int:
    """Open a file, made with permissions `mode` whatever the process's umask is. Raises OSError."""
    new = not path.exists()
    fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, mode)
    if new:
        os.fchmod(fd, mode)
    return fd


def sync_file(path: Path) -> None:
    """Flush a file that someone else wrote."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
