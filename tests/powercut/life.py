"""One life of a store: a start on a folder, what it shows, some more deeds, and no clean stop.

Runs in a worker. What is asked for and what is acknowledged goes into the trace as marks, `asked N`
and `acked N`, N the number of deeds so far; `step NAME` is what the log says of its own steps, and
`starts` are log starts that readers have seen.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from tests.log.logkit import TINY
from tests.log.transactionkit import marker
from tests.powercut.trace import Recorder
from tests.powercut.world import (
    TABLES,
    Append,
    Create,
    Deed,
    Drop,
    End,
    Fact,
    Put,
    Start,
    World,
    differences,
    look,
    without_place,
)

from ottla.log.options import Change, PartitionSettings
from ottla.log.store import Store
from ottla.log.tickets import Ticket
from ottla.wire.records import TRANSACTIONAL, Record, build_batch, read_header

OPTIONS: Final = replace(
    TINY,
    segment_bytes=192 * 1024,
    checkpoint_ms=300,
    retention_check_ms=400,
    compaction_check_ms=500,
    segment_ms=1 << 40,
)
PLAIN: Final = PartitionSettings(retention_ms=-1)
COMPACT: Final = PartitionSettings(
    retention_ms=-1, delete=False, compact=True, min_cleanable_dirty_ratio=0.0
)
SHORT: Final = PartitionSettings(retention_ms=-1, retention_bytes=30_000)
SETTINGS: Final = {"plain": PLAIN, "compact": COMPACT, "short": SHORT}
START_MS: Final = 1_000_000


class Known(NamedTuple):
    """What is known of a folder before it is opened."""

    deeds: Sequence[Deed]
    #: So many of the deeds were acknowledged; the rest were asked for.
    acked: int
    #: Least and greatest log start of partitions whose log start moves by itself.
    starts: dict[int, tuple[int, int]]
    #: How much time has passed.
    now_ms: int = START_MS


class Lived(NamedTuple):
    """What a life has come to."""

    #: All deeds that the next life may find, in order.
    deeds: list[Deed]
    #: How many of those that it was given were there.
    found: int
    now_ms: int


class Life:
    """Deeds on an open store."""

    def __init__(
        self, folder: Path, known: Known, seed: int, boot_id: str, recorder: Recorder, threads: bool
    ) -> None:
        self.random = random.Random(seed)
        self.recorder = recorder
        self.now_ms = known.now_ms
        self._calls: SimpleQueue[Any] | None = SimpleQueue() if threads else None
        self._waiting: deque[tuple[int, Ticket]] = deque()
        self.store = Store.open(
            folder,
            options=OPTIONS,
            now_ms=self.now_ms,
            boot_id=boot_id,
            post=None if self._calls is None else self._calls.put,
            step=lambda name: recorder.mark(f"step {name}"),
        )
        self.deeds: list[Deed] = list(known.deeds)
        self.world = World()
        self.found = self._find(known)
        self.acked = self.found
        for number, part in self.world.parts.items():
            self.store.configure([number], SETTINGS[part.kind])
        self._mark(f"found {self.found}")

    def _find(self, known: Known) -> int:
        """How many of the deeds are there; the world is theirs then."""
        view = look(self.store)
        world = World(known.deeds[: known.acked])
        least: list[str] = []
        for count in range(known.acked, len(known.deeds) + 1):
            if count > known.acked:
                world.apply(known.deeds[count - 1])
            wrong = differences(view, world, known.starts)
            if not wrong:
                del self.deeds[count:]
                self.world = world
                return count
            if not least or len(wrong) <= len(least):
                least = wrong
        told = "\n  ".join(least[:12])
        raise AssertionError(
            f"after {known.acked} acknowledged of {len(known.deeds)} deeds:\n  {told}"
        )

    def _mark(self, text: str) -> None:
        self.recorder.mark(text)

    # ------------------------------------------------------------------------------------ a deed

    def admit(self, facts: list[Fact], ticket: Ticket) -> None:
        """A deed was given to the store: it counts when its ticket is done."""
        self.deeds.append(facts)
        self.world.apply(facts)
        self._waiting.append((len(self.deeds), ticket))

    def _ask(self) -> None:
        self._mark(f"asked {len(self.deeds) + 1}")

    def settle(self, most: int = 0) -> None:
        """Flush, and wait until at most so many deeds wait."""
        self.store.flush()
        waiting = self._waiting
        while waiting:
            number, ticket = waiting[0]
            if not ticket.done:
                if len(waiting) <= most:
                    return
                assert self._calls is not None, "inline, all is done at once"
                self._calls.get(timeout=120)()
                continue
            assert ticket.error is None, ticket.error
            waiting.popleft()
            self.acked = number
            self._mark(f"acked {number}")
        self._tell_starts()

    def _tell_starts(self) -> None:
        starts = {
            number: self.store.partition(number).log_start_offset
            for number, part in self.world.parts.items()
            if part.kind == "short"
        }
        self._mark("starts " + json.dumps(starts))

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.store.tick(self.now_ms)
        while self._calls is not None and not self._calls.empty():
            self._calls.get()()

    # ---------------------------------------------------------------------------- kinds of deeds

    def create(self, kind: str) -> int:
        numbers, changes = self.store.new_partitions(1, SETTINGS[kind])
        (number,) = numbers
        assert number not in self.world.numbers, "a partition number was given out twice"
        self._ask()
        self.admit([Create(number, kind)], self.store.change(changes))
        self.settle()
        self.store.configure(numbers, SETTINGS[kind])
        return number

    def drop(self, number: int) -> None:
        self._ask()
        ticket = self.store.change(self.store.drop_partitions([number]))
        self.admit([Drop(number)], ticket)
        self.settle()

    def append(self, number: int, size: int, rows: int = 0) -> None:
        """Records of a partition, and rows in the same commit or in the one beside it."""
        kind = self.world.parts[number].kind
        batch = self._keyed() if kind == "compact" else self._batch(number, size)
        self.send(number, batch)
        for _ in range(rows):
            self._ask()
            change = self._change()
            self.admit([Put(*change)], self.store.change([change]))

    def send(self, number: int, batch: bytearray) -> None:
        """A batch that somebody else has made."""
        self._ask()
        ticket, fact = self._append(number, batch)
        self.admit([fact], ticket)

    def _append(self, number: int, batch: bytearray, opens: int = -1) -> tuple[Ticket, Append]:
        partition = self.store.partition(number)
        header = read_header(batch)
        found = self.store.append(partition, batch, header, self.now_ms)
        assert not found.duplicate
        last = found.base_offset + header.last_offset_delta
        stored = without_place(bytes(batch))
        return found.ticket, Append(number, found.base_offset, last, stored, opens)

    def _batch(
        self, number: int, size: int, producer: tuple[int, int, int] | None = None
    ) -> bytearray:
        count = self.random.randint(1, 3)
        rows = [
            Record(i, self.now_ms + i, b"k", self.random.randbytes(size // count))
            for i in range(count)
        ]
        if producer is None:
            return build_batch(rows)
        ident, epoch, sequence = producer
        return build_batch(
            rows,
            producer_id=ident,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )

    def _keyed(self) -> bytearray:
        rows = [
            Record(
                i,
                self.now_ms + i,
                b"key-%d" % self.random.randrange(12),
                self.random.randbytes(self.random.randint(10, 900)),
            )
            for i in range(self.random.randint(1, 6))
        ]
        return build_batch(rows)

    def _change(self) -> Change:
        table = self.random.choice(TABLES)
        key = b"row-%d" % self.random.randrange(20)
        gone = self.random.random() < 0.2
        return Change(table, key, None if gone else self.random.randbytes(20))

    def change(self) -> None:
        """Rows that are true together."""
        changes = [self._change() for _ in range(self.random.randint(1, 4))]
        self._ask()
        self.admit([Put(*change) for change in changes], self.store.change(changes))

    def transaction(self, numbers: Sequence[int], committed: bool) -> None:
        """Batches in some partitions, then all markers and rows as one."""
        producer = 1000 + self.random.randrange(1 << 20)
        for sequence in range(self.random.randint(1, 2)):
            for number in numbers:
                size = self.random.choice((100, 10_000))
                # Its own sequence of records is not the question here: each batch begins one.
                batch = self._batch(number, size, (producer, sequence, 0))
                self._ask()
                ticket, fact = self._append(number, batch, producer)
                self.admit([fact], ticket)
            self.settle(4)
        if self.random.random() < 0.2:
            return  # left open
        change = self._change()
        ends = [
            End(number, self.store.partition(number).log_end_offset, producer, committed)
            for number in numbers
        ]
        markers = [
            marker(self.store.partition(number), producer, 5, committed=committed)
            for number in numbers
        ]
        self._ask()
        ticket = self.store.write_markers(markers, [change], self.now_ms)
        self.admit([*ends, Put(*change)], ticket)

    def delete_records(self, number: int) -> None:
        self.settle()
        partition = self.store.partition(number)
        offset = self.random.randint(partition.log_start_offset, partition.high_watermark)
        self._ask()
        ticket = self.store.delete_records(partition, offset)
        self.admit([Start(number, offset)], ticket)

    def roll(self) -> None:
        active = self.store.layout.active
        if active.last >= active.first:
            self.store.roll()

    # ------------------------------------------------------------------------------------ living

    def first_partitions(self) -> None:
        for kind in ("plain", "plain", "compact", "short"):
            self.create(kind)

    def some_deed(self) -> None:
        """One of all kinds, or a few."""
        pick = self.random.random
        parts = self.world.parts
        number = self.random.choice(sorted(parts))
        plain = [n for n, part in parts.items() if part.kind == "plain"]
        chance = pick()
        if chance < 0.55:
            size = self.random.choice((50, 400, 3000, 9000, 25_000))
            self.append(number, size, rows=int(pick() < 0.3))
        elif chance < 0.70:
            self.change()
        elif chance < 0.80:
            self.transaction(plain[:2], pick() < 0.5)
        elif chance < 0.85:
            self.delete_records(self.random.choice(plain))
        elif chance < 0.88 and len(plain) > 2:
            self.settle()
            self.drop(plain[-1])
        elif chance < 0.91 and len(parts) < 7:
            self.settle()
            self.create(self.random.choice(("plain", "compact", "short")))
        else:
            self.settle()
            self.roll()
        self.settle(self.random.choice((0, 0, 3)) if self._calls is not None else 0)
        self.pass_time(self.random.randint(1, 150))

    def go_on(self, deeds: int) -> None:
        """Where life begins, make partitions; each one of those that are there takes a record."""
        if self.world.parts:
            self.beyond()
        else:
            self.first_partitions()
        for _ in range(deeds):
            self.some_deed()

    def beyond(self) -> None:
        """Whatever else happened: each partition takes a record, and its offset is the next."""
        for number in sorted(self.world.parts):
            end = self.world.parts[number].end
            self.append(number, 300)
            fact = self.deeds[-1][0]
            assert isinstance(fact, Append)
            assert fact.base == end, f"partition {number}: {fact.base} was given out, not {end}"
        self.settle()


def live(
    folder: Path,
    known: Known,
    seed: int,
    boot_id: str,
    trace: Path | None,
    do: int | Callable[[Life], None],
    threads: bool = False,
) -> Lived:
    """Start on `folder`, look, do so many deeds of all kinds, or those of a script; no clean stop.

    With `trace` all of it is recorded.
    """
    recorder = Recorder()
    if trace is not None:
        recorder.start(folder.parent, trace)
    life = None
    try:
        life = Life(folder, known, seed, boot_id, recorder, threads)
        if callable(do):
            do(life)
        else:
            life.go_on(do)
        life.settle()
    finally:
        recorder.stop()
        if life is not None:
            life.store.close()
    return Lived(life.deeds, life.found, life.now_ms)
