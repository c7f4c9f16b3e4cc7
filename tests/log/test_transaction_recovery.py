"""Transactions in the log over failed commits, restarts and damaged files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.log.logkit import (
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    with_options,
)
from tests.log.transactionkit import Disk, Producer, aborted, fail, known, marker

from ottla.log.options import Change, Table
from ottla.log.partition import Partition
from ottla.log.producers import Producers, ProducerState
from ottla.log.repair import repair
from ottla.log.store import Store


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def store(tmp_path: Path, disk: Disk) -> Iterator[Store]:
    store = open_store(tmp_path / "log", step=disk.step)
    yield store
    store.close()


# ----------------------------------------------------------------------------------- failed commits


def test_a_failed_commit_takes_a_transaction_back(
    store: Store, partition: Partition, disk: Disk
) -> None:
    producer = Producer(store)
    producer.admit(partition)
    fail(store, disk)
    assert store.open_transaction(partition, producer.id) is None
    assert list(store.producers_of(partition)) == []
    producer.sequences = {}
    assert producer.send(partition) == 0
    assert store.open_transaction(partition, producer.id) == 0


@pytest.mark.parametrize("version", [1, 2])
def test_a_failed_commit_takes_a_marker_back(
    store: Store, partition: Partition, disk: Disk, version: int
) -> None:
    one, two = Producer(store, 1), Producer(store, 2)
    one.send(partition)
    two.send(partition)
    before = list(store.producers_of(partition))
    one.end(False, version=version, changes=[Change(Table.TRANSACTIONS, b"k", b"v")])
    one.partitions = {}
    one.admit(partition)
    fail(store, disk)
    assert store.get(Table.TRANSACTIONS, b"k") is None
    assert list(store.producers_of(partition)) == before
    assert store.open_transaction(partition, 1) == 0
    assert store.open_transaction(partition, 2) == 1
    assert partition.last_stable_offset == 0
    assert aborted(store, partition) == []
    two.end(True)
    store.write_markers([marker(partition, 1, committed=False)], [], 1)
    store.flush()
    assert aborted(store, partition) == [(1, 0)]
    assert partition.last_stable_offset == 4


# ----------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize("checkpoint", [(), (0,), (2,), (4,), (5,), (1, 3, 6)])
@pytest.mark.parametrize("version", [1, 2])
def test_what_is_known_after_a_kill(tmp_path: Path, checkpoint: set[int], version: int) -> None:
    """Rows of a checkpoint, and what comes behind it; at each step a kill."""
    store = open_store(tmp_path / "log", options=with_options(checkpoint_ms=1))
    partition, other = new_partitions(store, 2)
    one, two = Producer(store, 1), Producer(store, 2)
    steps: list[Callable[[], object]] = [
        lambda: one.send(partition, 2, now_ms=10),
        lambda: two.send(partition, now_ms=20),
        lambda: one.abort(version=version),
        lambda: one.send(other),
        lambda: two.commit(version=version),
        lambda: one.send(partition),
        lambda: one.abort(version=version),
    ]
    for number, step in enumerate(steps):
        step()
        if number in checkpoint:
            store.tick(1000 + number)
            assert store.state.applied == store.committed
        copy = crash_copy(store.folder.path, tmp_path / f"copy-{number}")
        again = open_store(copy)
        for mine in (partition, other):
            assert known(again, again.partition(mine.number)) == known(store, mine)
        # And the next of each is as if nothing had been.
        for producer in (one, two):
            theirs = again.partition(partition.number)
            batch = producer.batch(theirs)
            assert put(again, theirs, batch) == partition.high_watermark + producer.id - 1
        again.close()
    store.close()
    again = open_store(tmp_path / "log")
    assert known(again, again.partition(partition.number)) == known(store, partition)
    again.close()


def test_the_checkpoint_alone_knows_it_too(store: Store, partition: Partition) -> None:
    """The segments' headers are not looked at where the rows say it."""
    one, two = Producer(store, 1), Producer(store, 2)
    one.send(partition)
    two.send(partition)
    two.abort(version=2)
    before = known(store, partition)
    store.close()
    producers = Producers()
    again = open_store(store.folder.path)
    for key, value in again.state.scan(Table.PRODUCERS):
        producers.load(key, value)
    again.close()
    producers.settle_ongoing()
    assert (
        sorted(producers.open_transactions()),
        sorted(producers.each(partition.number, lambda: 1 << 62)),
    ) == (before.open, before.producers)


