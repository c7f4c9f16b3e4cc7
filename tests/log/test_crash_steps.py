"""kill -9 between any two file operations of a start, a commit, a roll, a seal, a checkpoint.

One history runs to its end; before every file operation the folder is copied as a crash would have
left it. Each copy is opened and asked: is everything acknowledged there, nothing twice, is no
offset given out again, and does it take new records?
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.log.logkit import (
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    scratch,
)

from ottla.log.options import Change, Table
from ottla.log.store import Store
from ottla.wire.records import read_header


class History:
    """What was acknowledged so far, and a copy of the folder at each step."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "live"
        self.acknowledged: dict[int, list[tuple[int, bytes]]] = {}
        self.rows: dict[bytes, bytes] = {}
        self.copies: list[tuple[str, Path, dict[int, int], dict[bytes, bytes]]] = []
        self.store: Store | None = None
        self.count = 0
        self.steps = 0

    def step(self, name: str) -> None:
        self.steps += 1
        to = self.root / f"{self.steps:03d}-{name.replace(' ', '-').replace(':', '')}"
        crash_copy(self.path, to)
        ends = {number: len(batches) for number, batches in self.acknowledged.items()}
        self.copies.append((name, to, ends, dict(self.rows)))

    def open(self) -> Store:
        self.store = open_store(self.path, step=self.step)
        return self.store

    def partitions(self, count: int) -> list[int]:
        assert self.store is not None
        made = new_partitions(self.store, count)
        for partition in made:
            self.acknowledged[partition.number] = []
        return [partition.number for partition in made]

    def put(self, number: int, size: int = 400) -> None:
        """One record; idempotent producers on odd partitions; every tenth with a change."""
        store = self.store
        assert store is not None
        partition = store.partition(number)
        mine = self.acknowledged[number]
        self.count += 1
        producer = (number, 0, len(mine)) if number % 2 else (-1, -1, -1)
        batch = make_batch(size=size, fill=self.count, producer=producer)
        changes = []
        if self.count % 10 == 0:
            changes = [Change(Table.OFFSETS, b"row-%d" % (self.count % 7), b"%d" % self.count)]
            store.change(changes)
        offset = put(store, partition, batch)
        mine.append((offset, bytes(batch)))
        for _, key, value in changes:
            assert value is not None
            self.rows[key] = value


@pytest.fixture
def history() -> Iterator[History]:
    root = scratch("ottla-steps-")
    made = History(root)
    yield made
    if made.store is not None:
        made.store.close()
    shutil.rmtree(root)


def check(history: History, copy: Path, ends: dict[int, int], rows: dict[bytes, bytes]) -> None:
    store = open_store(copy)
    for number, count in ends.items():
        partition = store.partition(number)
        wanted = history.acknowledged[number]
        found = read_batches(store, partition)
        # One commit may be on disk whose acknowledgement nobody heard.
        assert wanted[:count] == found[:count], "acknowledged and lost"
        assert found == wanted[: len(found)], "something that was never sent"
        assert len(found) <= count + 1
        producer = (number, 0, len(found)) if number % 2 else (-1, -1, -1)
        if number % 2 and found:
            again = bytearray(found[-1][1])
            repeat = store.append(partition, again, read_header(again), 1)
            assert repeat.duplicate, "an idempotent producer's repeat is told"
            assert repeat.base_offset == found[-1][0]
        fresh = make_batch(size=10, producer=producer)
        assert put(store, partition, fresh) == len(found), "an offset given twice"
        assert read_batches(store, partition)[-1] == (len(found), bytes(fresh))
    stored = dict(store.scan(Table.OFFSETS))
    late = {key: value for key, value in history.rows.items() if stored.get(key) == value}
    assert all(stored.get(key) in (value, late.get(key)) for key, value in rows.items())
    store.tick(1_000_000)
    names = sorted(path.name for path in copy.rglob("*"))
    assert not [name for name in names if name.endswith((".tmp", ".bad"))], names
    store.close()
    store = open_store(copy)
    for number in ends:
        assert store.partition(number).high_watermark >= 1
    store.close()


def run(history: History, story: Callable[[History], None], wanted: set[str]) -> None:
    story(history)
    seen = {name for name, _, _, _ in history.copies}
    assert wanted <= seen, wanted - seen
    for _, copy, ends, rows in history.copies:
        check(history, copy, ends, rows)
        shutil.rmtree(copy)


def test_first_start(history: History) -> None:
    def story(h: History) -> None:
        h.open()
        (number,) = h.partitions(1)
        h.put(number)

    run(
        history,
        story,
        {"mark: write", "mark: rename", "roll: create", "roll: rename", "roll: sync folder",
         "roll: open", "commit: write", "commit: written"},
    )  # fmt: skip


def test_roll_seal_and_checkpoint(history: History) -> None:
    def story(h: History) -> None:
        store = h.open()
        numbers = h.partitions(3)
        for turn in range(24):
            h.put(numbers[turn % 3])
            if turn % 8 == 3:
                store.tick(turn)
            if turn % 8 == 7:
                store.roll()

    run(
        history,
        story,
        {"roll: create", "roll: rename", "seal: open", "seal: cut", "seal: write", "seal: flush",
         "seal: rename", "seal: sync folder", "seal: remove", "checkpoint: write",
         "checkpoint: written"},
    )  # fmt: skip


def test_stop_and_start_again(history: History) -> None:
    def story(h: History) -> None:
        store = h.open()
        numbers = h.partitions(2)
        for turn in range(6):
            h.put(numbers[turn % 2])
        store.close()
        store = h.open()
        for turn in range(6):
            h.put(numbers[turn % 2])
        store.close()

    run(history, story, {"mark: write", "mark: rename", "commit: write", "checkpoint: write"})


def test_start_after_a_crash_in_a_seal(history: History) -> None:
    """The start itself is stopped at every step, after a crash that left a rolled segment."""

    def story(h: History) -> None:
        store = h.open()
        numbers = h.partitions(2)
        for turn in range(6):
            h.put(numbers[turn % 2])
        store.roll()
        for turn in range(4):
            h.put(numbers[turn % 2])
        (rolled,) = [p for n, p, _, _ in h.copies if n == "seal: flush"]
        store.close()
        h.path = rolled.with_name("again")
        shutil.copytree(rolled, h.path)
        for number in numbers:
            h.acknowledged[number] = h.acknowledged[number][:3]
        h.rows = {}
        h.copies = []
        h.open()
        for turn in range(4):
            h.put(numbers[turn % 2])

    run(history, story, {"seal: cut", "seal: write", "seal: rename", "commit: write"})
