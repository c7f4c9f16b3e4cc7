"""Sealing: a rolled segment gets its index, its last name, and is never written again.

LMDB does not touch what lies behind its last page, so index and footer are appended there with
plain writes. A crash at any point leaves an `.active` file with a tail that is cut off and written
again at the next start.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from ottla.log.extents import IndexBuilder, sealed_rows
from ottla.log.folder import Folder, SealedName
from ottla.log.segment import ActiveSegment, SealedSegment, value_positions

#: Rows handled between two pauses: about a millisecond.
_SLICE = 1000


def seal(folder: Folder, segment: ActiveSegment, pause: Callable[[], None]) -> SealedSegment:
    """Write the index of a rolled segment, rename it, open it. Raises OSError, Damaged.

    On the background thread; `pause` is called often, to give the loop its turn.
    """
    path = segment.path
    name = SealedName(segment.first, segment.last, 0)
    sealed_path = folder.segments / str(name)
    # After an error behind the rename the file has its last name already.
    if path.exists() or not sealed_path.exists():
        _write_index(folder, segment, pause)
        folder.rename(path, sealed_path, "seal")
    with suppress(OSError):  # a stray lock file is removed at the next start
        folder.remove(path.with_name(path.name + "-lock"), "seal")
    return SealedSegment(sealed_path, name, trusted=segment.found < segment.first)


def _write_index(folder: Folder, segment: ActiveSegment, pause: Callable[[], None]) -> None:
    positions, meta = value_positions(segment.path, segment.last)
    pause()
    builder = IndexBuilder()
    extents = segment.index.partitions
    rows = 0
    for number in sorted(extents):
        builder.add(number, sealed_rows(extents[number], positions))
        rows += len(extents[number].lasts)
        if rows >= _SLICE:
            pause()
            rows = 0
    index = builder.build(
        segment.first,
        segment.last,
        segment.time_ms,
        meta.last_page + 1,
        meta.size,
        segment.format,
    )
    append_index(folder, segment, index, meta.size)


def append_index(folder: Folder, segment: ActiveSegment, index: bytes, at: int) -> None:
    """Write `index` behind the LMDB pages and flush. Raises OSError."""
    folder.step("seal: open")
    fd = os.open(segment.path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        folder.step("seal: cut")
        os.ftruncate(fd, at)
        half = len(index) // 2
        for start, stop in ((0, half), (half, len(index))):
            folder.step("seal: write")
            _write(fd, memoryview(index)[start:stop], at + start)
        folder.step("seal: flush")
        os.fsync(fd)
    finally:
        os.close(fd)


def _write(fd: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(fd, data, at)
        data = data[written:]
        at += written
