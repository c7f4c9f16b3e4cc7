"""Transactions in the log: what is open, what was aborted, what a marker may do; over failed
commits and restarts."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.log.logkit import (
    append,
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    with_options,
)
from tests.log.transactionkit import Producer, aborted, known, marker

from ottla.log.options import Change, Table
from ottla.log.partition import Partition
from ottla.log.producers import Producers, ProducerState
from ottla.log.repair import repair
from ottla.log.store import Store
from ottla.log.transactions import (
    Aborted,
    History,
    Marker,
    MarkerRefused,
    aborted_row,
    marker_batch,
    read_end,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import CorruptBatch, read_header, records
from ottla.wire.retain import keep_header

# What kafka-clients 4.3.1 writes (MemoryRecords.withEndTransactionMarker) at offset 123456789,
# 1700000000123 ms, leader epoch 4, producer 77, epoch 3, coordinator epoch 9.
KAFKAS = {
    True: "00000000075bcd15000000420000000402f0257eb90030000000000000018bcfe5687b0000018bcfe5687b"
    "000000000000004d0003ffffffff000000012000000008000000010c00000000000900",
    False: "00000000075bcd15000000420000000402041ba8f10030000000000000018bcfe5687b0000018bcfe5687b"
    "000000000000004d0003ffffffff000000012000000008000000000c00000000000900",
}


class Disk:
    """Fails where it is told to."""

    def __init__(self) -> None:
        self.failing: set[str] = set()

    def step(self, name: str) -> None:
        if name in self.failing:
            raise OSError(errno.EIO, "injected")


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def store(tmp_path: Path, disk: Disk) -> Iterator[Store]:
    store = open_store(tmp_path / "log", step=disk.step)
    yield store
    store.close()


@pytest.fixture
def partition(store: Store) -> Partition:
    return new_partitions(store)[0]


def fail(store: Store, disk: Disk) -> None:
    """What waits for its commit fails."""
    disk.failing = {"commit: write"}
    store.flush()
    disk.failing = set()
    assert store.refusing is None


def refused(store: Store, *markers: Marker) -> MarkerRefused:
    with pytest.raises(MarkerRefused) as caught:
        store.write_markers(markers, [Change(Table.TRANSACTIONS, b"k", b"v")], 1)
    return caught.value


# ------------------------------------------------------------------------------------ the marker


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_is_kafkas_byte_for_byte(partition: Partition, committed: bool) -> None:
    one = Marker(partition, 77, 3, 9, committed, 1)
    batch = marker_batch(one, 123456789, 4, 1700000000123)
    assert batch.hex() == KAFKAS[committed]
    end = read_end(batch, read_header(batch))
    assert end is not None
    assert (end.committed, end.coordinator_epoch) == (committed, 9)


def test_a_marker_that_lost_its_record_says_nothing(partition: Partition) -> None:
    batch = marker_batch(marker(partition), 0, 0, 0)
    empty, header = keep_header(read_header(batch))
    assert read_end(empty, header) is None


def test_a_control_batch_that_is_no_marker_says_nothing() -> None:
    batch = make_batch(1)
    assert read_end(batch, read_header(batch)) is None
    del batch[-3:]
    with pytest.raises(CorruptBatch):
        read_end(batch, read_header(batch))


def test_47_a_marker_takes_an_offset(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    producer.send(partition, 3)
    producer.commit()
    assert partition.high_watermark == 4
    (_, data), (base, end) = read_batches(store, partition)
    assert base == 3
    assert read_header(end).is_control
    assert read_header(data).is_transactional
    assert put(store, partition, make_batch()) == 4


# ------------------------------------------------------------------------ the last stable offset


def test_it_is_where_the_oldest_open_transaction_began(store: Store, partition: Partition) -> None:
    one, two = Producer(store, 1), Producer(store, 2)
    put(store, partition, make_batch(2))
    assert partition.last_stable_offset == 2
    assert one.send(partition, 3) == 2
    assert two.send(partition) == 5
    put(store, partition, make_batch())
    assert one.send(partition) == 7
    assert (partition.last_stable_offset, partition.high_watermark) == (2, 8)
    one.commit()  # at 8
    assert partition.last_stable_offset == 5
    assert one.send(partition) == 9
    two.abort()  # at 10
    assert partition.last_stable_offset == 9
    one.abort()  # at 11
    assert partition.last_stable_offset == 12
    assert aborted(store, partition) == [(2, 5), (1, 9)]


def test_what_is_admitted_does_not_move_it(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    put(store, partition, make_batch())
    producer.admit(partition)
    assert partition.last_stable_offset == 1
    store.flush()
    assert partition.last_stable_offset == 1
    assert partition.high_watermark == 2
    producer.end(False)
    assert store.open_transaction(partition, producer.id) is None, "the next begins anew"
    assert partition.last_stable_offset == 1
    assert aborted(store, partition) == []
    producer.admit(partition)
    assert store.open_transaction(partition, producer.id) == 3
    assert partition.last_stable_offset == 1
    store.flush()
    assert partition.last_stable_offset == 3
    assert aborted(store, partition) == [(producer.id, 1)]


def test_it_is_never_below_the_log_start(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    producer.send(partition, 3)
    put(store, partition, make_batch(3))
    store.delete_records(partition, 4)
    store.flush()
    assert partition.last_stable_offset == 4
    producer.abort()
    assert partition.last_stable_offset == 7


def test_a_transaction_is_open_for_its_epoch(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    assert store.open_transaction(partition, producer.id) is None
    producer.send(partition)
    assert store.open_transaction(partition, producer.id) == 0
    assert store.open_transaction(partition, producer.id, 0) == 0
    assert store.open_transaction(partition, producer.id, 1) is None
    assert store.open_transaction(partition, 99) is None
    assert [tuple(one) for one in store.open_transactions()] == [
        (partition.number, producer.id, 0, 1)
    ]


def test_a_plain_batch_within_a_transaction(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    producer.send(partition)
    for epoch in (0, 1):
        producer.epoch = epoch
        producer.sequences = {partition.number: 1 - epoch}
        with pytest.raises(KafkaError) as caught:
            append(store, partition, producer.batch(partition, plain=True))
        assert caught.value.error is Error.INVALID_TXN_STATE
    producer.epoch = 0
    producer.commit()
    producer.sequences = {partition.number: 1}
    assert put(store, partition, producer.batch(partition, plain=True)) == 2


def test_a_repeat_opens_nothing(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    batch = producer.batch(partition)
    put(store, partition, batch)
    producer.sequences = {partition.number: 1}
    producer.partitions = {partition.number: partition}
    producer.commit()
    assert append(store, partition, batch).duplicate
    assert store.open_transaction(partition, producer.id) is None
    assert partition.last_stable_offset == 2


# -------------------------------------------------------------------------- what a marker may do


@pytest.mark.parametrize(
    ("version", "is_open", "epoch", "fits"),
    [
        (1, True, 2, False),
        (1, True, 3, True),
        (1, True, 4, True),
        (1, False, 3, True),
        (2, True, 2, False),
        (2, True, 3, False),  # late, of a transaction before
        (2, True, 4, True),
        (2, False, 2, False),
        (2, False, 3, True),  # the same again
    ],
)
def test_epochs(
    store: Store, partition: Partition, version: int, is_open: bool, epoch: int, fits: bool
) -> None:
    producer = Producer(store)
    producer.epoch = 3
    producer.send(partition)
    if not is_open:
        producer.commit()
    end = partition.high_watermark
    one = marker(partition, producer.id, epoch, version=version)
    if fits:
        store.write_markers([one], [], 1)
        store.flush()
        assert partition.high_watermark == end + 1
        assert partition.last_stable_offset == end + 1
        return
    error = refused(store, one)
    assert (error.error, error.marker) == (Error.INVALID_PRODUCER_EPOCH, one)
    store.flush()
    assert partition.high_watermark == end


def test_a_newer_epoch_fences_and_begins_anew(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    producer.send(partition, 4)
    old = producer.batch(partition)
    producer.commit(version=2)
    with pytest.raises(KafkaError) as caught:
        append(store, partition, old)
    assert caught.value.error is Error.INVALID_PRODUCER_EPOCH
    producer.sequences = {partition.number: 4}
    with pytest.raises(KafkaError) as caught:
        append(store, partition, producer.batch(partition))
    assert caught.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.sequences = {}
    assert producer.send(partition) == 5


def test_the_same_epoch_keeps_the_sequences(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    producer.send(partition, 4)
    producer.commit()
    producer.sequences = {}
    with pytest.raises(KafkaError):
        producer.send(partition)
    producer.sequences = {partition.number: 4}
    assert producer.send(partition) == 5


def test_a_coordinator_of_before(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    producer.send(partition)
    store.write_markers([marker(partition, coordinator_epoch=7)], [], 1)
    assert refused(store, marker(partition, coordinator_epoch=6)).error is (
        Error.TRANSACTION_COORDINATOR_FENCED
    )
    store.write_markers([marker(partition, coordinator_epoch=7)], [], 1)


def test_a_marker_where_nothing_was_written(store: Store, partition: Partition) -> None:
    """The partition was added, the batch never came."""
    store.write_markers([marker(partition, 5, 3, committed=False, version=2)], [], 1)
    store.flush()
    assert partition.last_stable_offset == partition.high_watermark == 1
    assert aborted(store, partition) == []
    late = make_batch(producer=(5, 2, 0))
    with pytest.raises(KafkaError) as caught:
        append(store, partition, late)
    assert caught.value.error is Error.INVALID_PRODUCER_EPOCH


def test_all_are_judged_before_any_is_admitted(store: Store) -> None:
    a, b = new_partitions(store, 2)
    producer = Producer(store)
    producer.send(a)
    producer.epoch = 1
    producer.sequences = {}
    producer.send(b)
    assert refused(store, marker(a), marker(b)).marker.partition is b
    store.flush()
    assert store.get(Table.TRANSACTIONS, b"k") is None
    assert (a.last_stable_offset, a.high_watermark) == (0, 1)
    assert store.open_transaction(a, 5) == 0


def test_a_partition_that_is_gone(store: Store, partition: Partition) -> None:
    Producer(store).send(partition)
    store.change(store.drop_partitions([partition.number]))
    store.flush()
    error = refused(store, marker(partition))
    assert error.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert list(store.open_transactions()) == []


def test_an_end_is_one_commit_however_large(tmp_path: Path) -> None:
    store = open_store(tmp_path / "log", options=with_options(max_commit_bytes=100))
    partitions = new_partitions(store, 20)
    producer = Producer(store)
    for partition in partitions:
        producer.send(partition)
    before = store.committed
    row = Change(Table.TRANSACTIONS, b"k", b"v" * 400)
    ticket = producer.end(False, changes=[row])
    store.flush()
    assert ticket.done
    assert store.committed == before + 1
    assert store.get(*row[:2]) == row.value
    assert all(partition.last_stable_offset == 2 for partition in partitions)
    store.close()


# ------------------------------------------------------------------------------- failed commits


def test_a_failed_commit_takes_a_transaction_back(
    store: Store, partition: Partition, disk: Disk
) -> None:
    producer = Producer(store)
    producer.admit(partition)
    fail(store, disk)
    assert store.open_transaction(partition, producer.id) is None
    assert store.producers_of(partition) == []
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
    before = store.producers_of(partition)
    one.end(False, version=version, changes=[Change(Table.TRANSACTIONS, b"k", b"v")])
    one.partitions = {}
    one.admit(partition)
    fail(store, disk)
    assert store.get(Table.TRANSACTIONS, b"k") is None
    assert store.producers_of(partition) == before
    assert store.open_transaction(partition, 1) == 0
    assert store.open_transaction(partition, 2) == 1
    assert partition.last_stable_offset == 0
    assert aborted(store, partition) == []
    two.end(True)
    store.write_markers([marker(partition, 1, committed=False)], [], 1)
    store.flush()
    assert aborted(store, partition) == [(1, 0)]
    assert partition.last_stable_offset == 4


# ------------------------------------------------------------------------------------- restarts


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
        sorted(producers.describe(partition.number, 1 << 62)),
    ) == (before.open, before.producers)


def test_an_open_transaction_keeps_its_producer(store: Store, partition: Partition) -> None:
    one, two = Producer(store, 1), Producer(store, 2)
    one.send(partition, now_ms=10)
    two.send(partition, now_ms=10)
    two.abort()
    later = 100 + store.options.producer_id_expiration_ms
    assert not store.producers.expire(later, store.options.producer_id_expiration_ms)
    assert [state.producer_id for state in store.producers_of(partition)] == [1]
    one.end(True, now_ms=later)
    store.flush()
    assert not store.producers.expire(later + 1, store.options.producer_id_expiration_ms)
    assert [state.producer_id for state in store.producers_of(partition)] == [1]
    assert not store.producers.expire(2 * later, store.options.producer_id_expiration_ms)
    assert store.producers_of(partition) == []


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
    assert producers.describe(3, 1 << 62) == [ProducerState(7, 4, 3, 100, -1, -1)]
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
    assert producers.describe(3, 1 << 62) == [ProducerState(7, 4, 3, 100, 5, 13)]
    assert producers.open_transaction(3, 7) == 13
    assert [tuple(one) for one in producers.open_transactions()] == [(3, 7, 13, 999)]
    producers._changed.add((3, 7))
    (change,) = producers.take_changed(lambda number: 1 << 62)
    assert change == Change(Table.PRODUCERS, key, value)
    for broken in (value[:-1], b"\3" + value[1:]):
        with pytest.raises(ValueError, match="producer row"):
            producers.load(key, broken)


def test_aborted_rows_are_as_they_were() -> None:
    row = aborted_row(3, 260, 7, 200, 210)
    assert row.key.hex() == "000000030000000000000104"
    assert row.value is not None
    assert row.value.hex() == "010700000000000000c800000000000000d200000000000000"


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


# -------------------------------------------------------------------------------- damaged files


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


# ------------------------------------------------------------------------------ who writes here


def test_what_is_told_of_producers(store: Store, partition: Partition) -> None:
    put(store, partition, make_batch(2, producer=(1, 0, 0), time=50))
    two = Producer(store, 2)
    two.admit(partition)
    assert store.producers_of(partition) == [ProducerState(1, 0, 1, 51, -1, -1)]
    store.flush()
    assert store.producers_of(partition)[1] == ProducerState(2, 0, 0, 1000, -1, 2)
    store.write_markers([marker(partition, 2, 0, coordinator_epoch=3)], [], 2000)
    store.flush()
    assert store.producers_of(partition)[1] == ProducerState(2, 0, 0, 2000, 3, -1)
    two.send(partition)
    assert store.producers_of(partition)[1] == ProducerState(2, 0, 1, 1000, 3, 4)
    store.write_markers([marker(partition, 2, 1, coordinator_epoch=3, version=2)], [], 3000)
    store.flush()
    assert store.producers_of(partition)[1] == ProducerState(2, 1, -1, 3000, 3, -1)


# ----------------------------------------------------------------------------- aborted transactions

TRANSACTIONS = st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(1, 3)), max_size=40)


@given(TRANSACTIONS, st.integers(0, 90), st.integers(0, 90))
def test_all_that_overlap_are_told(
    history: list[tuple[int, bool, int]], start: int, length: int
) -> None:
    """Against all of them, one by one. Each step: a producer writes so much, or aborts."""
    index = Aborted()
    firsts: dict[int, int] = {}
    ended: list[tuple[int, int, int]] = []
    offset = 0
    for producer_id, ends, count in history:
        if ends and producer_id in firsts:
            first = firsts.pop(producer_id)
            stable = min(firsts.values(), default=offset + 1)
            row = aborted_row(1, offset, producer_id, first, stable).value
            assert row is not None
            index.add(offset, row)
            index.add(offset, row)  # twice is harmless
            ended.append((producer_id, first, offset))
            offset += 1
        else:
            firsts.setdefault(producer_id, offset)
            offset += count
    end = start + length
    told = list(zip(*index.overlapping(start, end), strict=True))
    assert told == [(p, first) for p, first, last in ended if last >= start and first < end]
    below = [last for _, _, last in ended if last < start]
    assert list(index.markers_below(start, 3)) == below[:3]
    index.remove(set(below))
    assert list(index) == [one for one in ended if one[2] >= start]
    assert list(zip(*index.overlapping(start, end), strict=True)) == told


def test_one_that_is_open_again_is_looked_for_further() -> None:
    """Its marker was in a file that is damaged, so the last stable offset fell."""
    index = Aborted()
    for last, first, stable in ((10, 5, 11), (20, 15, 21), (30, 2, 31), (40, 3, 12)):
        row = aborted_row(1, last, last, first, stable).value
        assert row is not None
        index.add(last, row)
    assert list(index.overlapping(0, 4)[0]) == [30, 40]


def test_they_go_with_the_log_start(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    for _ in range(3):
        producer.send(partition)
        producer.abort()
    store.delete_records(partition, 3)
    store.flush()
    assert aborted(store, partition) == [(5, 0), (5, 2), (5, 4)]
    assert aborted(store, partition, 3) == [(5, 2), (5, 4)]
    store.configure([partition.number], store.settings(partition.number))
    for now in range(100_000, 160_000, 1000):
        store.tick(now)
    assert aborted(store, partition) == [(5, 2), (5, 4)]
    assert len(list(store.scan(Table.ABORTED))) == 2


def test_they_go_with_the_partition(store: Store, partition: Partition) -> None:
    producer = Producer(store)
    producer.send(partition)
    producer.abort()
    producer.send(partition)
    store.tick(1)
    killed = crash_copy(store.folder.path, store.folder.path.with_name("before"))
    store.change(store.drop_partitions([partition.number]))
    store.flush()
    after = crash_copy(store.folder.path, store.folder.path.with_name("after"))
    store.tick(2)
    assert list(store.scan(Table.ABORTED)) == []
    assert list(store.open_transactions()) == []
    for copy, count in ((killed, 1), (after, 0)):
        again = open_store(copy)
        assert len(list(again.open_transactions())) == count
        assert len(again.producers) == count
        again.close()


# ------------------------------------------------------------------------- one producer's history


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.booleans()), max_size=20),
    st.integers(0, 60),
)
def test_what_was_true_below_an_offset(steps: list[tuple[bool, int, bool]], back: int) -> None:
    """Whatever was committed meanwhile: after a failed commit the rest is as it was."""
    history = History()
    seen: list[tuple[int, int]] = []  # behind this offset, this is open
    offset = committed = 0
    for begins, gap, commits in steps:
        if begins:
            history.begin(offset, committed, 1)
        else:
            history.end(offset, 0, committed, 1)
        seen.append((offset, offset if begins else -1))
        offset += gap
        if commits:
            committed = offset
    end = max(committed, offset - back)
    wanted = [first for at, first in seen if at < end]
    moment = history.at(end)
    assert (None if moment is None else moment.first) == (wanted[-1] if wanted else None)
    assert history.waits(end) == any(at >= end for at, _ in seen)
    history.rollback(end)
    assert history.open == (wanted[-1] if wanted else -1)


def test_a_marker_is_found_by_its_time(store: Store, partition: Partition) -> None:
    """It is a record like any other to who looks for an offset by time."""
    producer = Producer(store)
    producer.send(partition)
    store.write_markers([marker(partition)], [], 5000)
    store.flush()
    found: list[object] = []
    store.offset_for_timestamp(partition, 4000, found.append)
    store.offset_of_max_timestamp(partition, found.append)
    assert found == [(1, 5000), (1, 5000)]
    assert [row.timestamp for row in records(read_batches(store, partition)[1][1])] == [5000]
