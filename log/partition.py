"""One partition, as the loop sees it."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.log.options import Change, Table

if TYPE_CHECKING:
    from ottla.log.layout import Layout
    from ottla.log.transactions import Ongoing

KEY: Final = Struct(">I")
#: Row of Table.META: the next number to be given to a partition.
NEXT_PARTITION: Final = b"next_partition"
_COUNTER: Final = Struct("<I")
#: layout version, leader epoch, log start, least next offset
_ROW: Final = Struct("<Biqq")
_ROW_VERSION: Final = 1


class Partition:
    """Offsets of one partition. `number` is the log's own, never used again for another.

    Made when first asked for. Only the store writes to it.
    """

    __slots__ = (
        "_layout",
        "_ongoing",
        "dropped",
        "floor",
        "high_watermark",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "number",
        "start_admitted",
    )

    def __init__(
        self, number: int, row: bytes, layout: Layout, ongoing: Mapping[int, Ongoing]
    ) -> None:
        """ongoing: what is open of all partitions, as it changes (Producers.ongoing)."""
        epoch, start, floor = read_row(row)
        end = max(start, floor, layout.end(number))
        self._layout = layout
        self._ongoing = ongoing
        self.number = number
        #: The first offset that may be read. Committed.
        self.log_start_offset = start
        #: The log start that was asked for, perhaps not committed yet.
        self.start_admitted = start
        #: The next offset was at least this when the row was written.
        self.floor = floor
        #: The next offset to be given out: the end of what is admitted.
        self.log_end_offset = end
        #: The end of what is committed: what consumers see.
        self.high_watermark = end
        #: Never falls (clients ignore metadata with an older one).
        self.leader_epoch = epoch
        #: Deleted: appends are refused.
        self.dropped = False

    @property
    def last_stable_offset(self) -> int:
        """The end of what read_committed consumers may see: where the oldest transaction that is
        open in what is committed began, else the high watermark; never below log start."""
        end = self.high_watermark
        ongoing = self._ongoing.get(self.number)
        if ongoing is None:
            return end
        return max(self.log_start_offset, ongoing.first_unstable(end))

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches from log start on; whole extents count at its edge."""
        return self._layout.size(self.number, self.log_start_offset)

    def row(self) -> Change:
        """The row that says what is admitted of the partition."""
        return partition_row(self.number, self.leader_epoch, self.start_admitted, self.floor)

    def committed(self, row: bytes) -> None:
        """The row as a commit has made it."""
        self.leader_epoch, self.log_start_offset, self.floor = read_row(row)
        self.start_admitted = max(self.start_admitted, self.log_start_offset)


def partition_row(number: int, leader_epoch: int, start: int, floor: int) -> Change:
    """A partition as the state keeps it."""
    row = _ROW.pack(_ROW_VERSION, leader_epoch, start, floor)
    return Change(Table.PARTITIONS, KEY.pack(number), row)


def read_row(row: bytes) -> tuple[int, int, int]:
    """Leader epoch, log start and least next offset of a row."""
    epoch: int
    start: int
    floor: int
    _, epoch, start, floor = _ROW.unpack(row)
    return epoch, start, floor


def counter_row(next_number: int) -> Change:
    """The number that the next partition gets."""
    return Change(Table.META, NEXT_PARTITION, _COUNTER.pack(next_number))


def read_counter(row: bytes | None) -> int:
    """The number that the next partition gets; they begin at 1."""
    return 1 if row is None else int.from_bytes(row, "little")
