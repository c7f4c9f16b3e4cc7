"""A disk that forgets: what is on it for sure, and what may be, at any moment of a trace.

- A sector of 512 bytes is written whole or not at all. Of one that was written since it was flushed
  last, the disk holds what was flushed or any of the later contents.
- A flush of a file (fsync, fdatasync; a write under O_DSYNC for its own bytes) makes certain what
  was written before it began, once it has returned.
- A file's size is like a sector. Bytes that were never written are zero.
- Names (created, renamed, removed) belong to their folder: of what happened to them since the
  folder was flushed last, any first part is on the disk. A file's flush says nothing of its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.powercut.trace import CREATE, CUT, Event, Op

SECTOR: Final = 512
PAGE: Final = 4096
META_BYTES: Final = 2 * PAGE


class Cut:
    """What of all that is not certain the disk holds: the base is all of it, as after kill -9.

    Each answer is how many of `count` changes, in their order, have happened.
    """

    def sector(self, number: int, writes: list[int]) -> int:
        """One sector, by its number in the file; `writes`: the file's writes that changed it."""
        return len(writes)

    def size(self, count: int) -> int:
        return count

    def names(self, count: int) -> int:
        return count


class Nothing(Cut):
    """What was flushed, and no more."""

    def sector(self, number: int, writes: list[int]) -> int:
        return 0

    def size(self, count: int) -> int:
        return 0

    def names(self, count: int) -> int:
        return 0


