"""Markers in the log: Kafka's bytes, and what one may do with and without a write before it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.log.logkit import (
    append,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    with_options,
)
from tests.log.transactionkit import Producer, aborted, marker

from ottla.log.options import Change, Table
from ottla.log.partition import Partition
from ottla.log.store import Store
from ottla.log.transactions import (
    Marker,
    MarkerRefused,
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


def refused(store: Store, *markers: Marker) -> MarkerRefused:
    with pytest.raises(MarkerRefused) as caught:
        store.write_markers(markers, [Change(Table.TRANSACTIONS, b"k", b"v")], 1)
    return caught.value


# --------------------------------------------------------------------------------------- the marker


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


# ----------------------------------------------------------------------------- what a marker may do


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
