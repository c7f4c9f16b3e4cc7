"""Which bytes hold (partition, offset).

For the active segment in RAM (ActiveIndex: 44 bytes an extent and 8 to search by), for a sealed
one in columns behind its LMDB pages (SealedIndex), read from the mapped file. Extents of a
partition never overlap and lie in offset order in both.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Final, NamedTuple

from ottla.log.commit import Row
from ottla.log.folder import FORMAT
from ottla.wire.crc import crc32c

#: first, last, max timestamp, commit, position, length, slot, flags
ACTIVE_ROW: Final = Struct("<qqqQIIHH")
ACTIVE_ROW_SIZE: Final = ACTIVE_ROW.size

FOOTER_MAGIC: Final = b"OttlaIdx"
_FOOTER: Final = Struct("<8sHHIIIQQQIIqQI")
_CRC: Final = Struct("<I")
FOOTER_SIZE: Final = _FOOTER.size + _CRC.size
_TOTALS_ROW: Final = 4 * 4 + 4 * 8
_COLUMNS_ROW: Final = 4 * 8 + 2 * 4


#: last, max timestamp, first, file position, length, flags
SealedRow = tuple[int, int, int, int, int, int]


class BadIndex(Exception):
    """The index of a sealed segment is not what was written."""


class ActiveExtents:
    """One partition's extents in the active segment."""

    __slots__ = ("flags", "lasts", "length", "max_timestamp", "rows")

    def __init__(self) -> None:
        #: Last offset of each extent.
        self.lasts = array("q")
        #: ACTIVE_ROW of each extent.
        self.rows = bytearray()
        #: Bytes of all of them.
        self.length = 0
        self.max_timestamp = -1
        self.flags = 0

    @property
    def first(self) -> int:
        """First offset of the first extent."""
        return int(ACTIVE_ROW.unpack_from(self.rows, 0)[0])

    def locate(self, offset: int) -> int:
        """The extent that holds `offset`, or the next; len(lasts) behind the last."""
        return bisect_left(self.lasts, offset)

    def row(self, index: int) -> tuple[int, int, int, int, int, int, int, int]:
        """first, last, max timestamp, commit, position, length, slot, flags."""
        return ACTIVE_ROW.unpack_from(self.rows, index * ACTIVE_ROW_SIZE)


class ActiveIndex:
    """All extents of one segment that has no index on disk yet."""

    __slots__ = ("count", "partitions")

    def __init__(self) -> None:
        self.partitions: dict[int, ActiveExtents] = {}
        self.count = 0

    def add(self, commit: int, rows: list[Row]) -> None:
        """The directory of the next commit."""
        partitions = self.partitions
        pack = ACTIVE_ROW.pack
        for partition, slot, flags, first, last, max_timestamp, position, length, _ in rows:
            mine = partitions.get(partition)
            if mine is None:
                mine = partitions[partition] = ActiveExtents()
            mine.lasts.append(last)
            mine.rows += pack(first, last, max_timestamp, commit, position, length, slot, flags)
            mine.length += length
            mine.flags |= flags
            if max_timestamp > mine.max_timestamp:
                mine.max_timestamp = max_timestamp
        self.count += len(rows)


class Totals(NamedTuple):
    """One partition in one sealed segment."""

    partition: int
    flags: int
    #: Where its rows begin in the columns, and how many there are.
    start: int
    rows: int
    #: Bytes of its extents.
    length: int
    first: int
    last: int
    max_timestamp: int


class Footer(NamedTuple):
    """The last bytes of a sealed file."""

    #: Of the segment's commits.
    format: int
    first_commit: int
    last_commit: int
    position: int
    partitions: int
    rows: int
    #: Time of the last commit, ms.
    time_ms: int
    lmdb_pages: int
    totals_crc: int
    columns_crc: int


class IndexBuilder:
    """Gathers the rows of a file that is to be sealed: partitions ascending, offsets ascending."""

    def __init__(self) -> None:
        self._totals = [array(code) for code in "IIIIQqqq"]
        self._columns = [array(code) for code in "qqqQII"]

    def add(self, partition: int, rows: Iterator[SealedRow]) -> None:
        """All extents of the next partition; at least one."""
        columns = self._columns
        start = len(columns[0])
        for row in rows:
            for column, field in zip(columns, row, strict=True):
                column.append(field)
        lasts, times, firsts, _, lengths, flags = (column[start:] for column in columns)
        every = 0
        for flag in set(flags):
            every |= flag
        values = (
            partition,
            every,
            start,
            len(lasts),
            sum(lengths),
            firsts[0],
            lasts[-1],
            max(times),
        )
        for total, value in zip(self._totals, values, strict=True):
            total.append(value)

    def build(
        self,
        first_commit: int,
        last_commit: int,
        time_ms: int,
        lmdb_pages: int,
        position: int,
        fmt: int,
    ) -> bytes:
        """The bytes to append to the file at `position`, which is behind its LMDB pages. fmt: the
        format of the segment."""
        totals = b"".join(column.tobytes() for column in self._totals)
        columns = b"".join(column.tobytes() for column in self._columns)
        footer = _FOOTER.pack(
            FOOTER_MAGIC,
            fmt,
            0,
            crc32c(totals),
            crc32c(columns),
            0,
            first_commit,
            last_commit,
            position,
            len(self._totals[0]),
            len(self._columns[0]),
            time_ms,
            lmdb_pages,
            0,
        )
        return b"".join((totals, columns, footer, _CRC.pack(crc32c(footer))))


