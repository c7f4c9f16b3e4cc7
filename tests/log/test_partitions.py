"""Partitions: numbers, drops while batches are under way, log starts, leader epochs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.log.logkit import (
    append,
    commit,
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    with_options,
)

from ottla.log.compaction import cleaned_row
from ottla.log.options import Change, PartitionSettings, Table
from ottla.log.partition import KEY, partition_row
from ottla.log.store import Committed, Store
from ottla.log.transactions import aborted_row
from ottla.wire.errors import Error, KafkaError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "log")
    yield made
    made.close()


def test_numbers_are_never_given_out_twice(tmp_path: Path) -> None:
    path = tmp_path / "log"
    seen: set[int] = set()
    for life in range(3):
        store = open_store(path)
        partitions = new_partitions(store, 3)
        numbers = {p.number for p in partitions}
        assert not numbers & seen
        seen |= numbers
        commit(store, store.drop_partitions(numbers))
        killed = crash_copy(path, tmp_path / f"killed-{life}")
        store.close()
        path = killed


def test_uncommitted_partitions_are_not_there(store: Store) -> None:
    numbers, changes = store.new_partitions(1, PartitionSettings())
    ticket = store.change(changes)
    with pytest.raises(KeyError):
        store.partition(numbers[0])
    store.flush()
    assert ticket.done
    assert store.partition(numbers[0]).log_end_offset == 0


def test_drop_with_batches_under_way(store: Store) -> None:
    """The drop and batches for it wait for the same commit, or for the next."""
    a, b = new_partitions(store, 2)
    before = append(store, a, make_batch(producer=(4, 0, 0)))
    drop = store.change(store.drop_partitions([a.number]))
    after = append(store, a, make_batch(producer=(4, 0, 1)))
    kept = append(store, b, make_batch())
    store.flush()
    for ticket in (before.ticket, drop, after.ticket, kept.ticket):
        assert ticket.done
        assert ticket.error is None
    with pytest.raises(KafkaError) as caught:
        append(store, a, make_batch())
    assert caught.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KeyError):
        store.partition(a.number)
    store.tick(10)
    assert list(store.scan(Table.PRODUCERS)) == []
    assert b.high_watermark == 1


def test_drop_takes_rows_of_the_log_along(store: Store) -> None:
    a, b = new_partitions(store, 2)
    for partition in (a, b):
        put(store, partition, make_batch(producer=(4, 0, 0)))
    store.tick(10)
    assert len(list(store.scan(Table.PRODUCERS))) == 2
    commit(store, store.drop_partitions([a.number]))
    store.tick(20)
    assert [key[: KEY.size] for key, _ in store.scan(Table.PRODUCERS)] == [KEY.pack(b.number)]


@pytest.mark.parametrize("together", [True, False], ids=["same commit", "later commit"])
def test_nothing_queued_behind_a_drop_writes_a_row_of_the_partition(
    tmp_path: Path, together: bool
) -> None:
    """DeleteRecords, retention, a compaction, an aborted transaction: each knew the partition."""
    store = open_store(tmp_path / "log")
    gone, kept = new_partitions(store, 2)
    number = gone.number
    for partition in (gone, kept):
        put(store, partition, make_batch(3, producer=(4, 0, 0)))
    drop = store.drop_partitions([number])
    behind = [
        partition_row(number, 0, 2, 0),
        cleaned_row(number, 1, -1),
        aborted_row(number, 2, 4, 0, 3),
        Change(Table.EPOCHS, KEY.pack(number) + b"\0\0\0\1", bytes(8)),
    ]
    if together:
        store.change(drop)
        store.delete_records(gone, 2)
        commit(store, behind)
    else:
        commit(store, drop)
        store.tick(1)
        commit(store, behind)
    paths = [crash_copy(store.folder.path, tmp_path / "killed"), store.folder.path]
    store.close()  # writes a checkpoint
    for path in paths:
        opened = open_store(path)
        with pytest.raises(KeyError):
            opened.partition(number)
        for table in (Table.PARTITIONS, Table.EPOCHS, Table.CLEANED, Table.ABORTED):
            assert not [key for key, _ in opened.scan(table, KEY.pack(number))], table.name
        assert opened.partition(kept.number).high_watermark == 3
        opened.close()


def test_log_start_of_a_deleted_partition_is_not_moved(store: Store) -> None:
    (a,) = new_partitions(store)
    put(store, a, make_batch(3))
    commit(store, store.drop_partitions([a.number]))
    with pytest.raises(KafkaError) as caught:
        store.delete_records(a, 2)
    assert caught.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION


def test_bytes_of_a_deleted_partition_are_freed_though_its_start_was_moved(store: Store) -> None:
    (a,) = new_partitions(store)
    put(store, a, make_batch(3, size=30_000))
    store.roll()
    store.change(store.drop_partitions([a.number]))
    store.delete_records(a, 2)
    store.flush()
    for now in range(0, 1_000_000, 1000):
        store.tick(now)
    assert not store.layout.sealed


def test_log_start_only_rises(store: Store) -> None:
    (a,) = new_partitions(store)
    put(store, a, make_batch(10))
    append(store, a, make_batch(5))
    for offset in (-2, 11, 15):
        with pytest.raises(KafkaError) as caught:
            store.delete_records(a, offset)
        assert caught.value.error is Error.OFFSET_OUT_OF_RANGE
    store.delete_records(a, 4)
    assert a.log_start_offset == 0, "not before the commit"
    store.delete_records(a, 3)
    store.flush()
    assert a.log_start_offset == 4
    assert store.delete_records(a, 2).done
    assert a.log_start_offset == 4
    store.delete_records(a, -1)
    store.flush()
    assert a.log_start_offset == 15
    assert read_batches(store, a) == []


def test_log_start_survives_and_so_does_the_end_of_an_emptied_log(tmp_path: Path) -> None:
    store = open_store(tmp_path / "log")
    (a,) = new_partitions(store)
    put(store, a, make_batch(10))
    store.delete_records(a, -1)
    store.flush()
    store.roll()
    store.tick(1)
    store.tick(10_000)
    assert not store.layout.sealed, "nothing in it was alive"
    store.close()
    store = open_store(tmp_path / "log")
    partition = store.partition(a.number)
    assert (partition.log_start_offset, partition.log_end_offset) == (10, 10)
    assert put(store, partition, make_batch()) == 10
    store.close()


def test_epoch_end(store: Store) -> None:
    """As OffsetForLeaderEpoch answers: KIP-320."""
    (a,) = new_partitions(store)
    put(store, a, make_batch(10))
    append(store, a, make_batch(3))
    assert store.epoch_end(a, -1) == (-1, -1)
    assert store.epoch_end(a, 0) == (0, 10)
    assert store.epoch_end(a, 1) == (-1, -1)
    store.flush()
    row = partition_row(a.number, 5, 0, 0)
    key = KEY.pack(a.number)
    epochs = [
        Change(Table.EPOCHS, key + epoch.to_bytes(4, "big"), start.to_bytes(8, "little"))
        for epoch, start in ((2, 13), (5, 20))
    ]
    commit(store, [row, *epochs])
    assert a.leader_epoch == 5
    for epoch, answer in (
        (0, (0, 13)), (1, (0, 13)), (2, (2, 20)), (4, (2, 20)), (5, (5, 13)), (6, (-1, -1)),
    ):  # fmt: skip
        assert store.epoch_end(a, epoch) == answer


def test_batches_carry_offset_and_leader_epoch(store: Store) -> None:
    (a,) = new_partitions(store)
    commit(store, [partition_row(a.number, 3, 0, 0)])
    put(store, a, make_batch(2))
    put(store, a, make_batch(2))
    (_, _), (base, batch) = read_batches(store, a)
    assert base == 2
    assert int.from_bytes(batch[12:16], "big") == 3


def test_read_only_batches_are_copied(store: Store) -> None:
    (a,) = new_partitions(store)
    put(store, a, make_batch())
    frozen = bytes(make_batch(fill=9))
    appended = append(store, a, frozen)  # type: ignore[arg-type] # what a caller may do
    view = memoryview(frozen)
    append(store, a, view)  # type: ignore[arg-type] # the same
    store.flush()
    assert appended.base_offset == 1
    assert [base for base, _ in read_batches(store, a)] == [0, 1, 2]
    assert int.from_bytes(frozen[:8], "big") == 0


def test_listeners_hear_what_moved(store: Store) -> None:
    heard: list[Committed] = []
    a, b = new_partitions(store, 2)
    store.listen(heard.append)
    append(store, a, make_batch())
    append(store, a, make_batch())
    change = Change(Table.TOPICS, b"x", b"y")
    store.change([change])
    store.flush()
    put(store, b, make_batch())
    assert [[p.number for p in h.partitions] for h in heard] == [[a.number], [b.number]]
    assert [list(h.changes) for h in heard] == [[change], []]


def test_keys_have_a_limit(store: Store) -> None:
    store.change([Change(Table.TOPICS, b"x" * 500, b"y")])
    with pytest.raises(ValueError, match="501 bytes"):
        store.change([Change(Table.TOPICS, b"x" * 501, b"y")])
    store.flush()
    store.tick(1)
    assert store.get(Table.TOPICS, b"x" * 500) == b"y"


def test_many_partitions_start_without_a_look_at_each(tmp_path: Path) -> None:
    store = open_store(tmp_path / "log", options=with_options(segment_bytes=64 << 20))
    partitions = new_partitions(store, 3000)
    for partition in partitions[::7]:
        append(store, partition, make_batch())
    store.flush()
    killed = crash_copy(tmp_path / "log", tmp_path / "killed")
    store.close()
    store = open_store(killed)
    assert not store.partitions._views
    ends = [store.partition(p.number).high_watermark for p in partitions]
    assert ends == [1 if i % 7 == 0 else 0 for i in range(3000)]
    store.close()
