"""Bytes that look like the log's own, as a client would make them.

A forged commit says that topics are gone, that rows are there, that records follow; it has a number
that the log may look for, and a right checksum. What a client cannot know is guessed: in format 2
the salt of the segment (docs/design/log.md). `frames` puts forged commits where LMDB puts values:
on pages that claim to be leaves and runs, and at all other places of a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from struct import Struct
from typing import Final

from ottla.log.options import Table
from ottla.wire.crc import crc32c

PAGE: Final = 4096
_PAGE_HEADER: Final = 16
#: Row and value that no honest client ever writes.
POISON: Final = b"poison"
#: A table that no version knows.
UNKNOWN_TABLE: Final = 99

_HEADER_1: Final = Struct("<4sIQqIIII")
_HEADER_2: Final = Struct("<4sIQqIIIIQ")
_CRC: Final = Struct("<I")
_ROW: Final = Struct("<IHHqqqII4s")
_ENTRY: Final = Struct("<BBHI")
_KEY: Final = Struct(">QH")
_PARTITION: Final = Struct(">I")
_LEAF_PAGE: Final = Struct("<QHHHH")  # number, pad, flags, lower, upper
_RUN_PAGE: Final = Struct("<QHHI")  # number, pad, flags, pages
_NODE: Final = Struct("<HHHH")  # size low, size high, flags, key size
_LEAF: Final = 2
_OVERFLOW: Final = 4
#: Of a node: its value has pages of its own.
_BIG: Final = 1
_PUT: Final = 0
_DELETE: Final = 1

#: Salts that somebody might try.
SALTS: Final = (0, 1, 0x0101010101010101, (1 << 64) - 1)

Entry = tuple[int, bytes, bytes | None]


def _journal(entries: Iterable[Entry]) -> bytes:
    parts = []
    for table, key, value in entries:
        kind = _DELETE if value is None else _PUT
        parts += [_ENTRY.pack(table, kind, len(key), len(value or b"")), key, value or b""]
    return b"".join(parts)


def commit(
    number: int,
    entries: Sequence[Entry],
    *,
    salt: int | None = None,
    time_ms: int = 0,
    extent: tuple[int, int, bytes] | None = None,
) -> bytes:
    """A commit's value. salt: None for format 1, which has none. extent: partition, offset and a
    whole batch that the directory names."""
    journal, directory, joined = _journal(entries), b"", b""
    header = _HEADER_1 if salt is None else _HEADER_2
    if extent is not None:
        partition, offset, joined = extent
        at = header.size + _ROW.size + len(journal)
        directory = _ROW.pack(partition, 0, 0, offset, offset, 0, at, len(joined), joined[17:21])
    fields = (number, time_ms, bool(extent), len(entries), len(journal), len(joined))
    if salt is None:
        head = header.pack(b"OtC1", 0, *fields)
    else:
        head = header.pack(b"OtC2", 0, *fields, salt)
    check = crc32c(head[8:] + directory + journal)
    return b"".join((head[:4], _CRC.pack(check), head[8:], directory, journal, joined))


def evil(partitions: Iterable[int] = (1, 2)) -> list[list[Entry]]:
    """Journals that would be noticed."""
    gone: list[Entry] = [(Table.PARTITIONS, _PARTITION.pack(number), None) for number in partitions]
    return [
        [*gone, (Table.OFFSETS, POISON, POISON), (Table.TOPICS, POISON, POISON)],
        [(UNKNOWN_TABLE, POISON, POISON)],
    ]


def commits(numbers: Iterable[int], batch: bytes = b"") -> Iterator[bytes]:
    """One of each kind, for each of the numbers. batch: of records that are to appear."""
    for number, salt, entries in product(numbers, (None, *SALTS), evil()):
        yield commit(number, entries, salt=salt)
        if batch:
            yield commit(number, entries, salt=salt, extent=(1, number, batch))


def text(number: int, salt: int | None = None) -> str:
    """A forged commit as text: all its bytes are ASCII, which takes a few tries."""
    if salt is not None:
        salt &= 0x7F7F7F7F7F7F7F7F
    for tries in range(1 << 14):
        time_ms = tries & 0x7F | (tries >> 7 & 0x7F) << 8
        found = commit(number, [(Table.OFFSETS, POISON, POISON)], salt=salt, time_ms=time_ms)
        if found.isascii():
            return found.decode("ascii")
    raise AssertionError("no such text")


def run_page(number: int, value: bytes) -> bytes:
    """The first page of a value of its own."""
    pages = (len(value) + _PAGE_HEADER - 1) // PAGE + 1
    return (_RUN_PAGE.pack(number, 0, _OVERFLOW, pages) + value).ljust(PAGE, b"\0")[:PAGE]


def leaf_page(number: int, values: Sequence[tuple[tuple[int, int], bytes]]) -> bytes:
    """A leaf with values in it, by commit and slot; as many as there is room for."""
    page = bytearray(PAGE)
    lower, upper = _PAGE_HEADER, PAGE
    for key, value in values:
        node = _NODE.pack(len(value) & 0xFFFF, len(value) >> 16, 0, _KEY.size)
        node += _KEY.pack(*key) + value
        size = len(node) + len(node) % 2
        if upper - size < lower + 2:
            break
        upper -= size
        page[upper : upper + len(node)] = node
        page[lower : lower + 2] = upper.to_bytes(2, "little")
        lower += 2
    _LEAF_PAGE.pack_into(page, 0, number, 0, _LEAF, lower, upper)
    return bytes(page)


def pointing_leaf(number: int, key: tuple[int, int], page: int, size: int) -> bytes:
    """A leaf that names one value of `size` bytes on pages of its own."""
    node = _NODE.pack(size & 0xFFFF, size >> 16, _BIG, _KEY.size) + _KEY.pack(*key)
    node += page.to_bytes(8, "little")
    lower, upper = _PAGE_HEADER + 2, PAGE - len(node)
    head = _LEAF_PAGE.pack(number, 0, _LEAF, lower, upper) + upper.to_bytes(2, "little")
    return head.ljust(upper, b"\0") + node


def extent_pages(first_page: int, value_at: int, key: tuple[int, int], batch: bytes) -> bytes:
    """A record's value with a leaf that names `batch` as the value of `key`, and the batch.

    first_page, value_at: see `frames`.
    """
    before = bytes(-value_at % PAGE)
    leaf = first_page + (value_at + len(before)) // PAGE
    run = (len(batch) + _PAGE_HEADER - 1) // PAGE + 1
    value = _RUN_PAGE.pack(leaf + 1, 0, _OVERFLOW, run) + batch
    return before + pointing_leaf(leaf, key, leaf + 1, len(batch)) + value.ljust(run * PAGE, b"\0")


def frames(first_page: int, value_at: int, numbers: Sequence[int], pages: int) -> bytes:
    """A record's value that fills pages of its own, so that it looks like pages itself.

    first_page: where the run begins in the file. value_at: where the record's value begins, from
    the beginning of that page. pages: how many follow.
    """
    out = bytearray(-value_at % PAGE)
    page = first_page + (value_at + len(out)) // PAGE
    forged = list(commits(numbers))
    for turn in range(pages):
        some = forged[turn % len(forged) :] + forged[: turn % len(forged)]
        if turn % 3 == 0:
            kind = run_page(page + turn, some[0])
        elif turn % 3 == 1:
            keys = [((numbers[i % len(numbers)], 0), value) for i, value in enumerate(some)]
            kind = leaf_page(page + turn, keys)
        else:
            kind = b"".join(b"\0" * (i % 8) + value for i, value in enumerate(some))[:PAGE]
        out += kind
    return bytes(out)
