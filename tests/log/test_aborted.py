"""Aborted transactions: a reader is told of all that overlap; they go with what they are about."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.log.logkit import (
    crash_copy,
    open_store,
)
from tests.log.transactionkit import Producer, aborted

from ottla.log.options import Table
from ottla.log.partition import Partition
from ottla.log.store import Store
from ottla.log.transactions import (
    Aborted,
    aborted_row,
)


def test_aborted_rows_are_as_they_were() -> None:
    row = aborted_row(3, 260, 7, 200, 210)
    assert row.key.hex() == "000000030000000000000104"
    assert row.value is not None
    assert row.value.hex() == "010700000000000000c800000000000000d200000000000000"


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
