"""A log with compacted partitions, and a model of what compaction leaves of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.log.logkit import TINY, crash_copy, new_partitions, open_store, put, read_batches

from ottla.log.compaction import read_cleaned
from ottla.log.options import PartitionSettings, StoreOptions, Table
from ottla.log.partition import KEY, Partition
from ottla.log.store import Store
from ottla.wire.codecs import Codec
from ottla.wire.records import BatchHeader, Record, build_batch, read_header, records

OPTIONS = replace(TINY, compaction_check_ms=1000, retention_check_ms=1 << 40)
COMPACT = PartitionSettings(
    retention_ms=-1, delete=False, compact=True, min_cleanable_dirty_ratio=0.0
)

Row = tuple[bytes | None, bytes | None]


def rows(*pairs: str) -> list[Row]:
    """`k=v`, or `k` for a tombstone."""
    found: list[Row] = []
    for pair in pairs:
        key, is_there, value = pair.partition("=")
        found.append((key.encode(), value.encode() if is_there else None))
    return found


@dataclass
class Batch:
    """One batch as the model has it."""

    header: BatchHeader
    records: list[Record]
    #: Delete horizon, ms.
    horizon: int | None = None


@dataclass
class Expected:
    """One partition as the model has it."""

    batches: list[Batch] = field(default_factory=list)
    cleaned: int = 0

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]

    def compact(self, end: int, now_ms: int, retention_ms: int, start: int) -> None:
        """What Kafka's cleaner would do up to the offset `end`."""
        first = max(self.cleaned, start)
        latest = {
            r.key: r.offset for r in self.records if first <= r.offset < end and r.key is not None
        }
        producers = {b.header.producer_id: b for b in self.batches if b.header.next_offset <= end}
        left = []
        for batch in self.batches:
            header = batch.header
            if header.base_offset >= end:
                left.append(batch)
                continue
            over = batch.horizon is not None and batch.horizon <= now_ms
            batch.records = [
                r
                for r in batch.records
                if r.offset >= end
                or (
                    r.key is not None
                    and r.offset >= latest.get(r.key, -1)
                    and not (r.value is None and over)
                )
            ]
            if batch.horizon is None and any(
                r.value is None for r in batch.records if r.offset < end
            ):
                batch.horizon = now_ms + retention_ms
            stands = header.producer_id >= 0 and producers.get(header.producer_id) is batch
            if batch.records or stands or header.next_offset == end:
                left.append(batch)
        self.batches = left
        self.cleaned = end

    @property
    def horizon(self) -> int:
        """The latest of the tombstones that are left below `cleaned`."""
        times = [
            b.horizon
            for b in self.batches
            if b.horizon is not None
            and any(r.value is None and r.offset < self.cleaned for r in b.records)
        ]
        return max(times, default=-1)


