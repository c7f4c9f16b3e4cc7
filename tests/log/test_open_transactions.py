"""Transactions that are open: how far readers of committed records get, what producers are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.log.logkit import (
    append,
    make_batch,
    put,
)
from tests.log.transactionkit import Producer, aborted, marker

from ottla.log.partition import Partition
from ottla.log.producers import ProducerState
from ottla.log.store import Store
from ottla.log.transactions import (
    History,
)
from ottla.wire.errors import Error, KafkaError


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


def test_what_is_told_of_producers(store: Store, partition: Partition) -> None:
    put(store, partition, make_batch(2, producer=(1, 0, 0), time=50))
    two = Producer(store, 2)
    two.admit(partition)
    assert list(store.producers_of(partition)) == [ProducerState(1, 0, 1, 51, -1, -1)]
    store.flush()
    assert list(store.producers_of(partition))[1] == ProducerState(2, 0, 0, 1000, -1, 2)
    store.write_markers([marker(partition, 2, 0, coordinator_epoch=3)], [], 2000)
    store.flush()
    assert list(store.producers_of(partition))[1] == ProducerState(2, 0, 0, 2000, 3, -1)
    two.send(partition)
    assert list(store.producers_of(partition))[1] == ProducerState(2, 0, 1, 1000, 3, 4)
    store.write_markers([marker(partition, 2, 1, coordinator_epoch=3, version=2)], [], 3000)
    store.flush()
    assert list(store.producers_of(partition))[1] == ProducerState(2, 1, -1, 3000, 3, -1)


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
