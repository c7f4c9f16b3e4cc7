"""kill -9 between any two file operations while transactions come and go: what each copy of the
folder says is what was acknowledged, or that and the commit that was under way; never a part of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.log.logkit import crash_copy, make_batch, new_partitions, open_store, put, scratch
from tests.log.transactionkit import Known, Producer, known

from ottla.log.options import Change, Table
from ottla.log.store import Store


class Said(NamedTuple):
    """What a store says of its transactions: the row of the coordinator, and each partition."""

    row: bytes | None
    partitions: list[Known]


@pytest.fixture
def root() -> Iterator[Path]:
    path = scratch("ottla-transactions-")
    yield path
    shutil.rmtree(path)


class Story:
    """One history, and a copy of the folder before every file operation."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.steps = 0
        self.copies: list[tuple[str, Path, int]] = []
        #: What was said after each commit that was acknowledged.
        self.acknowledged: list[Said] = []
        self.store = open_store(root / "live", step=self.step)
        self.numbers = [partition.number for partition in new_partitions(self.store, 3)]
        self.copies.clear()

    def step(self, name: str) -> None:
        self.steps += 1
        to = self.root / f"{self.steps:04d}"
        crash_copy(self.root / "live", to)
        self.copies.append((name, to, len(self.acknowledged)))

    def said(self, store: Store) -> Said:
        parts = [known(store, store.partition(number)) for number in self.numbers]
        return Said(store.get(Table.TRANSACTIONS, b"id"), parts)

    def do(self, act: Callable[[], object]) -> None:
        """One commit."""
        act()
        self.store.flush()
        self.acknowledged.append(self.said(self.store))

    def tell(self) -> None:
        """Two producers over three partitions, both protocols, with all that goes on beside it."""
        store = self.store
        a, b, c = (store.partition(number) for number in self.numbers)
        one, two = Producer(store, 1), Producer(store, 2)
        self.do(lambda: put(store, a, make_batch(3)))
        for turn in range(6):
            version = 1 + turn % 2
            self.do(lambda turn=turn: (one.admit(a, 2), one.admit(b), put_row(store, b"%d" % turn)))
            self.do(lambda: two.admit(b))
            if turn == 2:
                store.tick(turn)
            if turn % 3 == 1:
                store.roll()
            row = Change(Table.TRANSACTIONS, b"id", b"ended %d" % turn)
            self.do(lambda v=version, r=row, t=turn: one.end(t % 3 != 0, version=v, changes=[r]))
            if turn == 4:
                store.tick(turn)
            self.do(lambda: two.admit(c))
            self.do(lambda v=version, t=turn: two.end(t % 2 == 0, version=v))
        store.close()


def put_row(store: Store, value: bytes) -> None:
    store.change([Change(Table.TRANSACTIONS, b"id", b"ongoing " + value)])


def test_a_kill_at_every_step(root: Path) -> None:
    story = Story(root)
    story.tell()
    names = {name for name, _, _ in story.copies}
    assert {"commit: write", "commit: written", "checkpoint: write", "seal: rename"} <= names
    for name, copy, count in story.copies:
        store = open_store(copy)
        expected = story.acknowledged[max(0, count - 1) : count + 1]
        said = story.said(store)
        assert count == 0 or said in expected, (name, count)
        check_goes_on(store, story.numbers)
        store.close()
        shutil.rmtree(copy)


def check_goes_on(store: Store, numbers: list[int]) -> None:
    """What was left open can be ended, and then nothing holds readers back."""
    by_producer: dict[int, Producer] = {}
    for state in store.open_transactions():
        partition = store.partition(state.partition)
        producer = by_producer.setdefault(state.producer_id, Producer(store, state.producer_id))
        producer.partitions[partition.number] = partition
        epochs = [
            one.producer_epoch
            for one in store.producers_of(partition)
            if one.producer_id == state.producer_id
        ]
        producer.epoch = max(producer.epoch, *epochs)
    for producer in by_producer.values():
        producer.abort(version=2)
    assert list(store.open_transactions()) == []
    for number in numbers:
        partition = store.partition(number)
        assert partition.last_stable_offset == partition.high_watermark
