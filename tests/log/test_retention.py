"""From which offset a partition is kept: age, size, and what is left alone."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.log.logkit import (
    append,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    scratch,
)

from ottla.log.options import PartitionSettings
from ottla.log.partition import Partition
from ottla.log.retention import kept_from
from ottla.log.store import Store

DAY = 86_400_000
KEEP_ALL = PartitionSettings(retention_ms=-1, retention_bytes=-1)


@pytest.fixture
def store() -> Iterator[Store]:
    path = scratch("ottla-retention-")
    store = open_store(path)
    yield store
    store.close()
    shutil.rmtree(path)


def kept(store: Store, partition: Partition, now_ms: int, **settings: object) -> int:
    base = {"retention_ms": -1, "retention_bytes": -1, **settings}
    return kept_from(store.layout, partition, PartitionSettings(**base), now_ms)  # type: ignore[arg-type] # by name


def roll(store: Store) -> None:
    store.flush()
    store.roll()
    store.flush()


def test_nothing_goes_without_bounds(store: Store) -> None:
    (partition,) = new_partitions(store)
    put(store, partition, make_batch(time=5))
    assert kept(store, partition, 10**15) == 0
    assert kept(store, partition, 10**15, retention_ms=1, retention_bytes=1, delete=False) == 0


def test_parts_go_when_their_newest_record_is_too_old(store: Store) -> None:
    (partition,) = new_partitions(store)
    for day in range(5):
        put(store, partition, make_batch(2, time=day * DAY))
        put(store, partition, make_batch(2, time=day * DAY + 1000))
        if day < 4:
            roll(store)
    assert len(store.layout.sealed) == 4
    end = 4 * DAY + 1001
    for age, expected in ((end, 0), (4 * DAY, 0), (4 * DAY - 1, 4), (DAY, 12), (DAY - 1, 16)):
        assert kept(store, partition, end, retention_ms=age) == expected
    # The active segment's part goes as well, once nothing of it is young enough (as in Kafka).
    assert kept(store, partition, end, retention_ms=0) == 16
    assert kept(store, partition, end + 1, retention_ms=0) == 20


def test_a_young_record_keeps_what_is_behind_it(store: Store) -> None:
    (partition,) = new_partitions(store)
    for time in (9 * DAY, 1, 2):
        put(store, partition, make_batch(time=time))
        roll(store)
    assert kept(store, partition, 9 * DAY, retention_ms=DAY) == 0


def test_records_without_timestamp_have_that_of_their_commit(store: Store) -> None:
    (partition,) = new_partitions(store)
    append(store, partition, make_batch(time=-1), now_ms=5 * DAY)
    roll(store)
    put(store, partition, make_batch(time=20 * DAY), now_ms=6 * DAY)
    assert kept(store, partition, 6 * DAY, retention_ms=DAY) == 0
    assert kept(store, partition, 6 * DAY + 1, retention_ms=DAY) == 1


@pytest.mark.parametrize("seed", range(8))
def test_at_least_retention_bytes_stay(store: Store, seed: int) -> None:
    rng = random.Random(seed)
    (partition,) = new_partitions(store)
    extents: list[tuple[int, int]] = []  # next offset, bytes
    for _ in range(120):
        batch = make_batch(rng.randint(1, 3), size=rng.randint(1, 3000))
        put(store, partition, batch)
        extents.append((partition.high_watermark, len(batch)))
        if rng.random() < 0.05:
            roll(store)
    start = 0
    for bound in sorted((rng.randrange(200_000) for _ in range(12)), reverse=True):
        found = kept(store, partition, 0, retention_bytes=bound)
        left = [(end, size) for end, size in extents if end > start]
        total = sum(size for _, size in left)
        if total <= bound + bound // 8:
            assert found == start
            continue
        sizes = [size for end, size in left if end > found]
        assert sum(sizes) >= bound
        assert sum(sizes[1:]) < bound
        store.delete_records(partition, found)
        store.flush()
        start = found
        assert partition.size_bytes == sum(sizes)
    assert start > 0
    assert kept(store, partition, 0, retention_bytes=0) == partition.high_watermark


def test_ticks_move_the_start_of_configured_partitions_only(store: Store) -> None:
    old, forever, unknown = new_partitions(store, 3)
    for partition in (old, forever, unknown):
        put(store, partition, make_batch(time=5))
    store.configure([old.number], PartitionSettings(retention_ms=DAY))
    store.configure([forever.number], KEEP_ALL)
    del store.partitions._settings[unknown.number]
    for now in range(DAY, 10 * DAY, DAY // 4):
        store.tick(now)
    assert old.log_start_offset == 1
    assert forever.log_start_offset == unknown.log_start_offset == 0
    assert read_batches(store, old) == []
    assert len(read_batches(store, forever)) == len(read_batches(store, unknown)) == 1
    assert put(store, old, make_batch(time=9 * DAY)) == 1


def test_a_partition_may_be_configured_before_it_is_committed(store: Store) -> None:
    numbers, changes = store.new_partitions(2, PartitionSettings(retention_ms=1))
    for now in (DAY, 2 * DAY, 3 * DAY):
        store.tick(now)
    store.change(changes)
    store.flush()
    assert put(store, store.partition(numbers[0]), make_batch()) == 0


def test_producers_are_forgotten_by_the_expiration_that_is_in_force(store: Store) -> None:
    (partition,) = new_partitions(store)
    put(store, partition, make_batch(producer=(7, 0, 0)), now_ms=1)
    store.tick(1)
    store.set_options(replace(store.options, producer_id_expiration_ms=1000))
    store.tick(500)
    assert [entry.producer_id for entry in store.producers_of(partition)] == [7]
    store.tick(1001)
    assert list(store.producers_of(partition)) == []