class File:
    """Contents: what is certain, what is seen now, and what was seen in between."""

    def __init__(self, data: bytes = b"") -> None:
        self.sure = bytearray(data)
        self.now = bytearray(data)
        #: By sector, what was written since it was flushed: number of the write, contents.
        self.late: dict[int, list[tuple[int, bytes]]] = {}
        self.sizes: list[tuple[int, int]] = []
        self.writes = 0
        self.mapped = False

    def write(self, at: int, data: bytes) -> None:
        self.writes += 1
        end = at + len(data)
        if end > len(self.now):
            self._resize(end)
        self.now[at:end] = data
        self._touched(at, end)

    def truncate(self, size: int) -> None:
        self.writes += 1
        before = len(self.now)
        if size != before:
            self._resize(size)
        if size < before:
            self._touched(size, before)

    def _resize(self, size: int) -> None:
        if size < len(self.now):
            del self.now[size:]
        else:
            self.now += bytes(size - len(self.now))
        self.sizes.append((self.writes, size))

    def _touched(self, at: int, end: int) -> None:
        for sector in range(at // SECTOR, -(-end // SECTOR)):
            data = bytes(self.now[sector * SECTOR : (sector + 1) * SECTOR])
            self.late.setdefault(sector, []).append((self.writes, data.ljust(SECTOR, b"\0")))

    def flush(self, upto: int) -> None:
        """What was written up to the write of this number is certain."""
        while self.sizes and self.sizes[0][0] <= upto:
            self._sure_size(self.sizes.pop(0)[1])
        for sector in [s for s, versions in self.late.items() if versions[0][0] <= upto]:
            versions = self.late[sector]
            while versions and versions[0][0] <= upto:
                self._sure_sector(sector, versions.pop(0)[1])
            if not versions:
                del self.late[sector]

    def flush_range(self, at: int, size: int) -> None:
        """These bytes are certain, and as much of the size as is needed to read them."""
        if at + size > len(self.sure):
            self._sure_size(at + size)
            self.sizes = [one for one in self.sizes if one[1] != at + size]
        for sector in range(at // SECTOR, -(-(at + size) // SECTOR)):
            versions = self.late.pop(sector, None)
            if versions:
                self._sure_sector(sector, versions[-1][1])

    def _sure_size(self, size: int) -> None:
        if size < len(self.sure):
            del self.sure[size:]
        else:
            self.sure += bytes(size - len(self.sure))

    def _sure_sector(self, sector: int, data: bytes) -> None:
        at = sector * SECTOR
        room = len(self.sure) - at
        if room > 0:
            self.sure[at : at + SECTOR] = data[:room]

    def left(self, cut: Cut) -> bytes:
        """What a cut leaves of it."""
        count = len(self.sizes)
        chosen = cut.size(count)
        size = len(self.sure) if chosen == 0 else self.sizes[chosen - 1][1]
        data = bytearray(self.sure[:size].ljust(size, b"\0"))
        for sector, versions in self.late.items():
            at = sector * SECTOR
            chosen = cut.sector(sector, [number for number, _ in versions])
            if chosen and at < size:
                data[at : at + SECTOR] = versions[chosen - 1][1][: size - at]
        return bytes(data)


class Folder:
    """Names: what is certain, what is seen now, and what was done in between."""

    def __init__(self) -> None:
        self.sure: dict[str, File | str] = {}
        self.now: dict[str, File | str] = {}
        #: (old name or None, new name or None, what has it)
        self.late: list[tuple[str | None, str | None, File | str | None]] = []
        self.gone = 0

    def do(self, old: str | None, new: str | None, what: File | str | None = None) -> None:
        _do(self.now, old, new, what)
        self.late.append((old, new, what))

    def flush(self, upto: int) -> None:
        """The first `upto` operations ever are certain."""
        while self.gone < upto and self.late:
            _do(self.sure, *self.late.pop(0))
            self.gone += 1


def _do(
    names: dict[str, File | str], old: str | None, new: str | None, what: File | str | None
) -> None:
    if old is not None:
        moved = names.pop(old)
        what = what or moved
    if new is not None:
        assert what is not None
        names[new] = what


class Disk:
    """Everything below one folder, which itself is certain."""

    def __init__(self, root: Path) -> None:
        """What is there now is certain; `apply` says what comes."""
        self.root = root
        self.folders: dict[str, Folder] = {}
        #: File or folder behind each open handle.
        self._open: dict[int, File | Folder] = {}
        #: Flushes that have begun: what they will make certain, up to where.
        self._flushes: dict[int, tuple[File | Folder, int]] = {}
        self._load(root)

    def _load(self, path: Path) -> None:
        folder = self.folders[str(path)] = Folder()
        for entry in sorted(path.iterdir()):
            if entry.is_dir():
                self._load(entry)
            folder.sure[entry.name] = str(entry) if entry.is_dir() else File(entry.read_bytes())
        folder.now = dict(folder.sure)

    def apply(self, event: Event) -> None:
        """What happened next."""
        op = event.op
        if op is Op.OPEN:
            self._opened(event)
        elif op is Op.WRITE:
            self._file(event).write(event.offset, event.data)
        elif op is Op.TRUNCATE:
            self._file(event).truncate(event.offset)
        elif op is Op.FLUSH:
            what = self._open[event.handle]
            upto = what.writes if isinstance(what, File) else what.gone + len(what.late)
            self._flushes[event.offset] = (what, upto)
        elif op is Op.FLUSHED:
            what, upto = self._flushes.pop(event.offset)
            what.flush(upto)
        elif op is Op.SYNCED:
            self._file(event).flush_range(event.offset, event.extra)
        elif op is Op.RENAME:
            folder, old = self._place(event.path)
            other, new = self._place(event.path2)
            assert folder is other, "no file moves to another folder"
            folder.do(old, new)
        elif op in (Op.UNLINK, Op.RMDIR):
            folder, old = self._place(event.path)
            folder.do(old, None)
        elif op is Op.MKDIR:
            folder, new = self._place(event.path)
            self.folders[event.path] = Folder()
            folder.do(None, new, event.path)
        elif op is Op.LINK:
            raise AssertionError("nothing is known of files with two names")
        elif op is Op.CLOSE:
            self._open.pop(event.handle, None)
        elif op is Op.MAPPED:
            self._file(event).mapped = True

    def _opened(self, event: Event) -> None:
        path = event.path.rstrip("/")
        if path in self.folders:
            self._open[event.handle] = self.folders[path]
            return
        folder, name = self._place(path)
        file = folder.now.get(name)
        if file is None:
            assert event.flags & CREATE, f"{path} was opened and is not there"
            file = File()
            folder.do(None, name, file)
        assert isinstance(file, File)
        if event.flags & CUT:
            file.truncate(0)
        self._open[event.handle] = file

    def _file(self, event: Event) -> File:
        file = self._open[event.handle]
        assert isinstance(file, File)
        return file

    def _place(self, path: str) -> tuple[Folder, str]:
        head, _, name = path.rstrip("/").rpartition("/")
        return self.folders[head], name

    def image(self, to: Path, cut: Cut) -> None:
        """Make folder `to`: what the disk would hold after a cut at this moment."""
        self._image(self.folders[str(self.root)], to, cut)

    def _image(self, folder: Folder, to: Path, cut: Cut) -> None:
        to.mkdir()
        names = dict(folder.sure)
        for operation in folder.late[: cut.names(len(folder.late))]:
            _do(names, *operation)
        for name, what in sorted(names.items()):
            if isinstance(what, str):
                self._image(self.folders[what], to / name, cut)
            else:
                (to / name).write_bytes(what.left(cut))

    def unflushed(self) -> int:
        """Sectors and names that are not certain."""
        files = {id(f): f for folder in self.folders.values() for f in _files(folder)}
        names = sum(len(folder.late) for folder in self.folders.values())
        return names + sum(len(file.late) for file in files.values())


def _files(folder: Folder) -> list[File]:
    found = [*folder.sure.values(), *folder.now.values()]
    return [what for what in found if isinstance(what, File)]
