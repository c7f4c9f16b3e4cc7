"""The commit that a power cut left without a name: its bytes are in the file, its tree is not.

A commit flushes its data; the meta page that names its tree reaches the disk with the next
commit's flush. So after a power cut at most one acknowledged commit is in no tree: the one behind
the last that a tree names. It is looked for only on pages that the tree does not reach, only where
LMDB can have put it, and only with the file's own salt.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ottla.log import pages
from ottla.log.commit import BATCH_CRC, KEY, BadCommit, Commit, Extent, parse
from ottla.log.errors import Damaged
from ottla.log.folder import Folder
from ottla.log.header import BadHeader, SegmentHeader
from ottla.log.options import StoreOptions
from ottla.log.segment import (
    HEADER_KEY,
    Each,
    SealedSegment,
    check_batches,
    load,
    make_file,
    map_file,
    sound_meta,
)

_KEY_SIZE: Final = KEY.size


class Unnamed(NamedTuple):
    """A commit of which nothing is missing."""

    commit: Commit
    file: memoryview
    #: Where its values lie in the file, by slot.
    slots: dict[int, int]

    def extents(self) -> list[Extent]:
        """Its batches, as views of the file."""
        return [
            Extent(
                row.partition, row.flags, row.first, row.last, row.max_timestamp, row.length,
                [self.file[start : start + row.length]],
            )
            for row in self.commit.rows
            for start in (self.slots[row.slot] + row.position,)
        ]  # fmt: skip


def find_unnamed(path: Path, first: int, below: int | None) -> Unnamed | None:
    """The commit behind the last one in the tree of an unsealed or just sealed file, if all of it
    is there; None also for a damaged file.

    first: the file's first commit. below: the first commit of the next file, None for the newest.
    Raises OSError.
    """
    try:
        file = map_file(path)
        meta = sound_meta(file, below)
        visited = bytearray(len(file) // meta.page_size)
        header, last = None, first - 1
        for key, position, size in pages.walk(file, meta, visited):
            if key == HEADER_KEY:
                header = SegmentHeader.read(file[position : position + size])
            else:
                last = KEY.unpack(key)[0]
    except (Damaged, pages.BadPages, BadHeader):
        return None
    if header is None or (below is not None and last + 1 >= below):
        return None
    loose = pages.loose(file, meta.page_size, visited)
    return _whole(path, file, loose.values, last + 1, header.salt)


def _whole(
    path: Path, file: memoryview, values: list[pages.Value], number: int, salt: int
) -> Unnamed | None:
    """Commit `number`, put together from `values`."""
    mine: dict[int, list[pages.Value]] = {}
    for value in values:
        if len(value.key) == _KEY_SIZE:
            found, slot = KEY.unpack(value.key)
            if found == number:
                mine.setdefault(slot, []).append(value)
    for head in mine.get(0, []):
        with suppress(BadCommit):
            data = file[head.position : head.position + head.size]
            commit = parse(data, number, salt=salt)
            commit.changes()  # raises for one that cannot be replayed
            slots = _slots(path, file, commit, mine, head)
            if slots is not None:
                return Unnamed(commit, file, slots)
    return None


def _slots(
    path: Path,
    file: memoryview,
    commit: Commit,
    values: dict[int, list[pages.Value]],
    head: pages.Value,
) -> dict[int, int] | None:
    """Where each slot of the commit lies, if every batch of it is whole."""
    slots = {0: head.position}
    for row in commit.rows:
        candidates = [head] if row.slot == 0 else values.get(row.slot, [])
        for value in candidates:
            start, end = row.position, row.position + row.length
            if end > value.size:
                continue
            view = file[value.position + start : value.position + end]
            if view[BATCH_CRC] != row.crc:
                continue  # the pages were used again, or are within a client's record
            try:
                check_batches(view, path, row.first, row.last)
            except Damaged:
                continue
            slots[row.slot] = value.position
            break
        else:
            return None
    return slots


def carry_over(
    folder: Folder, path: Path, first: int, below: int | None, options: StoreOptions
) -> int | None:
    """Give the unnamed commit of an unsealed file a file of its own, whose first commit it is; its
    number, None where there is none.

    The old file is not written: it holds the only copy until the new one is flushed and named. An
    old file without another commit has the new one's name, and is replaced by it. Raises OSError,
    lmdb.Error.
    """
    found = find_unnamed(path, first, below)
    if found is None:
        return None
    commit = found.commit
    make_file(folder, commit.number, commit.time_ms, options, found.extents(), commit.changes())
    return commit.number


def replay_sealed(segment: SealedSegment, each: Each) -> None:
    """Call `each` with every commit of a file that saw LMDB. Raises Damaged, NewerFormat, OSError.

    A flush that failed may have kept the meta page of the last commit from the disk.
    """
    path, first, last = segment.path, segment.first, segment.last
    found = load(path, first, last + 1, each).last
    if found == last - 1:
        unnamed = find_unnamed(path, first, last + 1)
        if unnamed is not None:
            each(*unnamed)
            return
    if found != last:
        raise Damaged(path, f"its tree ends at commit {found} of {last}")