def test_an_open_transaction_keeps_its_producer(store: Store, partition: Partition) -> None:
    one, two = Producer(store, 1), Producer(store, 2)
    one.send(partition, now_ms=10)
    two.send(partition, now_ms=10)
    two.abort()
    later = 100 + store.options.producer_id_expiration_ms
    assert not store.producers.expire(later, store.options.producer_id_expiration_ms)
    assert [state.producer_id for state in list(store.producers_of(partition))] == [1]
    one.end(True, now_ms=later)
    store.flush()
    assert not store.producers.expire(later + 1, store.options.producer_id_expiration_ms)
    assert [state.producer_id for state in list(store.producers_of(partition))] == [1]
    assert not store.producers.expire(2 * later, store.options.producer_id_expiration_ms)
    assert list(store.producers_of(partition)) == []


def test_rows_of_before_there_were_transactions_load() -> None:
    """Version 1 of the layout, as a checkpoint of an older Ottla has it."""
    key = bytes.fromhex("000000030000000000000007")
    value = bytes.fromhex(
        "01" "02" "0400" "e803000000000000"
        "0a00000000000000" "00000000" "02000000" "6300000000000000"
        "0d00000000000000" "03000000" "03000000" "6400000000000000"
    )  # fmt: skip
    producers = Producers()
    producers.load(key, value)
    producers.settle_ongoing()
    assert list(producers.each(3, lambda: 1 << 62)) == [ProducerState(7, 4, 3, 100, -1, -1)]
    assert producers.open_transaction(3, 7) == -1


def test_rows_of_transactions_are_as_they_were() -> None:
    key = bytes.fromhex("000000030000000000000007")
    value = bytes.fromhex(
        "02" "01" "0400" "e803000000000000"
        "0d00000000000000" "0d00000000000000" "e703000000000000" "05000000"
        "0d00000000000000" "00000000" "03000000" "6400000000000000"
    )  # fmt: skip
    producers = Producers()
    producers.load(key, value)
    producers.settle_ongoing()
    assert list(producers.each(3, lambda: 1 << 62)) == [ProducerState(7, 4, 3, 100, 5, 13)]
    assert producers.open_transaction(3, 7) == 13
    assert [tuple(one) for one in producers.open_transactions()] == [(3, 7, 13, 999)]
    producers._changed.add((3, 7))
    (change,) = producers.take_changed(lambda number: 1 << 62)
    assert change == Change(Table.PRODUCERS, key, value)
    for broken in (value[:-1], b"\3" + value[1:]):
        with pytest.raises(ValueError, match="producer row"):
            producers.load(key, broken)


def test_nothing_is_lost_when_the_checkpoint_is_made_anew(
    store: Store, partition: Partition
) -> None:
    one, two = Producer(store, 1), Producer(store, 2)
    one.send(partition)
    two.send(partition)
    two.abort(version=2)
    before = known(store, partition)
    store.close()
    store.folder.state.unlink()
    again = open_store(store.folder.path)
    assert known(again, again.partition(partition.number)) == before
    again.close()


# ------------------------------------------------------------------------------------ damaged files


@pytest.mark.parametrize("repaired", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_damaged_file(tmp_path: Path, repaired: bool, checkpoint: bool) -> None:
    """What a checkpoint knows stays known; else a transaction whose marker is lost is open again,
    and can be ended."""
    store = open_store(tmp_path / "log", options=with_options(checkpoint_ms=1))
    partition, other = new_partitions(store, 2)
    one, two = Producer(store, 1), Producer(store, 2)
    one.send(partition)
    two.send(partition)
    put(store, other, make_batch())
    store.roll()
    store.tick(1000)
    one.abort(version=2)
    two.commit(version=2)
    put(store, partition, make_batch())
    end = partition.high_watermark
    if checkpoint:
        store.roll()
        store.tick(2000)
        assert store.state.applied == store.committed
    name = max(p.name for p in (store.folder.path / "log").iterdir() if "-" not in p.name)
    if checkpoint:
        name = sorted(p.name for p in (store.folder.path / "log").iterdir() if "sealed" in p.name)[
            1
        ]
    copy = crash_copy(store.folder.path, tmp_path / "copy")
    store.close()
    with open(copy / "log" / name, "r+b") as file:
        file.truncate(5000)
    if repaired:
        assert repair(copy).lost
    store = open_store(copy)
    partition = store.partition(partition.number)
    assert partition.high_watermark >= end
    still_open = [one.producer_id for one in sorted(store.open_transactions())]
    if checkpoint:
        assert still_open == []
        assert aborted(store, partition) == [(1, 0)]
        assert partition.last_stable_offset == partition.high_watermark
    else:
        assert still_open == [1, 2]
        assert partition.last_stable_offset == 0
    markers = [marker(partition, 1, 1, committed=False), marker(partition, 2, 1)]
    store.write_markers(markers, [], 3000)
    store.flush()
    assert partition.last_stable_offset == partition.high_watermark
    assert aborted(store, partition) == [(1, 0)]
    store.close()
