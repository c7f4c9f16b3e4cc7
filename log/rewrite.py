"""Rewriting: what is alive of one or more sealed segments goes into one new file, by partition.

The new file is sealed and never saw LMDB. It is a header, then commit values as log/commit.py
writes them (a directory and the extents it names, so `ottla repair` finds its way in it as in any
other), then index and footer. Small extents of a partition that follow one another are joined.

It is named for the range of commits it stands for, in a later generation, and hides the files it
was made of. It gets that name only when it is whole and flushed, and they are removed after that,
so at each step the widest complete file says what is true. Journals are left out: the caller sees
to it that the checkpoint holds them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from ottla.log.commit import Extent, encode
from ottla.log.extents import IndexBuilder, SealedRow
from ottla.log.folder import Folder, SealedName, create_file
from ottla.log.header import REWRITTEN, SegmentHeader
from ottla.log.readers import bring_in
from ottla.log.segment import SealedSegment

#: Extents of a partition are joined up to this size; a read walks one of them batch by batch.
JOINED_BYTES: Final = 64 * 1024
#: Written at a time, then the loop has its turn.
CHUNK_BYTES: Final = 1 << 20
#: Extents looked at between two pauses: a millisecond or two.
SLICE_ROWS: Final = 1000

#: Takes a partition's live extents of one file, and gives what is to stay of them.
Filter = Callable[[Iterator[Extent]], Iterator[Extent]]

_ALIGN: Final = 8
_NEVER_ALONE: Final = 1 << 62


def target(segments: Sequence[SealedSegment]) -> SealedName:
    """The name of the file that stands for all of `segments` (ascending)."""
    generation = max(segment.name.generation for segment in segments) + 1
    return SealedName(segments[0].first, segments[-1].last, generation)


def rewrite(
    folder: Folder,
    segments: Sequence[SealedSegment],
    starts: Mapping[int, int],
    pause: Callable[[], None],
    filters: Mapping[int, Filter] | None = None,
) -> SealedSegment | None:
    """Write the live extents of `segments` (ascending) into one new file and open it.

    starts: log start by partition; one that is not named has nothing alive. filters: what is left
    out beside that, by partition (compaction). None, and no file, where nothing is to stay. Raises
    Damaged, OSError. On the background thread; `pause` is called often, to give the loop its turn.
    """
    name = target(segments)
    for segment in segments:
        segment.check()
        for at in range(0, len(segment.data), CHUNK_BYTES):
            bring_in(segment, at, min(at + CHUNK_BYTES, len(segment.data)))
            pause()
    total = sum(part.length for segment in segments for part in segment.index.partitions())
    extents = _live_extents(segments, starts, pause, filters or {})
    times = segments[0].time_ms, segments[-1].time_ms
    return write_sealed(folder, name, times, extents, total, pause)


def write_sealed(
    folder: Folder,
    name: SealedName,
    times: tuple[int, int],
    extents: Iterator[Extent],
    total: int,
    pause: Callable[[], None],
    *,
    empty: bool = False,
) -> SealedSegment | None:
    """Write one file of `extents`, by partition and offset, and open it.

    times: of the first and of the last commit, ms. total: bytes of the extents, at most. None, and
    no file, where there are no extents, unless `empty` files are wanted. Raises OSError, and what
    `extents` raises.
    """
    path = folder.segments / str(name)
    temporary = path.with_name(path.name + ".tmp")
    folder.step("rewrite: create")
    temporary.unlink(missing_ok=True)
    fd = create_file(temporary, os.O_WRONLY | os.O_EXCL, folder.file_mode)
    try:
        writer = _Writer(folder, fd, name, times)
        # So much that there are no more chunks than commits: each has a number of the range for
        # its own, by which a salvage tells them apart.
        size = max(CHUNK_BYTES, total // max(1, name.last - name.first) + 1)
        for number, chunk in enumerate(_chunks(extents, size)):
            writer.chunk(name.first + number, chunk)
            pause()
        if writer.rows or empty:
            writer.finish()
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    if not (writer.rows or empty):
        temporary.unlink()
        return None
    folder.rename(temporary, path, "rewrite")
    return SealedSegment(path, name, trusted=True)


def _live_extents(
    segments: Sequence[SealedSegment],
    starts: Mapping[int, int],
    pause: Callable[[], None],
    filters: Mapping[int, Filter],
) -> Iterator[Extent]:
    """By partition and offset, small ones joined."""
    numbers = {number for segment in segments for number in segment.index.numbers()}
    for number in sorted(numbers):
        if number not in starts:
            continue
        rows = _live_rows(segments, number, starts[number], pause)
        change = filters.get(number)
        yield from _joined(rows if change is None else change(rows))


def _live_rows(
    segments: Sequence[SealedSegment], number: int, start: int, pause: Callable[[], None]
) -> Iterator[Extent]:
    for segment in segments:
        totals = segment.totals(number)
        if totals is None or totals.last < start:
            continue
        index = segment.index
        for row in range(index.locate(totals, start), totals.start + totals.rows):
            if row % SLICE_ROWS == 0:
                pause()
            yield Extent(
                number,
                index.row_flags[row],
                index.firsts[row],
                index.lasts[row],
                index.times[row],
                index.lengths[row],
                [segment.extent(row)],
            )


def _joined(extents: Iterator[Extent]) -> Iterator[Extent]:
    mine: Extent | None = None
    for extent in extents:
        if mine is None:
            mine = extent
        elif mine.length + extent.length > JOINED_BYTES:
            yield mine
            mine = extent
        else:
            mine.flags |= extent.flags
            mine.last = extent.last
            mine.max_timestamp = max(mine.max_timestamp, extent.max_timestamp)
            mine.length += extent.length
            mine.buffers += extent.buffers
    if mine is not None:
        yield mine


def _chunks(extents: Iterator[Extent], limit: int) -> Iterator[list[Extent]]:
    chunk: list[Extent] = []
    size = 0
    for extent in extents:
        chunk.append(extent)
        size += extent.length
        if size >= limit:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class _Writer:
    """Appends to the new file and remembers where each extent went."""

    def __init__(self, folder: Folder, fd: int, name: SealedName, times: tuple[int, int]) -> None:
        self._folder = folder
        self._fd = fd
        self._name = name
        created_ms, self._time_ms = times
        self._position = 0
        self.rows: dict[int, list[SealedRow]] = {}
        self._header = SegmentHeader.new(name.first, created_ms, REWRITTEN)
        self._write(self._header.pack())

    def chunk(self, number: int, extents: list[Extent]) -> None:
        """One commit value."""
        self._folder.step("rewrite: write")
        salt = self._header.salt
        puts, rows = encode(number, self._time_ms, extents, (), _NEVER_ALONE, salt)
        start = self._position
        for row in rows:
            self.rows.setdefault(row.partition, []).append(
                (
                    row.last,
                    row.max_timestamp,
                    row.first,
                    start + row.position,
                    row.length,
                    row.flags,
                )
            )
        ((_, value),) = puts
        self._write(value)

    def finish(self) -> None:
        """Index, footer, flush."""
        self._folder.step("rewrite: index")
        builder = IndexBuilder()
        for number, rows in self.rows.items():
            builder.add(number, iter(rows))
        self._write(bytes(-self._position % _ALIGN))
        name = self._name
        index = builder.build(
            name.first, name.last, self._time_ms, 0, self._position, self._header.format
        )
        self._write(index)
        self._folder.step("rewrite: flush")
        os.fsync(self._fd)

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._position += len(data)
        left = memoryview(data)
        while left:
            left = left[os.write(self._fd, left) :]
