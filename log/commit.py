"""The value of one commit: header, directory, journal, small extents joined.

docs/design/log.md has the bytes. A Group is what is being gathered; `encode` turns the groups that
form a commit into LMDB keys and values; `parse` reads one back and trusts nothing. Each commit
carries the salt of its segment (header.py), by which it is told from bytes that a client wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from struct import Struct, error
from typing import Final, NamedTuple

from ottla.log.options import Change, Table
from ottla.log.tickets import Ticket
from ottla.wire.codecs import Buffer
from ottla.wire.crc import crc32c

MAGIC: Final = b"OtC2"
#: Of format 1, which has no salt; read, and never written.
_OLD_MAGIC: Final = b"OtC1"
#: Extent flag: holds batches of producers with an id, so producer state depends on it.
IDEMPOTENT: Final = 1
#: Slots are u16; slot 0 is the commit's own value.
MAX_SLOTS: Final = 65_535
#: LMDB keys are at most 511 bytes, one goes to the table.
MAX_KEY: Final = 500

KEY: Final = Struct(">QH")
_HEADER: Final = Struct("<4sIQqIIIIQ")
_OLD_HEADER: Final = Struct("<4sIQqIIII")
_CRC: Final = Struct("<I")
_ROW: Final = Struct("<IHHqqqII4s")
_ENTRY: Final = Struct("<BBHI")
HEADER_SIZE: Final = _HEADER.size
ROW_SIZE: Final = _ROW.size
#: Where the salt stands in a commit's header.
SALT_AT: Final = _OLD_HEADER.size
_CRC_FROM: Final = 8
#: Where a batch's header has its CRC.
BATCH_CRC: Final = slice(17, 21)
_PUT: Final = 0
_DELETE: Final = 1


class BadCommit(Exception):
    """Bytes that are not a commit's value."""


class Row(NamedTuple):
    """One extent: what its commit's directory says."""

    partition: int
    slot: int
    flags: int
    first: int
    last: int
    max_timestamp: int
    #: Within the value of `slot`.
    position: int
    length: int
    #: The CRC of the first batch, as it stands there: a salvage knows the extent by it.
    crc: bytes


class Extent:
    """One partition's batches in a group, in order."""

    __slots__ = ("buffers", "first", "flags", "last", "length", "max_timestamp", "partition")

    def __init__(
        self,
        partition: int,
        flags: int,
        first: int,
        last: int,
        max_timestamp: int,
        length: int,
        buffers: list[Buffer],
    ) -> None:
        self.partition = partition
        self.flags = flags
        self.first = first
        self.last = last
        self.max_timestamp = max_timestamp
        self.length = length
        self.buffers = buffers


class Group:
    """What was admitted in one turn of the loop: it is committed as a whole or not at all."""

    __slots__ = ("_open", "changes", "extents", "large", "size", "ticket", "time_ms")

    def __init__(self, large: int) -> None:
        #: Batches from this size up become extents of their own.
        self.large = large
        self.ticket = Ticket()
        self.extents: list[Extent] = []
        self.changes: list[Change] = []
        #: Bytes of batches and changes.
        self.size = 0
        self.time_ms = 0
        self._open: dict[int, Extent] = {}

    def add(
        self,
        partition: int,
        flags: int,
        first: int,
        last: int,
        max_timestamp: int,
        length: int,
        batch: Buffer,
    ) -> None:
        """A batch at the end of `partition`."""
        self.size += length
        if length >= self.large:
            self._open.pop(partition, None)
            self.extents.append(
                Extent(partition, flags, first, last, max_timestamp, length, [batch])
            )
            return
        extent = self._open.get(partition)
        if extent is None:
            extent = Extent(partition, flags, first, last, max_timestamp, length, [batch])
            self._open[partition] = extent
            self.extents.append(extent)
            return
        extent.flags |= flags
        extent.last = last
        if max_timestamp > extent.max_timestamp:
            extent.max_timestamp = max_timestamp
        extent.length += length
        extent.buffers.append(batch)

    def merge(self, later: Group) -> None:
        """Take in a group that was admitted after this one; tickets stay apart."""
        self.size += later.size
        self.time_ms = later.time_ms
        self.changes.extend(later.changes)
        open_extents = self._open
        for extent in later.extents:
            large = extent.length >= self.large and len(extent.buffers) == 1
            mine = open_extents.get(extent.partition)
            if mine is None or large:
                self.extents.append(extent)
                if large:
                    open_extents.pop(extent.partition, None)
                else:
                    open_extents[extent.partition] = extent
                continue
            mine.flags |= extent.flags
            mine.last = extent.last
            mine.max_timestamp = max(mine.max_timestamp, extent.max_timestamp)
            mine.length += extent.length
            mine.buffers.extend(extent.buffers)


