"""Reading an LMDB file without LMDB: where each value of the newest committed tree lies.

LMDB trusts its files: a page number that is off ends the process with SIGBUS or SIGABRT. So
whatever may be torn is read with this walker first, which checks every number before it follows
it and raises BadPages. It is also how the index of a sealed segment learns the file positions of
values (LMDB does not tell them). It knows data version 1 (LMDB 0.9), little-endian, 64 bits, one
unnamed database without duplicates: what log/segment.py writes.

Source: mdb.c of LMDB 0.9, structures MDB_page, MDB_meta, MDB_node.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct, error
from typing import Any, Final, NamedTuple

import lmdb.verify

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_PAGE_HEADER: Final = 16
#: Both meta pages lie within, whatever the page size.
_HEAD: Final = 2 * 65_536
_NO_PAGE: Final = (1 << 64) - 1
_MAX_DEPTH: Final = 32

_BRANCH: Final = 0x01
_LEAF: Final = 0x02
_OVERFLOW: Final = 0x04
_META: Final = 0x08
_BIG: Final = 0x01  # the node holds the number of an overflow page

_PAGE: Final = Struct("<QHHHH")  # number, pad, flags, lower, upper
_OVERFLOW_PAGE: Final = Struct("<QHHI")  # number, pad, flags, pages
_NODE: Final = Struct("<HHHH")  # size or child: low, high; flags or child's top; key size
# magic, version, address, map size; free db (its pad is the page size); main db; last page, txn
_META_PAGE: Final = Struct("<IIQQ IH42s IHHQQQQQ QQ")
#: Flags of the free db: its keys are integers, and the file is no folder. The main db has none.
_FREE_FLAGS: Final = 0x4008
_U64: Final = Struct("<Q")
_new_tuple: Final[Any] = tuple.__new__


class BadPages(Exception):
    """The file is no sound LMDB file of this format."""


class Meta(NamedTuple):
    """What the newer of the two meta pages says."""

    page_size: int
    last_page: int
    transaction: int
    root: int
    depth: int
    entries: int

    @property
    def size(self) -> int:
        """Bytes the file must have."""
        return (self.last_page + 1) * self.page_size


class Value(NamedTuple):
    """Where a value lies in the file."""

    key: bytes
    position: int
    size: int


def read_metas(file: memoryview) -> tuple[Meta, Meta]:
    """Both meta pages, the newer first. Raises BadPages where neither LMDB nor we could go on."""
    first, page_size = _read_meta(file, 0)
    if page_size < 512 or page_size > 65_536 or page_size & (page_size - 1):
        raise BadPages(f"page size {page_size}")
    second, other = _read_meta(file, page_size)
    if other != page_size:
        raise BadPages(f"the meta pages disagree on the page size ({page_size}, {other})")
    return (first, second) if first.transaction > second.transaction else (second, first)


def read_meta(file: memoryview) -> Meta:
    """The newer meta page: what is committed. Raises BadPages."""
    return read_metas(file)[0]


def _read_meta(file: memoryview, position: int) -> tuple[Meta, int]:
    try:
        flags = _PAGE.unpack_from(file, position)[2]
        fields = _META_PAGE.unpack_from(file, position + _PAGE_HEADER)
    except error:
        raise BadPages("too short for its meta pages") from None
    magic, version, _, _, page_size, free_flags, *_ = fields
    main_flags, depth, _, _, _, entries, root, last, txn = fields[8:]
    if not flags & _META or magic != _MAGIC:
        raise BadPages("no LMDB meta page at its place")
    if version != _VERSION:
        raise BadPages(f"LMDB data version {version} instead of {_VERSION}")
    if free_flags != _FREE_FLAGS or main_flags:
        raise BadPages("a meta page has flags that were never set")
    return Meta(page_size, last, txn, root, depth, entries), page_size


def check_size(file: memoryview, meta: Meta) -> None:
    """Whether the file has all the pages that `meta` counts. Raises BadPages."""
    if len(file) < meta.size:
        raise BadPages(
            f"cut: {len(file)} bytes of {meta.size} ({meta.last_page + 1} pages of"
            f" {meta.page_size})"
        )


def verify(path: Path) -> str | None:
    """What is wrong with a file, looking at every page of it, up to a few microseconds each; None
    for a sound one, or none at all.

    LMDB ends the process where a page makes no sense: this says so before.
    """
    if not path.exists() or path.stat().st_size == 0:
        return None
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    try:
        read_metas(memoryview(head))
        # lmdb.verify has no annotations.
        problems = lmdb.verify.verify(str(path), subdir=False)  # type: ignore[no-untyped-call]
    except (BadPages, lmdb.verify.VerifyError) as error:
        return str(error)
    return problems[0] if problems else None


def walk(file: memoryview, meta: Meta, visited: bytearray | None = None) -> Iterator[Value]:
    """All values of the tree that `meta` commits, in key order. Raises BadPages at the first
    thing that cannot be.

    visited: a byte for each page of the file; that of each page of the tree becomes 1.
    """
    check_size(file, meta)
    if meta.root == _NO_PAGE:
        return
    count = 0
    last = b""
    for page, lower, low in _leaves(file, meta, visited):
        if low and last >= low:
            raise BadPages(f"page {page} has keys that are looked for elsewhere")
        base = page * meta.page_size
        for pointer in _pointers(file, base, lower):
            value = _value(file, meta, base, pointer)
            key = value[0]
            if key <= last or key < low:
                raise BadPages(f"page {page} has its keys in disorder")
            last = key
            count += 1
            if visited is not None:
                first, inside = divmod(value.position, meta.page_size)
                if inside == _PAGE_HEADER:  # nowhere else in a page: the pointers begin there
                    run = _run(value.size, meta.page_size)
                    visited[first : first + run] = b"\1" * run
            yield value
    if count != meta.entries:
        raise BadPages(f"{count} values where {meta.entries} are counted")


def find(file: memoryview, meta: Meta, key: bytes) -> Value | None:
    """The value of `key` in the tree that `meta` commits. Looks at one page a level, which may
    have been written anew meanwhile: see log/outside.py. Raises BadPages."""
    check_size(file, meta)
    page = meta.root
    for _ in range(_MAX_DEPTH):
        if page == _NO_PAGE:
            return None
        if not 2 <= page <= meta.last_page:
            raise BadPages(f"page {page} cannot be part of the tree")
        base = page * meta.page_size
        number, _, flags, lower, _ = _PAGE.unpack_from(file, base)
        if number != page or not _PAGE_HEADER <= lower <= meta.page_size or lower & 1:
            raise BadPages(f"page {page} is damaged")
        if flags & 0xFF == _LEAF:
            for pointer in _pointers(file, base, lower):
                value = _value(file, meta, base, pointer)
                if value.key == key:
                    return value
            return None
        if flags & 0xFF != _BRANCH:
            raise BadPages(f"page {page} has flags {flags:#x} within the tree")
        page = _NO_PAGE
        for child, low in _children(file, meta, base, lower, b""):
            if low > key:
                break
            page = child
    raise BadPages("a tree deeper than LMDB makes them")


def _leaves(
    file: memoryview, meta: Meta, visited: bytearray | None = None
) -> Iterator[tuple[int, int, bytes]]:
    """Page number, lower bound and least possible key of each leaf, from left to right."""
    stack: list[Iterator[tuple[int, bytes]]] = [iter([(meta.root, b"")])]
    budget = meta.last_page + 1  # no page may be met twice
    while stack:
        page, low = next(stack[-1], (0, b""))
        if not page:
            stack.pop()
            continue
        budget -= 1
        if not 2 <= page <= meta.last_page or budget < 0 or len(stack) > _MAX_DEPTH:
            raise BadPages(f"page {page} cannot be part of the tree")
        base = page * meta.page_size
        number, _, flags, lower, _ = _PAGE.unpack_from(file, base)
        if number != page or not _PAGE_HEADER <= lower <= meta.page_size or lower & 1:
            raise BadPages(f"page {page} is damaged")
        if visited is not None:
            visited[page] = 1
        kind = flags & 0xFF
        if kind == _LEAF:
            yield page, lower, low
        elif kind == _BRANCH:
            stack.append(iter(_children(file, meta, base, lower, low)))
        else:
            raise BadPages(f"page {page} has flags {flags:#x} within the tree")


def _pointers(file: memoryview, base: int, lower: int) -> memoryview:
    return file[base + _PAGE_HEADER : base + lower].cast("H")


def _children(
    file: memoryview, meta: Meta, base: int, lower: int, low: bytes
) -> list[tuple[int, bytes]]:
    """Page number and least key of each child; the first one's is its parent's."""
    children: list[tuple[int, bytes]] = []
    end = base + meta.page_size
    for pointer in _pointers(file, base, lower):
        start = base + pointer + _NODE.size
        if not _PAGE_HEADER <= pointer <= meta.page_size - _NODE.size:
            raise BadPages(f"page {base // meta.page_size} is damaged")
        child_low, high, top, key_size = _NODE.unpack_from(file, base + pointer)
        if children:
            low = bytes(file[start : start + key_size])
        if start + key_size > end:
            raise BadPages(f"page {base // meta.page_size} is damaged")
        children.append((child_low | high << 16 | top << 32, low))
    return children


def _value(file: memoryview, meta: Meta, base: int, pointer: int) -> Value:
    page_size = meta.page_size
    if not _PAGE_HEADER <= pointer <= page_size - _NODE.size:
        raise BadPages(f"page {base // page_size} is damaged")
    low, high, flags, key_size = _NODE.unpack_from(file, base + pointer)
    size = low | high << 16
    start = base + pointer + _NODE.size
    position = start + key_size
    inside = 8 if flags == _BIG else size
    if flags & ~_BIG or position + inside > base + page_size:
        raise BadPages(f"page {base // page_size} is damaged")
    key = bytes(file[start:position])
    if flags == _BIG:
        position = _overflow(file, meta, _U64.unpack_from(file, position)[0], size)
    value: Value = _new_tuple(Value, (key, position, size))  # a start makes one a commit
    return value


def _overflow(file: memoryview, meta: Meta, page: int, size: int) -> int:
    pages = _run(size, meta.page_size)
    if page < 2 or page + pages > meta.last_page + 1:
        raise BadPages(f"overflow page {page} lies outside the file")
    base = page * meta.page_size
    number, _, flags, count = _OVERFLOW_PAGE.unpack_from(file, base)
    if number != page or flags & 0xFF != _OVERFLOW or count < pages:
        raise BadPages(f"overflow page {page} is damaged")
    return base + _PAGE_HEADER


def _run(size: int, page_size: int) -> int:
    """Pages of a value of `size` bytes that has pages of its own."""
    return (_PAGE_HEADER - 1 + size) // page_size + 1


class Loose(NamedTuple):
    """What pages say of themselves, whether or not a tree reaches them."""

    #: Values that leaf pages name. The first `size` bytes may be those of another value.
    values: list[Value]
    #: Where the content of each run of pages begins: a value of its own.
    runs: list[int]
    #: Where each page begins that says nothing.
    others: list[int]


def loose(file: memoryview, page_size: int = 4096, visited: bytearray | None = None) -> Loose:
    """Look at pages without a tree, from the first to the last; a page of `visited` that is 1 is
    left out.

    Only pages where LMDB can have put something are looked at: what lies within a run of pages is
    a value's content, and whoever wrote the value may have made it look like pages.
    """
    count = len(file) // page_size
    if visited is None:
        visited = bytearray(count)
    meta = Meta(page_size, count - 1, 0, 0, 0, 0)
    found = Loose([], [], [])
    page = visited.find(0, 2, count)
    while page >= 0:
        base = page * page_size
        number, _, flags, lower, upper = _PAGE.unpack_from(file, base)
        after = page + 1
        kind = flags & 0xFF if number == page else 0
        if kind == _OVERFLOW:
            found.runs.append(base + _PAGE_HEADER)
            run = _OVERFLOW_PAGE.unpack_from(file, base)[3]
            known = visited.find(1, after, count)
            after = min(page + max(run, 1), count if known < 0 else known)
        elif kind == _LEAF and _PAGE_HEADER <= lower <= upper <= page_size and not lower & 1:
            for pointer in _pointers(file, base, lower):
                with suppress(BadPages):
                    found.values.append(_value(file, meta, base, pointer))
        elif kind != _BRANCH:
            found.others.append(base)
        page = visited.find(0, after, count)
    return found
