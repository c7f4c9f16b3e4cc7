"""Reading what can be read of a damaged segment: commits by their magic and CRC, extents by theirs.

Nothing of LMDB's tree is needed: a commit's value says its number and what it holds. Extents with
a value of their own are found through any leaf page that still names them, or else by what their
first batch says of itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, cast

from ottla.log import pages
from ottla.log.commit import KEY, MAGIC, BadCommit, Commit, Row, parse
from ottla.log.errors import Damaged
from ottla.log.extents import ActiveIndex
from ottla.log.options import StoreOptions
from ottla.log.segment import PAGE, ActiveSegment, map_file
from ottla.wire.records import HEADER_SIZE as BATCH_HEADER
from ottla.wire.records import CorruptBatch, crc_ok, read_header

_VALUE_AT: Final = 16  # in an overflow page, behind its header


class Piece(NamedTuple):
    """Sound batches of one partition, one behind the other."""

    partition: int
    first: int
    last: int
    max_timestamp: int
    flags: int
    data: memoryview


class Found(NamedTuple):
    """One commit of which at least the directory and the journal are sound."""

    commit: Commit
    pieces: list[Piece]
    #: Rows of the directory of which something is lost.
    hurt: list[Row]


class Salvage:
    """What a file still holds."""

    def __init__(self, path: Path, below: int | None = None) -> None:
        """below: commits from this one up do not count (they failed). Raises OSError; an empty
        file holds nothing."""
        try:
            self._file = map_file(path)
        except Damaged:
            self._file = memoryview(b"")
        self.size = len(self._file)
        self._below = below
        self._slots: dict[tuple[int, int], list[int]] | None = None
        self._starts: dict[int, list[int]] | None = None

    def commits(self) -> list[Found]:
        """All sound commits by number, each once: the copy with the fewest wounds."""
        best: dict[int, Found] = {}
        for position, commit in self._heads():
            number = commit.number
            if self._below is not None and number >= self._below:
                continue
            known = best.get(number)
            if known is not None and not known.hurt:
                continue
            found = self._open(position, commit)
            if known is None or len(found.hurt) < len(known.hurt):
                best[number] = found
        return [best[number] for number in sorted(best)]

    def whole(self, number: int) -> list[tuple[bytes, bytes]] | None:
        """Keys and values of a commit of which nothing is missing; None when something is."""
        for position, commit in self._heads():
            if commit.number == number and not self._open(position, commit).hurt:
                values = {0: bytes(self._file[position : position + commit.size])}
                for row in commit.rows:
                    if row.slot:
                        (piece,) = self._row(position, number, row)
                        values[row.slot] = bytes(piece.data)
                return [(KEY.pack(number, slot), values[slot]) for slot in sorted(values)]
        return None

    def _heads(self) -> Iterator[tuple[int, Commit]]:
        """Wherever a commit's magic and CRC are right."""
        # A view does not search; what it views does, bytes and mmap alike.
        find = cast(bytes, self._file.obj).find
        at = find(MAGIC)
        while at >= 0:
            with suppress(BadCommit):
                yield at, parse(self._file, start=at, whole=False)
            at = find(MAGIC, at + 1)

    def _open(self, position: int, commit: Commit) -> Found:
        pieces: list[Piece] = []
        hurt: list[Row] = []
        for row in commit.rows:
            sound = self._row(position, commit.number, row)
            pieces += sound
            if not sound or sum(len(piece.data) for piece in sound) != row.length:
                hurt.append(row)
        return Found(commit, pieces, hurt)

    def _row(self, position: int, number: int, row: Row) -> list[Piece]:
        """The sound batches of one directory row."""
        if row.slot == 0:
            starts = [position]
        else:
            starts = self._named(number, row.slot) + self._looking_like(row)
        best: list[Piece] = []
        for start in starts:
            head = start + row.position
            if row.slot and self._file[head + 17 : head + 21] != row.crc:
                continue  # another extent was here before
            pieces = self._sound(start + row.position, row)
            if sum(len(p.data) for p in pieces) > sum(len(p.data) for p in best):
                best = pieces
        return best

    def _sound(self, at: int, row: Row) -> list[Piece]:
        """Batches between `at` and the row's end that are whole and have the right CRC; behind a
        damaged one the next is looked for."""
        file = self._file
        end = min(at + row.length, len(file))
        pieces: list[Piece] = []
        next_offset = row.first
        while at + BATCH_HEADER <= end:
            header = None
            try:
                header = read_header(file, at)
            except CorruptBatch:
                break
            size = header.size
            sound = (
                header.magic == 2
                and BATCH_HEADER <= size <= end - at
                and next_offset <= header.base_offset <= header.last_offset <= row.last
                and crc_ok(file, header, at)
            )
            if not sound:
                at = self._next_batch(at + 1, end, next_offset, row.last)
                continue
            next_offset = header.next_offset
            last = pieces[-1] if pieces else None
            if last is not None and last.last + 1 == header.base_offset:
                start = at - len(last.data)
                pieces[-1] = last._replace(
                    last=header.last_offset,
                    max_timestamp=max(last.max_timestamp, header.max_timestamp),
                    data=file[start : at + size],
                )
            else:
                pieces.append(
                    Piece(
                        row.partition,
                        header.base_offset,
                        header.last_offset,
                        header.max_timestamp,
                        row.flags,
                        file[at : at + size],
                    )
                )
            at += size
        return pieces

    def _next_batch(self, at: int, end: int, low: int, high: int) -> int:
        """Where the next sound batch with an offset between `low` and `high` begins; `end` when
        there is none. A base offset's first bytes are mostly zero, which is looked for."""
        file = self._file
        prefix = low.to_bytes(8, "big")[:4]
        data = bytes(file[at:end])
        found = data.find(prefix)
        while found >= 0:
            if len(data) - found >= BATCH_HEADER:
                header = read_header(data, found)
                if (
                    header.magic == 2
                    and BATCH_HEADER <= header.size <= len(data) - found
                    and low <= header.base_offset <= header.last_offset <= high
                    and crc_ok(data, header, found)
                ):
                    return at + found
            found = data.find(prefix, found + 1)
        return end

    # ------------------------------------------------------------------------ values of their own

    def _named(self, number: int, slot: int) -> list[int]:
        """Where leaf pages say the value lies."""
        if self._slots is None:
            self._slots = {}
            for key, position, _ in pages.loose_values(self._file):
                if len(key) == KEY.size:
                    self._slots.setdefault(KEY.unpack(key), []).append(position)
        return self._slots.get((number, slot), [])

    def _looking_like(self, row: Row) -> list[int]:
        """Values on pages of their own that begin with the row's first offset."""
        if self._starts is None:
            self._starts = {}
            for page in range(0, self.size - _VALUE_AT - 8, PAGE):
                at = page + _VALUE_AT
                first = int.from_bytes(self._file[at : at + 8], "big")
                self._starts.setdefault(first, []).append(at)
        return self._starts.get(row.first, [])


def complete(path: Path, options: StoreOptions, below: int | None) -> None:
    """Put back the commits whose meta page a power cut kept from the disk; their data was flushed
    before they were acknowledged. The file is sound but for that. Raises Damaged, OSError.

    A commit flushes its data and then writes its meta page, which the next one's flush takes
    along: at most the last two are found this way, the last of them perhaps never acknowledged.
    """
    file = map_file(path)
    try:
        last = max(
            (KEY.unpack(v.key)[0] for v in pages.walk(file, pages.read_meta(file))), default=0
        )
    except pages.BadPages as error:
        raise Damaged(path, str(error)) from None
    del file
    salvage = Salvage(path, below)
    while below is None or last + 1 < below:
        values = salvage.whole(last + 1)
        if values is None:
            return
        segment = ActiveSegment.open(path, 0, 0, ActiveIndex(), options)
        try:
            segment.write(values)
            segment.env.sync(True)
        finally:
            segment.env.close()
        last += 1