def encode(
    number: int,
    time_ms: int,
    extents: Sequence[Extent],
    changes: Sequence[Change],
    large: int,
    salt: int,
) -> tuple[list[tuple[bytes, Buffer]], list[Row]]:
    """Keys and values of commit `number`, in key order, and its directory.

    salt: that of the segment it goes to. An extent of one buffer and at least `large` bytes becomes
    a value of its own, uncopied, as long as there are slots.
    """
    journal = _encode_journal(changes)
    joined: list[Buffer] = []
    position = start = HEADER_SIZE + ROW_SIZE * len(extents) + len(journal)
    puts: list[tuple[bytes, Buffer]] = [(KEY.pack(number, 0), b"")]
    rows: list[Row] = []
    new = tuple.__new__
    for x in extents:
        length = x.length
        if length >= large and len(x.buffers) == 1 and len(puts) < MAX_SLOTS:
            slot = len(puts)
            puts.append((KEY.pack(number, slot), x.buffers[0]))
            place = 0
        else:
            slot = 0
            place = position
            joined.extend(x.buffers)
            position += length
        crc = bytes(x.buffers[0][BATCH_CRC])
        row = (x.partition, slot, x.flags, x.first, x.last, x.max_timestamp, place, length, crc)
        rows.append(new(Row, row))
    pack = _ROW.pack
    directory = b"".join([pack(*row) for row in rows])
    header = _HEADER.pack(
        MAGIC, 0, number, time_ms, len(rows), len(changes), len(journal), position - start, salt
    )
    check = crc32c(journal, crc32c(directory, crc32c(header[_CRC_FROM:])))
    head = b"".join((MAGIC, _CRC.pack(check), header[_CRC_FROM:], directory, journal))
    puts[0] = (puts[0][0], b"".join(chain((head,), joined)) if joined else head)
    return puts, rows


def _encode_journal(changes: Sequence[Change]) -> bytes:
    if not changes:
        return b""
    pack = _ENTRY.pack
    parts: list[bytes] = []
    for table, key, value in changes:
        if value is None:
            parts += (pack(table, _DELETE, len(key), 0), key)
        else:
            parts += (pack(table, _PUT, len(key), len(value)), key, value)
    return b"".join(parts)


class Commit(NamedTuple):
    """A commit's value, read back and found sound."""

    number: int
    time_ms: int
    rows: list[Row]
    #: As stored; `changes` opens it.
    journal: bytes
    entries: int
    #: Bytes of the value: a longer buffer may hold it.
    size: int
    #: That of its segment; 0 in format 1.
    salt: int

    def changes(self) -> list[Change]:
        """The journal entries, in order. Raises BadCommit for one that no version before the
        folder's own can have written."""
        journal = self.journal
        changes: list[Change] = []
        pos = 0
        try:
            for _ in range(self.entries):
                table, kind, key_size, value_size = _ENTRY.unpack_from(journal, pos)
                pos += _ENTRY.size
                key = journal[pos : pos + key_size]
                pos += key_size
                value = journal[pos : pos + value_size]
                pos += value_size
                changes.append(Change(Table(table), key, None if kind == _DELETE else value))
        except (error, ValueError) as problem:
            raise BadCommit(f"commit {self.number}: its journal: {problem}") from None
        if pos != len(journal):
            raise BadCommit(f"commit {self.number}: its journal ends at {pos} of {len(journal)}")
        return changes


def parse(
    value: Buffer,
    number: int | None = None,
    *,
    salt: int | None = None,
    start: int = 0,
    whole: bool = True,
) -> Commit:
    """Read the commit that begins at `start` in `value`. Raises BadCommit.

    number, salt: what they must be. whole: also what is joined behind the journal must lie within
    `value`; extents are not looked at otherwise.
    """
    if len(value) - start < _OLD_HEADER.size:
        raise BadCommit(f"{len(value) - start} bytes are too few for a commit")
    old = value[start : start + len(MAGIC)] == _OLD_MAGIC
    if not old and len(value) - start < HEADER_SIZE:
        raise BadCommit(f"{len(value) - start} bytes are too few for a commit")
    header = _OLD_HEADER if old else _HEADER
    magic, crc, found, time_ms, count, entries, journal_size, joined, *rest = header.unpack_from(
        value, start
    )
    if not old and magic != MAGIC:
        raise BadCommit("no commit starts here")
    mine = rest[0] if rest else 0
    if salt is not None and salt != mine:
        raise BadCommit(f"commit {found} is not of this file")
    if number is not None and number != found:
        raise BadCommit(f"commit {found} where {number} should be")
    directory_end = header.size + ROW_SIZE * count
    end = directory_end + journal_size
    size = end + joined
    if start + (size if whole else end) > len(value):
        raise BadCommit(f"commit {found}: {size} bytes of which {len(value) - start} are there")
    view = memoryview(value)[start:]
    if crc32c(view[_CRC_FROM:end]) != crc:
        raise BadCommit(f"commit {found}: its directory or journal is altered")
    # What the CRC vouches for was written by us; nothing of it needs another look.
    rows = list(map(Row._make, _ROW.iter_unpack(view[header.size : directory_end])))
    journal = bytes(view[directory_end:end])
    return Commit(found, time_ms, rows, journal, entries, size, mine)
