"""All partitions of a store: their numbers, settings, views and leader epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ottla.log.commit import Row
from ottla.log.layout import Layout
from ottla.log.options import Change, PartitionSettings, Table
from ottla.log.partition import (
    KEY,
    NEXT_PARTITION,
    Partition,
    counter_row,
    partition_row,
    read_counter,
)
from ottla.log.producers import Producers
from ottla.log.state import State
from ottla.log.transactions import ABORTED_KEY, Aborted

#: Beyond every offset.
_BEYOND: Final = 1 << 62
_UNTOLD: Final = PartitionSettings()
_NEVER_ABORTED: Final = Aborted()
#: Rows read at a time.
_PAGE: Final = 10_000


class Partitions:
    """Views are made when first asked for, so that a start costs nothing for each partition."""

    def __init__(self, layout: Layout, state: State, producers: Producers) -> None:
        self._layout = layout
        self._state = state
        self._producers = producers
        self._views: dict[int, Partition] = {}
        self._settings: dict[int, PartitionSettings] = {}
        self._shortest_retention_ms: int | None = None
        self._next = read_counter(state.get(Table.META, NEXT_PARTITION))
        #: Of partitions that have any.
        self._aborted: dict[int, Aborted] = {}
        self._load_aborted()
        #: See on_expired.
        self._expired: list[Callable[[int, int, int], None]] = []

    # ------------------------------------------------------------------------- numbers, settings

    def create(self, count: int, settings: PartitionSettings) -> tuple[list[int], list[Change]]:
        """Numbers that were never given out, and the rows that make them partitions."""
        numbers, changes = self.number(count)
        self.configure(numbers, settings)
        return numbers, [*changes, self.counter()]

    def number(self, count: int) -> tuple[list[int], list[Change]]:
        """The same before it is sure that they will be: without settings, and without the counter,
        which is told when they are admitted."""
        first = self._next
        self._next += count
        numbers = list(range(first, first + count))
        return numbers, [partition_row(number, 0, 0, 0) for number in numbers]

    def counter(self) -> Change:
        """The row that says which numbers have been given out."""
        return counter_row(self._next)

    def configure(self, numbers: Iterable[int], settings: PartitionSettings) -> None:
        """See Store.configure."""
        for number in numbers:
            self._settings[number] = settings
        self._shortest_retention_ms = None

    def configured(self) -> list[int]:
        """The partitions whose settings are known."""
        return list(self._settings)

    def settings(self, number: int) -> PartitionSettings:
        """What was told of a partition last."""
        return self._settings.get(number, _UNTOLD)

    def shortest_retention_ms(self) -> int:
        """Of all partitions; -1 when none has one."""
        if self._shortest_retention_ms is None:
            times = {s.retention_ms for s in set(self._settings.values()) if s.delete}
            self._shortest_retention_ms = min((t for t in times if t >= 0), default=-1)
        return self._shortest_retention_ms

    # --------------------------------------------------------------------------------- the views

    def get(self, number: int) -> Partition:
        """The view of a committed partition. Raises KeyError for one that is not."""
        partition = self._views.get(number)
        if partition is None:
            row = self._state.get(Table.PARTITIONS, KEY.pack(number))
            if row is None:
                raise KeyError(number)
            ongoing = self._producers.ongoing
            partition = self._views[number] = Partition(number, row, self._layout, ongoing)
        return partition

    def committed_end(self, number: int) -> int:
        """The end of what is committed of a partition; for one that nobody asked for since the
        start, beyond all that could be in the log."""
        partition = self._views.get(number)
        return _BEYOND if partition is None else partition.high_watermark

    def advance(self, rows: Sequence[Row]) -> list[Partition]:
        """A commit's directory is true: raise the high watermarks. The partitions that moved."""
        moved: dict[int, Partition] = {}
        views = self._views
        for row in rows:
            partition = views.get(row.partition)
            if partition is None:
                continue  # dropped since the batch was admitted
            partition.high_watermark = row.last + 1
            moved[row.partition] = partition
        return list(moved.values())

    def apply(self, changes: Iterable[Change]) -> bool:
        """Rows of Table.PARTITIONS and Table.ABORTED are true. Whether records died by it."""
        died = False
        gone: dict[int, set[int]] = {}
        for table, key, value in changes:
            if table is Table.ABORTED:
                number, marker = ABORTED_KEY.unpack(key)
                if value is None:
                    gone.setdefault(number, set()).add(marker)
                elif number in self._views:  # else it was dropped in the meantime
                    self._aborted_of(number).add(marker, value)
            if table is not Table.PARTITIONS:
                continue
            (number,) = KEY.unpack(key)
            partition = self._views.get(number)
            if value is None:
                self._drop(number)
                died = True
            elif partition is not None:
                before = partition.log_start_offset
                partition.committed(value)
                died = died or partition.log_start_offset > before
        for number, markers in gone.items():
            if number in self._aborted:
                self._aborted[number].remove(markers)
        return died

    def _drop(self, number: int) -> None:
        partition = self._views.pop(number, None)
        if partition is not None:
            partition.dropped = True
        self._settings.pop(number, None)
        self._shortest_retention_ms = None
        self._aborted.pop(number, None)
        self._producers.drop_partition(number)

    def rollback(self) -> None:
        """What was admitted and not committed is forgotten."""
        for partition in self._views.values():
            partition.log_end_offset = partition.high_watermark
            partition.start_admitted = partition.log_start_offset
        self._producers.rollback(self.committed_end)

    # ------------------------------------------------------------------------ aborted transactions

    def aborted(self, number: int) -> Aborted:
        """The aborted transactions of a partition, committed ones."""
        return self._aborted.get(number, _NEVER_ABORTED)

    def _load_aborted(self) -> None:
        """All of them at start, as with producers: a fetch that came first would wait for it."""
        after: bytes | None = b""
        while after is not None:
            rows, after = self._state.page(Table.ABORTED, b"", after, _PAGE)
            for key, value in rows:
                number, marker = ABORTED_KEY.unpack(key)
                if number in self._aborted or self._state.get(Table.PARTITIONS, KEY.pack(number)):
                    self._aborted_of(number).add(marker, value)

    def _aborted_of(self, number: int) -> Aborted:
        mine = self._aborted.get(number)
        if mine is None:
            mine = self._aborted[number] = Aborted()
        return mine

    # ---------------------------------------------------------------------------------- retention

    def on_expired(self, fn: Callable[[int, int, int], None]) -> None:
        """`fn` is called when retention has moved a log start, with the partition's number and the
        offsets at which its log began and begins. It must not take long."""
        self._expired.append(fn)

    def expired(self, number: int, before: int, start: int) -> None:
        """Retention has moved a log start, durably."""
        for fn in self._expired:
            fn(number, before, start)

    # ------------------------------------------------------------------------------------- epochs

    def epoch_end(self, partition: Partition, epoch: int) -> tuple[int, int]:
        """See Store.epoch_end."""
        if epoch < 0 or epoch > partition.leader_epoch:
            return -1, -1
        if epoch == partition.leader_epoch:
            return epoch, partition.high_watermark
        known = 0
        for key, value in self._state.scan(Table.EPOCHS, KEY.pack(partition.number)):
            begun = int.from_bytes(key[KEY.size :], "big")
            if begun > epoch:
                return known, int.from_bytes(value, "little")
            known = begun
        return known, partition.high_watermark
