"""EIO, ENOSPC and EMFILE at random in everything that a store does to its folder, and a clock that
jumps meanwhile: what was acknowledged is there after a kill at any time, and writing resumes."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.log.logkit import (
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    read_batches,
    scratch,
    with_options,
)

from ottla.log.errors import LogError
from ottla.log.options import Change, PartitionSettings, StoreOptions, Table
from ottla.log.partition import Partition
from ottla.log.store import Store
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import read_header

DAY = 86_400_000
START = 20_000 * DAY
CODES = (errno.EIO, errno.ENOSPC, errno.EMFILE)
#: Calls of the system that the log makes by itself; LMDB's are stood for by its steps.
CALLS = ("fsync", "rename", "open", "pwrite", "write", "ftruncate", "unlink")


class Faults:
    """Fails steps and calls of the system below one folder while it is `on`."""

    def __init__(self, seed: int, rate: float) -> None:
        self.luck = random.Random(seed)
        self.rate = rate
        self.on = False
        self.count = 0

    def maybe(self, *_: object) -> None:
        if self.on and self.luck.random() < self.rate:
            self.count += 1
            code = self.luck.choice(CODES)
            raise OSError(code, os.strerror(code))

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*args: Any, **kw: Any) -> Any:
            self.maybe()
            return call(*args, **kw)

        return failing


class World:
    """A store, and what it has acknowledged."""

    def __init__(self, root: Path, faults: Faults, options: StoreOptions) -> None:
        self.root, self.faults, self.options = root, faults, options
        self.steady, self.set_ms = START, 0
        self.lives = 0
        self.store = self.open(root / "0")
        self.batches: dict[int, list[tuple[int, bytes]]] = {}
        self.starts: dict[int, int] = {}
        self.rows: dict[bytes, bytes] = {}
        self.sequences: dict[int, int] = {}
        self.refused: list[KafkaError] = []
        #: The commit that failed last: it may be on the disk until another takes its number.
        self.batch_in_doubt: tuple[int, int, bytes] | None = None
        self.start_in_doubt: tuple[int, int] | None = None
        for partition in new_partitions(self.store, 3):
            self.batches[partition.number] = []
            self.starts[partition.number] = 0
            self.sequences[partition.number] = 0

    @property
    def now(self) -> int:
        return self.steady + self.set_ms

    def open(self, path: Path) -> Store:
        store = open_store(path, options=self.options, now_ms=self.now, step=self.faults.maybe)
        for number in getattr(self, "batches", ()):
            store.configure([number], KEPT)
        return store

    def put(self, number: int, size: int) -> bool:
        """One batch of an idempotent producer, and a row; whether they are acknowledged."""
        partition = self.store.partition(number)
        sequence = self.sequences[number]
        batch = make_batch(
            size=size, fill=sequence, time=self.now, producer=(number, 0, sequence & 0x7FFFFFFF)
        )
        key, value = b"%d" % number, b"%d" % sequence
        try:
            appended = self.store.append(partition, batch, read_header(batch), self.now)
            ticket = self.store.change([Change(Table.OFFSETS, key, value)])
        except KafkaError as error:
            self.refused.append(error)
            self.store.flush()
            return False
        self.store.flush()
        assert ticket.done
        if ticket.error is not None:
            assert isinstance(ticket.error, LogError)
            self.batch_in_doubt = number, appended.base_offset, bytes(batch)
            self.start_in_doubt = None
            return False
        self.batch_in_doubt = self.start_in_doubt = None
        assert not appended.duplicate
        self.batches[number].append((appended.base_offset, bytes(batch)))
        self.rows[key] = value
        self.sequences[number] += 1
        return True

    def trim(self, number: int) -> None:
        partition = self.store.partition(number)
        start = partition.high_watermark * 2 // 3
        if start <= partition.log_start_offset:
            return
        try:
            ticket = self.store.delete_records(partition, start)
        except KafkaError:
            return
        self.store.flush()
        if ticket.error is None:
            self.batch_in_doubt = self.start_in_doubt = None
            self.starts[number] = start
        else:
            self.batch_in_doubt = None
            self.start_in_doubt = number, start

    def pass_time(self, ms: int) -> None:
        self.steady += ms
        self.store.tick(self.now, self.steady)

    def check(self, store: Store) -> None:
        for number, wanted in self.batches.items():
            partition: Partition = store.partition(number)
            assert partition.log_start_offset == self.starts[number]
            kept = [(at, data) for at, data in wanted if at >= self.starts[number]]
            assert read_batches(store, partition) == kept
            assert partition.high_watermark == (wanted[-1][0] + 1 if wanted else 0)
        assert dict(store.scan(Table.OFFSETS)) == self.rows

    def settle_doubts(self) -> None:
        """What was neither acknowledged nor taken back may be there, as a whole, or not."""
        if self.start_in_doubt is not None:
            number, start = self.start_in_doubt
            if self.store.partition(number).log_start_offset == start:
                self.starts[number] = start
        if self.batch_in_doubt is not None:
            number, offset, batch = self.batch_in_doubt
            if self.store.partition(number).high_watermark > offset:
                self.batches[number].append((offset, batch))
                self.rows[b"%d" % number] = b"%d" % self.sequences[number]
                self.sequences[number] += 1
        self.batch_in_doubt = self.start_in_doubt = None

    def kill(self) -> None:
        """And start again, on a disk that works meanwhile."""
        on, self.faults.on = self.faults.on, False
        self.lives += 1
        path = crash_copy(self.store.folder.path, self.root / str(self.lives))
        self.store.close()
        shutil.rmtree(self.store.folder.path)
        self.steady, self.set_ms = self.now, 0  # as a process that starts sees it
        self.store = self.open(path)
        self.settle_doubts()
        self.check(self.store)
        self.faults.on = on


KEPT = PartitionSettings(retention_ms=-1)


@pytest.fixture
def root() -> Iterator[Path]:
    path = scratch("ottla-faults-")
    yield path
    shutil.rmtree(path)


def run(root: Path, monkeypatch: pytest.MonkeyPatch, seed: int, turns: int) -> int:
    luck = random.Random(seed)
    faults = Faults(seed, luck.choice([0.01, 0.05, 0.2]))
    options = with_options(
        checkpoint_ms=500, retention_check_ms=5000, segment_ms=600_000, segment_bytes=128 * 1024
    )
    with monkeypatch.context() as patch:
        world = World(root, faults, options)
        for name in CALLS:
            patch.setattr(os, name, faults.wrapped(getattr(os, name)))
        done = 0
        for _ in range(turns):
            faults.on = luck.random() < 0.7
            number = luck.choice(list(world.batches))
            done += world.put(number, luck.choice([10, 500, 9000, 20_000]))
            if luck.random() < 0.2:
                world.trim(number)
            if luck.random() < 0.1:
                world.set_ms = luck.choice([-DAY, 0, 0, DAY])
            if luck.random() < 0.1:
                world.store.roll()
            world.pass_time(luck.choice([100, 100, 1000, 6000]))
            if luck.random() < 0.02:
                world.kill()
        faults.on = False
        for _ in range(3):
            world.pass_time(6000)
        assert world.store.refusing is None
        for error in world.refused:
            assert error.error is Error.KAFKA_STORAGE_ERROR
            assert "free" in str(error) or "commit" in str(error), "it says why"
        assert world.put(1, 10), "writing resumes"
        world.check(world.store)
        world.kill()
        world.store.close()
    assert done > turns // 10
    return faults.count


@pytest.mark.parametrize("seed", range(6))
def test_what_was_acknowledged_survives(
    root: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert run(root, monkeypatch, seed, 150) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_what_was_acknowledged_survives_at_length(
    root: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert run(root, monkeypatch, seed, 600) > 0