def read_footer(file: memoryview) -> Footer:
    """The footer at the end of `file`. Raises BadIndex."""
    if len(file) < FOOTER_SIZE:
        raise BadIndex("too short to be a sealed segment")
    footer = bytes(file[-FOOTER_SIZE:])
    (
        magic,
        fmt,
        _,
        totals_crc,
        columns_crc,
        _,
        first,
        last,
        position,
        parts,
        rows,
        time_ms,
        pages,
        _,
    ) = _FOOTER.unpack_from(footer)
    if magic != FOOTER_MAGIC or _CRC.unpack_from(footer, _FOOTER.size)[0] != crc32c(
        footer[: _FOOTER.size]
    ):
        raise BadIndex("its end is cut or altered")
    if fmt > FORMAT:
        raise BadIndex(f"sealed in format {fmt}; this version reads up to {FORMAT}")
    if position + _TOTALS_ROW * parts + _COLUMNS_ROW * rows + FOOTER_SIZE != len(file):
        raise BadIndex("cut: the index does not fill the end of the file")
    return Footer(fmt, first, last, position, parts, rows, time_ms, pages, totals_crc, columns_crc)


class SealedIndex:
    """Columns over the end of a mapped file."""

    __slots__ = (
        "_checked", "_columns", "_columns_crc", "_count", "_data_end", "_flags", "_numbers",
        "_totals", "firsts", "lasts", "lengths", "positions", "row_flags", "times",
    )  # fmt: skip

    def __init__(self, file: memoryview, footer: Footer) -> None:
        """Raises BadIndex when the totals are altered; the columns are checked on first use."""
        parts, rows = footer.partitions, footer.rows
        start = footer.position
        middle = start + _TOTALS_ROW * parts
        end = middle + _COLUMNS_ROW * rows
        # In memory: they are asked for whatever partition is read, also when this file was cut.
        totals = memoryview(bytes(file[start:middle]))
        if crc32c(totals) != footer.totals_crc:
            raise BadIndex("the totals of its index are altered")
        self._count = parts
        self._data_end = start
        self._totals = _cut(totals, 0, parts, "IIIIQqqq")
        self._numbers = self._totals[0]
        self._columns = file[middle:end]
        self._columns_crc = footer.columns_crc
        self._checked = False
        self.lasts, self.times, self.firsts, self.positions, self.lengths, self.row_flags = _cut(
            file, middle, rows, "qqqQII"
        )

    def partitions(self) -> Iterator[Totals]:
        """Totals of all partitions, ascending."""
        for index in range(self._count):
            yield Totals(*(column[index] for column in self._totals))

    def numbers(self) -> memoryview:
        """The partition numbers, ascending."""
        return self._numbers

    def totals(self, partition: int) -> Totals | None:
        index = bisect_left(self._numbers, partition)
        if index == self._count or self._numbers[index] != partition:
            return None
        return Totals(*[column[index] for column in self._totals])

    def check(self) -> None:
        """Raise BadIndex unless the columns are as written (once: a few ms for a large index)."""
        if self._checked:
            return
        if crc32c(self._columns) != self._columns_crc:
            raise BadIndex("the rows of its index are altered")
        self._checked = True

    def locate(self, totals: Totals, offset: int) -> int:
        """The row that holds `offset`, or the next; start + rows behind the last."""
        return bisect_left(self.lasts, offset, totals.start, totals.start + totals.rows)


def _cut(file: memoryview, start: int, count: int, codes: str) -> list[memoryview]:
    columns = []
    for code in codes:
        size = count * (4 if code == "I" else 8)
        column = file[start : start + size]
        columns.append(
            column.cast("q") if code == "q" else column.cast("Q" if code == "Q" else "I")
        )
        start += size
    return columns


def sealed_rows(
    extents: ActiveExtents, positions: Mapping[tuple[int, int], int]
) -> Iterator[SealedRow]:
    """What IndexBuilder.add takes, for values that lie at `positions` by (commit, slot)."""
    for first, last, time, commit, position, length, slot, flags in ACTIVE_ROW.iter_unpack(
        extents.rows
    ):
        yield last, time, first, positions[commit, slot] + position, length, flags
