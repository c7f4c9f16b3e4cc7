"""Reading what can be read of a damaged segment: commits by their salt and CRC, extents by theirs.

Nothing of LMDB's tree is needed: a commit's value says its number and what it holds. But nothing
that a client wrote is taken for a commit: values are looked for where LMDB can have put one
(`pages.loose`), and must carry the segment's salt. On a page that says nothing of itself the salt
alone is looked for. A file of format 1 has no salt: there such pages are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, cast

from ottla.log import pages
from ottla.log.commit import KEY, SALT_AT, BadCommit, Commit, Row, parse
from ottla.log.errors import Damaged
from ottla.log.extents import BadIndex, read_footer
from ottla.log.folder import SealedName
from ottla.log.header import HEADER_SIZES, MAGIC, BadHeader, SegmentHeader
from ottla.log.segment import HEADER_KEY, map_file
from ottla.wire.records import HEADER_SIZE as BATCH_HEADER
from ottla.wire.records import BatchHeader, CorruptBatch, crc_ok, read_header

_NOTHING: Final = pages.Loose([], [], [])
_PAGE: Final = 4096


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

    def __init__(self, path: Path, first: int, below: int | None = None) -> None:
        """first: the first commit that may be in the file. below: commits from this one up do not
        count (they failed). Raises OSError; an empty file holds nothing."""
        try:
            self._file = map_file(path)
        except Damaged:
            self._file = memoryview(b"")
        self._first = first
        self._below = below
        self._rewritten = bytes(self._file[: len(MAGIC)]) == MAGIC or _never_pages(path, self._file)
        self._loose = _NOTHING if self._rewritten else pages.loose(self._file)
        #: Where values lie, by commit and slot.
        self._slots: dict[tuple[int, int], list[int]] = {}
        for key, position, _ in self._loose.values:
            if len(key) == KEY.size:
                self._slots.setdefault(KEY.unpack(key), []).append(position)
        header = self._read_header(0) if self._rewritten else self._find_header()
        self._salt = header.salt if header is not None else None

    def commits(self) -> list[Found]:
        """All sound commits by number, each once: the copy with the fewest wounds."""
        best: dict[int, Found] = {}
        for position, commit in self._heads():
            number = commit.number
            if number < self._first or (self._below is not None and number >= self._below):
                continue
            known = best.get(number)
            if known is not None and not known.hurt:
                continue
            found = self._open(position, commit)
            if known is None or len(found.hurt) < len(known.hurt):
                best[number] = found
        return [best[number] for number in sorted(best)]

    # -------------------------------------------------------------------------------------- heads

    def _read_header(self, position: int) -> SegmentHeader | None:
        with suppress(BadHeader):
            header = SegmentHeader.read(self._file[position : position + _PAGE])
            if header.first == self._first:
                return header
        return None

    def _find_header(self) -> SegmentHeader | None:
        """The lowest page that has one: it was written before any client's bytes."""
        for position in sorted(self._slots.get(KEY.unpack(HEADER_KEY), [])):
            header = self._read_header(position)
            if header is not None:
                return header
        return None

    def _heads(self) -> Iterator[tuple[int, Commit]]:
        """Where commits begin."""
        if self._rewritten:
            yield from self._chained()
            return
        named = {at for (number, slot), found in self._slots.items() if number and not slot
                 for at in found}  # fmt: skip
        for position in sorted(named.union(self._loose.runs)):
            commit = self._head(position)
            if commit is not None:
                yield position, commit
        if self._salt:
            for page in self._loose.others:
                yield from self._salted(page, page + _PAGE)

    def _head(self, position: int) -> Commit | None:
        """The commit that begins there. Without a header the first one's salt is the file's."""
        try:
            commit = parse(self._file, salt=self._salt, start=position, whole=False)
            commit.changes()
        except BadCommit:
            return None
        if self._salt is None:
            self._salt = commit.salt
        return commit

    def _chained(self) -> Iterator[tuple[int, Commit]]:
        """The commits of a rewritten file, one behind the other. The first lies behind the header,
        where no client's bytes can be; without the header it tells the salt."""
        at = next((size for size in HEADER_SIZES if self._head(size) is not None), HEADER_SIZES[0])
        while True:
            commit = self._head(at)
            if commit is None:
                break
            yield at, commit
            at += commit.size
        if self._salt:
            yield from self._salted(at, len(self._file))

    def _salted(self, start: int, end: int) -> Iterator[tuple[int, Commit]]:
        """Commits by their salt, which a client cannot know."""
        salt = cast(int, self._salt).to_bytes(8, "little")
        # A view does not search; what it views does, bytes and mmap alike.
        find = cast(bytes, self._file.obj).find
        at = find(salt, start, end)
        while at >= 0:
            position = at - SALT_AT
            commit = self._head(position) if position >= start else None
            if commit is not None:
                yield position, commit
            at = find(salt, at + 1, end)

    # ------------------------------------------------------------------------------------ extents

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
            starts = self._slots.get((number, row.slot), []) + self._loose.runs
        best: list[Piece] = []
        for start in starts:
            head = start + row.position
            if row.slot and self._file[head + 17 : head + 21] != row.crc:
                continue  # another extent is here
            pieces = self._sound(head, row)
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
        there is none. A base offset's first bytes are mostly zero, which is looked for.

        A record's value may look like a batch. So another must follow on it, or the extent's end,
        and the first that is found counts: one within a sound batch comes behind it.
        """
        data = bytes(self._file[at:end])
        prefix = low.to_bytes(8, "big")[:4]
        found = data.find(prefix)
        while found >= 0:
            header = _sound_header(data, found, low, high)
            if header is not None:
                after = found + header.size
                following = _header_at(data, after)
                if following is not None:
                    fits = header.next_offset <= following.base_offset <= high
                else:
                    fits = after == len(data) and header.last_offset == high
                if fits:
                    return at + found
            found = data.find(prefix, found + 1)
        return end


def _never_pages(path: Path, file: memoryview) -> bool:
    """Whether a file was rewritten, where its header does not say so: whatever looks like pages in
    it was written by clients."""
    name = SealedName.parse(path.name.partition(".sealed")[0] + ".sealed")
    if name is not None and name.generation:
        return True
    try:
        return read_footer(file).lmdb_pages == 0
    except BadIndex:
        return False


def _header_at(data: bytes, at: int) -> BatchHeader | None:
    """The header of a batch that may begin there."""
    if len(data) - at < BATCH_HEADER:
        return None
    header = read_header(data, at)
    return header if header.magic == 2 and header.size >= BATCH_HEADER else None


def _sound_header(data: bytes, at: int, low: int, high: int) -> BatchHeader | None:
    """The header of a batch that is whole, with offsets from `low` to `high`."""
    header = _header_at(data, at)
    if (
        header is None
        or header.size > len(data) - at
        or not low <= header.base_offset <= header.last_offset <= high
        or not crc_ok(data, header, at)
    ):
        return None
    return header
