"""Somebody sets the time of day, by a day, back or forth: deadlines do not go by it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.log.logkit import (
    append,
    commit,
    make_batch,
    new_partitions,
    open_store,
    put,
    with_options,
)
from tests.log.test_failures import Disk

from ottla.log.errors import DiskFull
from ottla.log.options import Change, PartitionSettings, Table
from ottla.log.partition import Partition
from ottla.log.pipeline import RETRY_MS
from ottla.log.store import Store
from ottla.wire.errors import KafkaError
from ottla.wire.records import Record, build_batch

DAY = 86_400_000
START = 20_000 * DAY
OPTIONS = with_options(checkpoint_ms=1000, disk_reserve_bytes=1 << 20)


class Clock:
    """A store's time, in steps of 100 ms, and by how much the time of day is off."""

    def __init__(self, path: Path, **options: object) -> None:
        self.disk = Disk()
        self.steady = START
        self.set_ms = 0
        self.store = open_store(
            path, options=with_options(**options), now_ms=self.now, step=self.disk.step
        )
        self.store.folder.free_bytes = lambda: self.disk.free  # type: ignore[method-assign]
        self.store.tick(self.now, self.steady)

    @property
    def now(self) -> int:
        return self.steady + self.set_ms

    def pass_time(self, ms: int, step_ms: int = 100) -> None:
        for _ in range(0, ms, step_ms):
            self.steady += step_ms
            self.store.tick(self.now, self.steady)

    def put(self, partition: Partition, batch: bytearray) -> int:
        return put(self.store, partition, batch, self.now)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "log", checkpoint_ms=1000)


JUMPS = pytest.mark.parametrize("jump", [-DAY, DAY, -400 * DAY, 400 * DAY], ids=lambda d: f"{d}ms")


@JUMPS
def test_checkpoints_go_on(clock: Clock, jump: int) -> None:
    store = clock.store
    clock.set_ms = jump
    for turn in range(3):
        commit(store, [Change(Table.TOPICS, b"x", b"%d" % turn)])
        clock.pass_time(1100)
        assert store.state.applied == store.committed
    store.close()


@JUMPS
def test_an_old_segment_is_rolled_at_its_age(clock: Clock, jump: int) -> None:
    store = clock.store
    (a,) = new_partitions(store)
    clock.put(a, make_batch())
    clock.pass_time(1000)
    clock.set_ms = jump
    clock.pass_time(store.options.segment_ms - 2000, 1000)
    assert not store.layout.sealed, "not because of the jump"
    clock.pass_time(2000)
    assert len(store.layout.sealed) == 1
    store.close()


def test_a_segment_is_as_old_as_it_was_before_a_restart(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "log")
    (a,) = new_partitions(clock.store)
    clock.put(a, make_batch())
    clock.pass_time(2_000_000, 1000)
    clock.store.close()
    store = open_store(tmp_path / "log", now_ms=clock.now)
    store.tick(clock.now, 5)
    assert store.active_age_ms == clock.now - START
    store.close()
    store = open_store(tmp_path / "log", now_ms=START - DAY)
    store.tick(START - DAY, 5)
    assert store.active_age_ms == 0, "set back meanwhile"
    store.close()


@JUMPS
def test_retention_and_compaction_go_on(tmp_path: Path, jump: int) -> None:
    clock = Clock(tmp_path / "log", retention_check_ms=10_000, compaction_check_ms=5000)
    store = clock.store
    a, b = new_partitions(store, 2)
    store.configure([a.number], PartitionSettings(retention_ms=-1, retention_bytes=0))
    store.configure([b.number], PartitionSettings(-1, delete=False, compact=True))
    clock.pass_time(20_000, 1000)
    clock.set_ms = jump
    for _ in range(5):
        clock.put(a, make_batch(size=500))
        keyed(store, b, clock.now)
    store.roll()
    clock.pass_time(30_000, 1000)
    assert a.log_start_offset > 0
    assert store.get(Table.CLEANED, b.number.to_bytes(4, "big")) is not None
    store.close()


def keyed(store: Store, partition: Partition, now_ms: int) -> None:
    put(store, partition, build_batch([Record(0, now_ms, b"key", b"value" * 50)]), now_ms)


@JUMPS
def test_writing_goes_on_when_there_is_room_again(clock: Clock, jump: int) -> None:
    store, disk = clock.store, clock.disk
    (a,) = new_partitions(store)
    disk.free = store.options.disk_reserve_bytes
    failed = append(store, a, make_batch(), clock.now)
    store.flush()
    assert isinstance(failed.ticket.error, DiskFull)
    clock.set_ms = jump
    with pytest.raises(KafkaError):
        append(store, a, make_batch(), clock.now)
    disk.free = 1 << 40
    clock.pass_time(RETRY_MS)
    assert clock.put(a, make_batch()) == 0
    store.close()


@JUMPS
def test_a_file_that_could_not_be_sealed_is_sealed_later(clock: Clock, jump: int) -> None:
    store, disk = clock.store, clock.disk
    (a,) = new_partitions(store)
    clock.put(a, make_batch())
    disk.failing["seal: write"] = errno.EIO
    store.roll()
    assert store.layout.rolled
    disk.failing.clear()
    clock.set_ms = jump
    clock.pass_time(6000)
    assert not store.layout.rolled
    store.close()


@pytest.mark.parametrize("jump", [-2 * DAY, 2 * DAY])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_clock_that_is_wrong_for_a_while_expires_no_producer(
    tmp_path: Path, jump: int, when: str
) -> None:
    clock = Clock(tmp_path / "log")
    store = clock.store
    (a,) = new_partitions(store)
    if when == "before":
        clock.set_ms = jump
        clock.pass_time(1000)
    clock.put(a, make_batch(producer=(4, 0, 0)))
    clock.pass_time(1000)
    clock.set_ms = 0 if clock.set_ms else jump
    clock.pass_time(DAY // 2, 60_000)
    clock.set_ms = 0
    clock.pass_time(60_000, 1000)
    assert len(store.producers) == 1
    store.close()
    again = open_store(tmp_path / "log", now_ms=clock.now)
    again.tick(clock.now, clock.now)
    assert len(again.producers) == 1
    again.close()


def test_a_silent_producer_is_forgotten_at_last(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "log")
    (a,) = new_partitions(clock.store)
    clock.put(a, make_batch(producer=(4, 0, 0)))
    clock.pass_time(DAY + 1_200_000, 60_000)
    assert len(clock.store.producers) == 0
    clock.store.close()
