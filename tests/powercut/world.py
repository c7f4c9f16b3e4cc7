"""What was promised: an order of facts, each whole or not at all, and what a store shows of them.

A history is a list of deeds in the order in which they were admitted, so in the order of their
commits. After a cut the store must show exactly the first n of them, for some n between those that
were acknowledged and those that were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.log.logkit import read_batches

from ottla.log.options import Table
from ottla.log.partition import KEY
from ottla.log.store import Store
from ottla.wire.records import read_header, records

#: Tables whose rows belong to the broker: the log keeps them as they are.
TABLES: Final = (
    Table.TOPICS,
    Table.CONFIGS,
    Table.CLUSTER,
    Table.TRANSACTIONS,
    Table.GROUPS,
    Table.OFFSETS,
    Table.PENDING_OFFSETS,
)


class Create(NamedTuple):
    partition: int
    #: plain, compact, or short (retention moves its log start)
    kind: str


class Drop(NamedTuple):
    partition: int


class Append(NamedTuple):
    partition: int
    base: int
    last: int
    #: As it was stored, but for the leader epoch.
    batch: bytes
    #: Producer with an open transaction here, -1 for others.
    opens: int = -1


class End(NamedTuple):
    """A marker: what it ends is aborted or true."""

    partition: int
    offset: int
    producer: int
    committed: bool


class Start(NamedTuple):
    partition: int
    offset: int


class Put(NamedTuple):
    table: Table
    key: bytes
    value: bytes | None


Fact = Create | Drop | Append | End | Start | Put
#: What one commit makes true, or nothing of it.
Deed = Sequence[Fact]


@dataclass
class Part:
    """One partition."""

    kind: str
    start: int = 0
    end: int = 0
    #: First offset, last offset, bytes; b"" for a marker.
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    #: First offset of what each producer has open.
    open: dict[int, int] = field(default_factory=dict)
    #: Producer, first offset, marker's offset.
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    sequences: dict[int, tuple[int, bytes]] = field(default_factory=dict)


class World:
    """What is true after some deeds."""

    def __init__(self, deeds: Iterable[Deed] = ()) -> None:
        self.parts: dict[int, Part] = {}
        self.rows: dict[tuple[Table, bytes], bytes] = {}
        #: All partition numbers that were ever given out.
        self.numbers: set[int] = set()
        for deed in deeds:
            self.apply(deed)

    def apply(self, deed: Deed) -> None:
        for fact in deed:
            self._apply(fact)

    def _apply(self, fact: Fact) -> None:
        parts = self.parts
        match fact:
            case Create(number, kind):
                parts[number] = Part(kind)
                self.numbers.add(number)
            case Drop(number):
                del parts[number]
            case Append(number, base, last, batch, opens):
                part = parts[number]
                part.batches.append((base, last, batch))
                part.end = last + 1
                if opens >= 0:
                    part.open.setdefault(opens, base)
            case End(number, offset, producer, committed):
                part = parts[number]
                part.batches.append((offset, offset, b""))
                part.end = offset + 1
                first = part.open.pop(producer, None)
                if first is not None and not committed:
                    part.aborted.append((producer, first, offset))
            case Start(number, offset):
                part = parts[number]
                part.start = max(part.start, offset)
            case Put(table, key, value):
                if value is None:
                    self.rows.pop((table, key), None)
                else:
                    self.rows[table, key] = value


class Seen(NamedTuple):
    """What a store shows of one partition."""

    start: int
    end: int
    epoch: int
    batches: list[tuple[int, int, bytes]]
    open: dict[int, int]
    aborted: list[tuple[int, int]]


class View(NamedTuple):
    """What a store shows."""

    parts: dict[int, Seen]
    rows: dict[tuple[Table, bytes], bytes]


def look(store: Store) -> View:
    """All that a store shows, read through to the last byte."""
    rows = {(table, key): value for table in TABLES for key, value in store.scan(table)}
    ongoing: dict[int, dict[int, int]] = {}
    for one in store.open_transactions():
        ongoing.setdefault(one.partition, {})[one.producer_id] = one.first_offset
    parts = {}
    for key, _ in store.scan(Table.PARTITIONS):
        (number,) = KEY.unpack(key)
        partition = store.partition(number)
        assert partition.log_end_offset == partition.high_watermark
        found = []
        for base, batch in read_batches(store, partition):
            header = read_header(batch)
            found.append((base, header.last_offset, without_place(batch)))
        aborted = list(zip(*store.aborted(partition, 0, 1 << 62), strict=True))
        parts[number] = Seen(
            partition.log_start_offset,
            partition.high_watermark,
            partition.leader_epoch,
            found,
            ongoing.get(number, {}),
            aborted,
        )
    return View(parts, rows)


def without_place(batch: bytes) -> bytes:
    """A batch but for its leader epoch."""
    return batch[:12] + batch[16:]


def differences(view: View, world: World, starts: dict[int, tuple[int, int]]) -> list[str]:
    """What a store shows otherwise than it should, in words.

    starts: least and greatest log start of the partitions whose log start moves by itself.
    """
    found = []
    if set(view.parts) != set(world.parts):
        found.append(f"partitions {sorted(view.parts)} where {sorted(world.parts)} should be")
    for key in sorted(set(view.rows) | set(world.rows)):
        have, want = view.rows.get(key), world.rows.get(key)
        if have != want:
            found.append(f"row {key[0].name} {key[1]!r} is {have!r}, not {want!r}")
    for number, part in world.parts.items():
        seen = view.parts.get(number)
        if seen is not None:
            about = _of_partition(seen, part, starts.get(number))
            found += [f"partition {number} ({part.kind}): {one}" for one in about]
    return found


def _of_partition(seen: Seen, part: Part, starts: tuple[int, int] | None) -> list[str]:
    found = []
    start = part.start
    if part.kind == "short":
        least, most = starts or (0, part.end)
        start = max(start, seen.start)
        if not max(least, part.start) <= seen.start <= max(most, part.start):
            found.append(f"log start {seen.start}, not {least} to {most}")
    if seen.start != start:
        found.append(f"log start {seen.start}, not {start}")
    if seen.end != part.end:
        found.append(f"ends at {seen.end}, not at {part.end}")
    if seen.epoch != 0:
        found.append(f"leader epoch {seen.epoch}, though nothing was damaged")
    if seen.open != part.open:
        found.append(f"open transactions {seen.open}, not {part.open}")
    aborted = [(producer, first) for producer, first, marker in part.aborted if marker >= start]
    late = [one for one in seen.aborted if one not in aborted]
    if [one for one in seen.aborted if one in aborted] != aborted or any(
        (producer, first) not in [(p, f) for p, f, _ in part.aborted] for producer, first in late
    ):
        found.append(f"aborted {seen.aborted}, not {aborted}")
    wanted = [one for one in part.batches if one[1] >= start]
    if part.kind == "compact":
        found += _compacted(seen, wanted)
    else:
        found += _batches(seen.batches, wanted)
    return found


def _batches(have: list[tuple[int, int, bytes]], want: list[tuple[int, int, bytes]]) -> list[str]:
    for place, (one, other) in enumerate(zip(have, want, strict=False)):
        marker = not other[2]
        if one[:2] != other[:2] or (not marker and one[2] != other[2]):
            same = "other bytes" if one[:2] == other[:2] else f"offsets {one[0]} to {one[1]}"
            return [f"batch {place} has {same}; it should hold offsets {other[0]} to {other[1]}"]
    if len(have) != len(want):
        return [f"{len(have)} batches, not {len(want)}"]
    return []


def _compacted(seen: Seen, want: list[tuple[int, int, bytes]]) -> list[str]:
    """Every record that is there was sent; of each key the latest is there."""
    sent: dict[int, tuple[bytes | None, bytes | None]] = {}
    latest: dict[bytes | None, int] = {}
    for _, _, batch in want:
        for record in records(with_place(batch)):
            sent[record.offset] = record.key, record.value
            latest[record.key] = record.offset
    there: dict[int, tuple[bytes | None, bytes | None]] = {}
    for _, _, batch in seen.batches:
        for record in records(with_place(batch)):
            there[record.offset] = record.key, record.value
    found = [f"offset {at} was never sent so" for at, row in there.items() if sent.get(at) != row]
    for key, offset in latest.items():
        if sent[offset][1] is not None and offset not in there:
            found.append(f"the latest record of {key!r}, offset {offset}, is not there")
    return found


def with_place(batch: bytes) -> bytes:
    """The reverse of `without_place`."""
    return batch[:12] + bytes(4) + batch[12:]
