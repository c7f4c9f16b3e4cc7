"""What another process may read of a folder while a broker has it open.

Nothing here takes a lock, writes, or opens a file with LMDB: a reader that dies leaves nothing
behind, and the broker does not know of it.

- Sealed segments never change. A file that a rewrite or retention removes stays readable for
  whoever has it mapped.
- Rows of the checkpoint are looked up page by page. LMDB does not reuse a page of the last two
  trees, so what was read of tree N is whole if N + 1 is the newest tree when it was read;
  otherwise it is read again. Each row has its CRC. It may be older than the broker's by what has
  changed since the last checkpoint.

The active segment is not for others. See docs/design/log.md.
"""

from __future__ import annotations

import json
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import Struct, error
from typing import Final, NamedTuple, TypeVar

from ottla.log import pages
from ottla.log.errors import Damaged, LogError, NewerFormat, NotALog
from ottla.log.folder import FORMAT, SealedName
from ottla.log.options import Table
from ottla.log.segment import SealedSegment
from ottla.wire.crc import crc32c

__all__ = ["Extent", "LogError", "Outside", "Table"]

T = TypeVar("T")

_CRC: Final = Struct("<I")
_ATTEMPTS: Final = 50
_PAUSE_SECONDS: Final = 0.01


class Extent(NamedTuple):
    """Some batches of one partition, in order, in one sealed file."""

    view: memoryview
    first: int
    last: int
    #: Whether offsets between the extent before and this one are known not to be in any file.
    #: False: a file may be missing between the two; only the broker can tell.
    follows: bool


class Outside:
    """A data folder, seen from outside. Raises NotALog, NewerFormat, OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            number = int(json.loads((path / "mark").read_text())["format"])
        except FileNotFoundError:
            raise NotALog(f"{path} is not an Ottla data folder (no file mark in it)") from None
        except (ValueError, KeyError, TypeError):
            raise NotALog(f"{path / 'mark'} is not readable") from None
        if number > FORMAT:
            raise NewerFormat(
                f"{path} is in format {number}, this version of Ottla reads up to {FORMAT}:"
                " install the version of the broker here too"
            )
        #: By name; opened when they are first needed.
        self._files: dict[SealedName, SealedSegment] = {}

    # --------------------------------------------------------------------------- the checkpoint

    def rows(self, wanted: Sequence[tuple[Table, bytes]]) -> list[bytes | None]:
        """Rows of the checkpoint, all of one moment; None for one that is not there. Raises
        Damaged when what is read does not hold, again and again."""
        return _again(self.path / "state.lmdb", lambda path: _rows(path, wanted))

    def scan(self, table: Table) -> list[tuple[bytes, bytes]]:
        """Keys and values of all rows of a table of the checkpoint, by key. Raises Damaged."""
        return _again(self.path / "state.lmdb", lambda path: _scan(path, table))

    # ------------------------------------------------------------------------- sealed segments

    def extents(self, number: int, offset: int, end: int) -> Iterator[Extent]:
        """The extents of a partition that hold offsets from `offset` up to `end` (exclusive), in
        order. Raises Damaged at an extent that is not what was written, OSError."""
        #: Last commit of the files looked at without a hole among them, from one on that holds
        #: something of the partition.
        covered: int | None = None
        for segment in self._segments():
            totals = segment.totals(number)
            joins = covered is not None and segment.first <= covered + 1
            if totals is not None and totals.first < end and totals.last >= offset:
                segment.check()
                index = segment.index
                for row in range(index.locate(totals, offset), totals.start + totals.rows):
                    if index.firsts[row] >= end:
                        return
                    yield Extent(segment.extent(row), index.firsts[row], index.lasts[row], joins)
                    joins = True
                    offset = index.lasts[row] + 1
                covered = segment.last
            elif joins or (totals is not None and totals.last < offset):
                covered = segment.last

    def _segments(self) -> Iterator[SealedSegment]:
        """Sealed segments by their commits, ascending; each opened when its turn comes."""
        last = -1
        for _ in range(_ATTEMPTS):
            names = self._names()
            for name in [name for name in names if name.last > last]:
                segment = self._opened(name)
                if segment is None:
                    break  # replaced or dropped since it was listed: look again
                yield segment
                last = name.last
            else:
                return

    def _opened(self, name: SealedName) -> SealedSegment | None:
        found = self._files.get(name)
        if found is None:
            try:
                found = SealedSegment(self.path / "log" / str(name), name)
            except FileNotFoundError:
                return None
            self._files[name] = found
        return found

    def _names(self) -> list[SealedName]:
        """Complete files, the widest for each range of commits. Those that are gone are let go."""
        listed = [SealedName.parse(name) for name in os.listdir(self.path / "log")]
        names = [name for name in listed if name is not None]
        tops = sorted(n for n in names if not any(other.hides(n) for other in names))
        for gone in self._files.keys() - set(tops):
            del self._files[gone]
        return tops


def _again(path: Path, read: Callable[[Path], T | None]) -> T:
    """What `read` gives of a checkpoint that may be written meanwhile. Raises Damaged."""
    problem = "is written faster than it can be read"
    for _ in range(_ATTEMPTS):
        try:
            found = read(path)
        except (pages.BadPages, error) as raised:
            found, problem = None, str(raised)
        if found is not None:
            return found
        time.sleep(_PAUSE_SECONDS)
    raise Damaged(path, problem)


def _rows(path: Path, wanted: Sequence[tuple[Table, bytes]]) -> list[bytes | None] | None:
    """The rows, or None when the tree has moved on too far while they were read."""
    file = _mapped(path)
    if file is None:
        return None
    meta = pages.read_meta(file)
    places = (pages.find(file, meta, bytes((table,)) + key) for table, key in wanted)
    found = [None if where is None else _value(file, where) for where in places]
    return found if pages.read_meta(file).transaction <= meta.transaction + 1 else None


def _scan(path: Path, table: Table) -> list[tuple[bytes, bytes]] | None:
    """The rows of a table, or None as `_rows`."""
    file = _mapped(path)
    if file is None:
        return None
    meta = pages.read_meta(file)
    found = [
        (where.key[1:], _value(file, where))
        for where in pages.walk(file, meta)
        if where.key[0] == table
    ]
    return found if pages.read_meta(file).transaction <= meta.transaction + 1 else None


def _mapped(path: Path) -> memoryview | None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size == 0:
            return None
        return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(fd)


def _value(file: memoryview, where: pages.Value) -> bytes:
    key = where.key
    stored = bytes(file[where.position : where.position + where.size])
    value = stored[_CRC.size :]
    if len(stored) < _CRC.size or _CRC.unpack_from(stored)[0] != crc32c(value, crc32c(key)):
        raise pages.BadPages(f"row {key.hex()} is altered")
    return value