class CompactedLog:
    """A store whose time passes when told, and what its partitions should hold."""

    def __init__(
        self,
        path: Path,
        settings: PartitionSettings = COMPACT,
        options: StoreOptions = OPTIONS,
        count: int = 1,
    ) -> None:
        self.path = path
        self.options = options
        self.settings = settings
        self.now = 1_000_000
        self.step: Callable[[str], None] = lambda name: None
        self.store = self._open()
        made = new_partitions(self.store, count)
        self.numbers = [partition.number for partition in made]
        self.expected = {number: Expected() for number in self.numbers}
        self.configure(settings)

    @property
    def number(self) -> int:
        return self.numbers[0]

    def _open(self) -> Store:
        return open_store(self.path, options=self.options, now_ms=self.now, step=self._step)

    def _step(self, name: str) -> None:
        self.step(name)

    def configure(self, settings: PartitionSettings) -> None:
        self.settings = settings
        self.store.configure(self.numbers, settings)

    def partition(self, number: int | None = None) -> Partition:
        return self.store.partition(self.number if number is None else number)

    # ----------------------------------------------------------------------------------- doing

    def put(
        self,
        rows: Sequence[Row],
        *,
        number: int | None = None,
        codec: Codec = Codec.none,
        producer: tuple[int, int, int] = (-1, -1, -1),
        time: int | None = None,
        attributes: int = 0,
    ) -> int:
        number = self.number if number is None else number
        time = self.now if time is None else time
        items = [
            Record(i, time + i, key, value, ((b"h", key), (b"n", None)))
            for i, (key, value) in enumerate(rows)
        ]
        producer_id, epoch, sequence = producer
        batch = build_batch(
            items,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=attributes,
        )
        base = put(self.store, self.partition(number), batch, self.now)
        header = read_header(batch)._replace(base_offset=base)
        self.expected[number].batches.append(Batch(header, list(records(bytes(batch)))))
        return base

    def roll(self) -> None:
        if self.store.layout.active.last >= self.store.layout.active.first:
            self.store.roll()
            self.store.flush()

    def delete_to(self, offset: int, number: int | None = None) -> None:
        number = self.number if number is None else number
        self.store.delete_records(self.partition(number), offset)
        self.store.flush()

    def row(self, number: int | None = None) -> tuple[int, int]:
        """Compacted up to, and the delete horizon that is left."""
        number = self.number if number is None else number
        return read_cleaned(self.store.get(Table.CLEANED, KEY.pack(number)))

    def sealed_end(self, number: int) -> int:
        lasts = self.store.layout.chain(number).lasts
        return lasts[-1] + 1 if lasts else 0

    def wait(self, ms: int) -> None:
        """Time passes without a compaction coming of it."""
        self.now += ms

    def compact(self) -> None:
        """One pass; the model too, where one is due at once (min.cleanable.dirty.ratio 0)."""
        self.now += self.options.compaction_check_ms
        sweep = self.store._maintenance.sweep
        sweep._began_ms, sweep._asked = self.now, False  # no sweep first
        sweep._compaction._next_ms = self.now
        for number, expected in self.expected.items():
            end = self.sealed_end(number)
            start = self.partition(number).log_start_offset
            if end > max(expected.cleaned, start) or 0 <= self.row(number)[1] <= self.now:
                end = max(end, expected.cleaned, start)
                expected.compact(end, self.now, self.settings.delete_retention_ms, start)
        self.work()

    def work(self) -> None:
        """Let what has begun come to its end; no time passes."""
        sweep = self.store._maintenance.sweep
        self.store.tick(self.now)
        while sweep._steps is not None:
            self.store.tick(self.now)

    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()
        self.configure(self.settings)

    def crash(self, to: Path) -> None:
        """Go on with what kill -9 would have left."""
        crash_copy(self.path, to)
        self.abandon()
        self.path = to
        self.store = self._open()
        self.configure(self.settings)

    def abandon(self) -> None:
        self.store.close()
        shutil.rmtree(self.path)

    # --------------------------------------------------------------------------------- looking

    def check(self) -> None:
        for number, expected in self.expected.items():
            self._check(number, expected)

    def _check(self, number: int, expected: Expected) -> None:
        partition = self.partition(number)
        start = partition.log_start_offset
        wanted = [b for b in expected.batches if b.header.last_offset >= start]
        found = self.batches(number)
        got = [(header, rows) for header, rows in found if header.last_offset >= start]
        assert [rows for _, rows in got] == [batch.records for batch in wanted]
        for (header, rows), batch in zip(got, wanted, strict=True):
            before = batch.header
            assert header.base_offset == before.base_offset
            assert header.last_offset == before.last_offset
            assert header.partition_leader_epoch == partition.leader_epoch
            assert header[9:12] == before[9:12], "producer id, epoch, sequence"
            assert header.record_count == len(rows)
            if rows:
                assert header.codec == before.codec
                assert header.max_timestamp == max(row.timestamp for row in rows)
        for max_bytes in (1, 500):
            again = read_batches(self.store, partition, max_bytes=max_bytes)
            assert [read_header(b).base_offset for _, b in again] == [
                h.base_offset for h, _ in found
            ]

    def batches(self, number: int | None = None) -> list[tuple[BatchHeader, list[Record]]]:
        found = read_batches(self.store, self.partition(number))
        return [(read_header(batch), list(records(batch))) for _, batch in found]

    def left(self, number: int | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of the records that are there."""
        return [(r.offset, r.key, r.value) for _, rows in self.batches(number) for r in rows]

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in (self.path / "log").iterdir())
