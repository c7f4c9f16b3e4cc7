"""Sweeps and rewrites: dead bytes leave the disk, live ones stay readable, whatever crashes."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.log.logkit import (
    TINY,
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    read_once,
    scratch,
    with_options,
)

from ottla.log.commit import MAGIC, parse
from ottla.log.errors import Damaged
from ottla.log.options import PartitionSettings, StoreOptions
from ottla.log.partition import Partition
from ottla.log.rewrite import rewrite
from ottla.log.store import Store
from ottla.log.sweep import BUDGET, FIRST_MS
from ottla.log.weights import MERGED
from ottla.wire.records import read_header

KEEP_ALL = PartitionSettings(retention_ms=-1, retention_bytes=-1)
#: Seconds to the first sweep, and a few more.
FIRST = FIRST_MS // 1000 + 5


class Log:
    """A store whose time passes when told, and what its partitions should hold."""

    def __init__(self, path: Path, options: StoreOptions = TINY) -> None:
        self.path = path
        self.options = options
        self.now = 1
        self.step: Callable[[str], None] = lambda name: None
        self.store = self.open()
        self.expected: dict[int, list[tuple[int, bytes]]] = {}

    def open(self) -> Store:
        return open_store(self.path, options=self.options, now_ms=self.now, step=self._step)

    def _step(self, name: str) -> None:
        self.step(name)

    def partitions(self, count: int) -> list[Partition]:
        made = new_partitions(self.store, count)
        self.store.configure([partition.number for partition in made], KEEP_ALL)
        for partition in made:
            self.expected[partition.number] = []
        return made

    def put(self, number: int, size: int = 1000, fill: int = 0) -> None:
        partition = self.store.partition(number)
        batch = make_batch(size=size, fill=fill)
        offset = put(self.store, partition, batch)
        self.expected[number].append((offset, bytes(batch)))

    def roll(self) -> None:
        self.store.roll()
        self.store.flush()

    def delete_to(self, number: int, offset: int) -> None:
        self.store.delete_records(self.store.partition(number), offset)
        self.store.flush()
        self.expected[number] = [row for row in self.expected[number] if row[0] >= offset]

    def drop(self, *numbers: int) -> None:
        ticket = self.store.change(self.store.drop_partitions(numbers))
        self.store.flush()
        assert ticket.done
        for number in numbers:
            del self.expected[number]

    def sweep(self, seconds: int = 12) -> None:
        for _ in range(seconds):
            self.now += 1000
            self.store.tick(self.now)

    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()
        self.store.configure(self.expected, KEEP_ALL)

    def check(self) -> None:
        check(self.store, self.expected)

    @property
    def disk_bytes(self) -> int:
        return sum(path.stat().st_blocks * 512 for path in (self.path / "log").iterdir())

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in (self.path / "log").iterdir())


def check(store: Store, expected: dict[int, list[tuple[int, bytes]]]) -> None:
    for number, batches in expected.items():
        partition = store.partition(number)
        assert read_batches(store, partition) == batches
        assert partition.size_bytes >= sum(len(batch) for _, batch in batches)
        for max_bytes in (1, 3000):
            assert read_batches(store, partition, max_bytes=max_bytes) == batches


@pytest.fixture
def log() -> Iterator[Log]:
    path = scratch("ottla-rewrite-")
    log = Log(path / "data")
    yield log
    log.store.close()
    shutil.rmtree(path)


def fill(log: Log, numbers: list[int], rounds: int, size: int = 1000) -> None:
    for turn in range(rounds):
        for number in numbers:
            log.put(number, size, turn)


def test_a_deleted_topic_gives_its_disk_space_back(log: Log) -> None:
    kept, gone = (partition.number for partition in log.partitions(2))
    fill(log, [gone], 500, 2000)
    fill(log, [kept], 5)
    before = log.disk_bytes
    log.drop(gone)
    log.sweep()
    assert before > 1_000_000
    assert log.disk_bytes < 200_000
    log.check()
    log.reopen()
    log.check()


def test_records_deleted_give_their_disk_space_back(log: Log) -> None:
    a, b = (partition.number for partition in log.partitions(2))
    fill(log, [a, b], 300, 2000)
    before = log.disk_bytes
    log.delete_to(a, 290)
    log.delete_to(b, 200)
    log.sweep(20)
    live = sum(len(batch) for rows in log.expected.values() for _, batch in rows)
    assert live * 6 < before
    assert log.disk_bytes < 3 * live + 200_000
    log.check()
    log.reopen()
    log.check()
    assert log.store.partition(a).log_start_offset == 290
    assert put(log.store, log.store.partition(a), make_batch()) == 300


def test_a_log_emptied_goes_on_at_its_end(log: Log) -> None:
    (number,) = (partition.number for partition in log.partitions(1))
    fill(log, [number], 300)
    log.delete_to(number, 300)
    log.sweep(20)
    log.reopen()
    partition = log.store.partition(number)
    assert (partition.log_start_offset, partition.log_end_offset) == (300, 300)
    log.put(number)
    assert log.expected[number][0][0] == 300
    log.check()


def test_the_active_segment_is_rolled_when_most_of_it_is_dead(log: Log) -> None:
    kept, gone = (partition.number for partition in log.partitions(2))
    fill(log, [kept], 2)
    fill(log, [gone], 100)
    first = log.store.layout.active.first
    assert log.store.layout.sealed == []
    log.drop(gone)
    log.sweep(5)
    assert log.store.layout.active.first > first
    (sealed,) = log.store.layout.sealed
    assert sealed.name.generation == 1
    assert sealed.size < 8192
    log.check()


def test_what_is_mostly_alive_stays_as_it_is(log: Log) -> None:
    a, b = (partition.number for partition in log.partitions(2))
    fill(log, [a], 120, 6000)
    fill(log, [b], 6, 6000)
    log.drop(b)
    names = [segment.name for segment in log.store.layout.sealed]
    assert len(names) > 2
    log.sweep()
    assert [segment.name for segment in log.store.layout.sealed] == names


def test_small_extents_are_joined_by_partition_once(log: Log) -> None:
    numbers = [partition.number for partition in log.partitions(7)]
    fill(log, numbers, 160, 100)
    rows = sum(len(segment.index.lasts) for segment in log.store.layout.sealed)
    log.sweep(FIRST)
    segments = log.store.layout.sealed
    warm = TINY.warm_segments
    assert len(segments) > warm
    assert all(segment.name.generation == 1 for segment in segments[:-warm])
    assert {segment.name.generation for segment in segments[-warm:]} == {0}
    assert sum(len(s.index.lasts) for s in segments) < rows / 4
    log.check()
    names = log.files
    log.store._maintenance.sweep.soon()
    log.sweep()
    assert log.files == names
    log.reopen()
    log.check()


def test_many_small_files_become_one(log: Log) -> None:
    numbers = [partition.number for partition in log.partitions(3)]
    for turn in range(MERGED + 3):
        fill(log, numbers, 1, 100 + turn)
        log.roll()
    assert len(log.store.layout.sealed) == MERGED + 3
    log.sweep(FIRST)
    warm = TINY.warm_segments
    assert len(log.store.layout.sealed) == 1 + warm
    assert log.store.layout.sealed[0].first == 1
    log.check()
    log.reopen()
    log.check()


def test_nothing_is_touched_before_its_journal_is_in_the_checkpoint(log: Log) -> None:
    (number,) = (partition.number for partition in log.partitions(1))
    fill(log, [number], 100)
    log.roll()
    log.drop(number)
    log.options = with_options(checkpoint_ms=1 << 40)
    log.reopen()
    log.store.state.applied = 0  # as if it had never been written
    log.sweep(3)
    assert len(log.store.layout.sealed) > 0


def test_views_of_a_rewritten_file_stay_good(log: Log) -> None:
    a, b = (partition.number for partition in log.partitions(2))
    fill(log, [a, b], 100)
    log.roll()
    log.put(a)
    found = read_once(log.store, log.store.partition(a), 0, 50_000)
    wanted = [bytes(buffer) for buffer in found.buffers]
    gone = [segment.path for segment in log.store.layout.sealed]
    log.drop(b)
    log.sweep()
    assert not any(path.exists() for path in gone)
    assert [bytes(buffer) for buffer in found.buffers] == wanted
    log.check()


def test_a_damaged_segment_is_left_alone_and_said_so(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = (partition.number for partition in log.partitions(2))
    for _ in range(2):
        fill(log, [a], 60, 1500)
        fill(log, [b], 60, 1600)
        log.roll()
    log.put(a)
    log.store.close()
    path = log.store.layout.sealed[0].path
    image = bytearray(path.read_bytes())
    at = image.index(log.expected[a][5][1])
    image[at + 100] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(image)
    log.store = log.open()
    log.store.configure(log.expected, KEEP_ALL)
    log.drop(b)
    log.sweep()
    assert path.exists()
    assert len([r for r in caplog.records if path.name in r.getMessage()]) == 1
    assert not [name for name in log.files if name.endswith(".tmp")]
    partition = log.store.partition(a)
    with pytest.raises(Damaged, match=str(path.name)):
        read_batches(log.store, partition)
    tail = [row for row in log.expected[a] if row[0] >= 70]
    assert read_batches(log.store, partition, 70) == tail


def test_a_full_disk_during_a_rewrite_costs_nothing(log: Log) -> None:
    a, b = (partition.number for partition in log.partitions(2))
    fill(log, [a, b], 200)
    log.roll()
    log.put(a)
    full = True

    def step(name: str) -> None:
        if full and name == "rewrite: write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log.step = step
    log.drop(b)
    log.sweep(5)
    assert {segment.name.generation for segment in log.store.layout.sealed} == {0}
    assert not [name for name in log.files if name.endswith(".tmp")]
    log.check()
    full = False
    log.sweep(400)
    assert {segment.name.generation for segment in log.store.layout.sealed} == {1}
    log.check()


def test_closing_does_not_wait_for_a_long_rewrite(log: Log) -> None:
    numbers = [partition.number for partition in log.partitions(3)]
    fill(log, numbers, 200)
    log.roll()
    log.drop(numbers[0])
    log.step = lambda name: log.store._maintenance.sweep.stop() if "create" in name else None
    log.sweep(3)
    assert not [name for name in log.files if name.endswith((".tmp", ".1.sealed"))]
    log.reopen()
    log.check()


def test_no_room_no_rewrite(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (partition.number for partition in log.partitions(2))
    fill(log, [a, b], 200)
    log.roll()
    log.drop(b)
    monkeypatch.setattr(log.store.folder, "free_bytes", lambda: TINY.disk_reserve_bytes + 1000)
    log.sweep(5)
    assert {segment.name.generation for segment in log.store.layout.sealed} == {0}


def test_a_slice_of_a_sweep_is_short(log: Log) -> None:
    """Five thousand partitions: no tick may look at all of them."""
    log.partitions(5000)
    calls = 0
    real = log.store.partition

    def counted(number: int) -> Partition:
        nonlocal calls
        calls += 1
        return real(number)

    log.store.partition = counted  # type: ignore[method-assign]
    log.store._maintenance.sweep.soon()
    most = total = 0
    for _ in range(200):
        calls = 0
        log.now += 100
        log.store.tick(log.now)
        most = max(most, calls)
        total += calls
    assert most <= BUDGET
    assert total >= 10_000


# ---------------------------------------------------------------------------------------- crashes


def test_a_crash_at_any_step_is_settled_at_start(log: Log) -> None:
    """The folder is copied before every file operation of sweeps that drop, rewrite and merge."""
    numbers = [partition.number for partition in log.partitions(4)]
    fill(log, numbers, 120, 900)
    log.roll()
    fill(log, numbers[3:], 5)
    log.roll()
    for turn in range(MERGED + 2):
        fill(log, numbers[:1], 1, 200 + turn)
        log.roll()
    fill(log, numbers[:1], 1)
    log.sweep(2)
    root = log.path.parent
    copies: list[tuple[str, Path]] = []
    seen: set[str] = set()

    def step(name: str) -> None:
        seen.add(name)
        copies.append((name, crash_copy(log.path, root / f"copy-{len(copies)}")))

    log.drop(numbers[3])
    log.delete_to(numbers[2], 100)
    log.delete_to(numbers[1], 110)
    log.step = step
    log.sweep()
    log.step = lambda name: None
    assert {
        "drop: remove", "rewrite: create", "rewrite: write", "rewrite: index", "rewrite: flush",
        "rewrite: rename", "rewrite: sync folder", "rewrite: remove",
    } <= seen  # fmt: skip
    log.check()
    for name, copy in copies:
        again = Log(copy, log.options)
        again.expected = log.expected
        again.store.configure(again.expected, KEEP_ALL)
        again.check()
        again.now = log.now
        again.sweep(FIRST)
        again.check()
        assert again.disk_bytes <= log.disk_bytes * 1.5 + 100_000, name
        rest = [file for file in again.files if file.endswith((".tmp", ".bad"))]
        assert not rest, (name, rest)
        again.store.close()
        shutil.rmtree(copy)
    assert len(copies) > 20


def test_a_wide_file_that_is_torn_is_set_aside_for_the_files_it_replaced(log: Log) -> None:
    a, b = (partition.number for partition in log.partitions(2))
    fill(log, [a, b], 200)
    log.roll()
    log.put(a)
    log.drop(b)
    old = [(path, path.read_bytes()) for path in (log.path / "log").glob("*.sealed")]
    log.sweep()
    log.store.close()
    for path, image in old:
        assert not path.exists()
        path.write_bytes(image)
    for path in (log.path / "log").glob("*.1.sealed"):
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-10])
    log.store = log.open()
    log.check()
    assert any(name.endswith(".bad") for name in log.files)


@pytest.mark.parametrize("seed", range(6))
def test_any_history(log: Log, seed: int) -> None:
    rng = random.Random(seed)
    log.partitions(5)
    for turn in range(500):
        numbers = list(log.expected)
        number = rng.choice(numbers)
        action = rng.random()
        if action < 0.9:
            log.put(number, rng.choice((30, 300, 3000, 12_000)), turn)
        elif action < 0.93 and (rows := log.expected[number]):
            log.delete_to(number, rng.choice(rows)[0])
        elif action < 0.94 and len(numbers) > 2:
            log.drop(number)
            log.partitions(1)
        elif action < 0.96:
            log.roll()
        elif action < 0.98:
            log.sweep(rng.randint(1, 4))
        elif action < 0.985:
            log.reopen()
        else:
            log.check()
    log.sweep(30)
    log.check()
    log.reopen()
    log.check()


# ------------------------------------------------------------------------------------------- parts


def test_rewriting_nothing_makes_no_file(log: Log) -> None:
    (number,) = (partition.number for partition in log.partitions(1))
    fill(log, [number], 20)
    log.roll()
    files = log.files
    assert rewrite(log.store.folder, log.store.layout.sealed, {}, lambda: None) is None
    assert log.files == files


@pytest.mark.parametrize("commits", [1, 2, 5])
def test_each_commit_value_has_a_number_of_its_own(log: Log, commits: int) -> None:
    """Few commits, many bytes: a salvage tells values apart by number."""
    (number,) = (partition.number for partition in log.partitions(1))
    log.roll()
    partition = log.store.partition(number)
    for turn in range(commits):
        batches = [make_batch(size=7000, fill=turn) for _ in range(400)]
        for batch in batches:
            log.store.append(partition, batch, read_header(batch), 1)
        log.store.flush()
    log.roll()
    segment = log.store.layout.sealed[-1]
    made = rewrite(log.store.folder, [segment], {number: 0}, lambda: None)
    assert made is not None
    image = bytes(made.data)
    found = []
    at = image.find(MAGIC)
    while at >= 0:
        value = parse(image[at:])
        found.append(value.number)
        assert sum(row.length for row in value.rows) == value.size - value.rows[0].position
        at = image.find(MAGIC, at + value.size)
    assert found == list(range(made.first, made.first + len(found)))
    assert found[-1] <= made.last
    assert sum(made.index.lengths) == sum(segment.index.lengths)
