"""Idempotent producers: each answer is Apache Kafka 4.3.1's to the same sequence of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.log.options import Change, Table
from ottla.log.producer import BATCHES_KEPT, Duplicate
from ottla.log.producer_ids import BLOCK, KEY, ProducerIds
from ottla.log.producers import Producers
from ottla.log.tickets import Ticket
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import BatchHeader

LAST = 2147483647
DAY = 86_400_000
FENCED = Error.INVALID_PRODUCER_EPOCH
GAP = Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def header_of(
    producer_id: int, epoch: int, first: int, count: int = 1, *, offset: int = 0, time: int = 0
) -> BatchHeader:
    return BatchHeader(
        offset, 100, 0, 2, 0, 0, count - 1, time, time, producer_id, epoch, first, count
    )


class Log:
    """One partition's worth of a store: gives out offsets, commits, keeps what is on disk."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.rows: dict[bytes, bytes] = {}
        self.end = self.committed = self.applied = 0
        self.batches: list[tuple[BatchHeader, int]] = []
        self.now = 1_000_000

    def send(
        self, producer_id: int, epoch: int, first: int, count: int = 1, time: int = 0
    ) -> int | Error | Duplicate:
        header = header_of(producer_id, epoch, first, count, offset=self.end, time=time)
        try:
            duplicate = self.producers.judge(1, header)
        except KafkaError as error:
            return error.error
        if duplicate is not None:
            return duplicate
        self.producers.record(1, header, self.end, self.committed, self.now)
        self.batches.append((header, self.now))
        self.end += count
        return header.base_offset

    def commit(self) -> None:
        self.committed = self.end

    def fail(self) -> None:
        self.end = self.committed
        self.batches = [row for row in self.batches if row[0].base_offset < self.end]
        self.producers.rollback(lambda number: self.committed)

    def checkpoint(self) -> None:
        for change in self.producers.take_changed(lambda number: self.committed):
            assert change.table is Table.PRODUCERS
            if change.value is None:
                self.rows.pop(change.key, None)
            else:
                self.rows[change.key] = change.value
        self.applied = self.committed

    def restart(self, replay_from: int | None = None) -> None:
        """kill -9: what was not committed is gone, rows are as of the last checkpoint."""
        self.end = self.committed
        self.batches = [row for row in self.batches if row[0].base_offset < self.end]
        self.producers = Producers()
        for key, value in self.rows.items():
            self.producers.load(key, value)
        start = self.applied if replay_from is None else min(replay_from, self.applied)
        for header, now in self.batches:
            if header.base_offset >= start:
                self.producers.replay(1, header, now)


@pytest.fixture
def log() -> Log:
    return Log()


def test_20_repeat_among_the_last_five_is_answered_with_the_first_offset(log: Log) -> None:
    assert log.send(5, 0, 0, 3, time=77) == 0
    assert log.send(5, 0, 0, 3, time=99) == Duplicate(0, 77)
    for i in range(4):
        assert log.send(5, 0, 3 + i) == 3 + i
    assert log.send(5, 0, 0, 3) == Duplicate(0, 77)
    assert log.send(5, 0, 7) == 7
    assert log.send(5, 0, 0, 3) == GAP  # the sixth oldest
    assert log.send(5, 0, 3) == Duplicate(3, 0)
    assert log.send(5, 0, 8) == 8


@pytest.mark.parametrize("settle", [Log.commit, Log.checkpoint, lambda log: None])
def test_20_also_while_it_waits_and_after_it_is_committed(
    log: Log, settle: Callable[[Log], None]
) -> None:
    for i in range(9):
        log.send(5, 0, i)
        settle(log)
    assert [log.send(5, 0, i) for i in range(9)] == [GAP] * 4 + [
        Duplicate(i, 0) for i in range(4, 9)
    ]


def test_only_the_very_same_range_is_a_repeat(log: Log) -> None:
    log.send(5, 0, 0, 5)
    log.send(5, 0, 5, 3)
    for first, count in ((5, 2), (6, 2), (5, 4), (4, 4), (0, 8), (0, 4)):
        assert log.send(5, 0, first, count) == GAP
    assert log.send(5, 0, 0, 5) == Duplicate(0, 0)


def test_gap(log: Log) -> None:
    log.send(5, 0, 0)
    assert log.send(5, 0, 2) == GAP
    assert log.send(5, 0, LAST) == GAP
    assert log.send(5, 0, 1) == 1


def test_21_sequence_after_the_largest_is_zero(log: Log) -> None:
    assert log.send(1, 0, LAST) == 0
    assert log.send(1, 0, LAST) == Duplicate(0, 0)
    assert log.send(1, 0, 0) == 1
    assert log.send(1, 0, LAST) == Duplicate(0, 0)
    assert log.send(2, 0, LAST - 1, 3) == 2  # ends at 0
    assert log.send(2, 0, LAST - 1, 3) == Duplicate(2, 0)
    assert log.send(2, 0, LAST) == GAP
    assert log.send(2, 0, 0) == GAP
    assert log.send(2, 0, 1) == 5


def test_21_new_epoch_starts_at_zero(log: Log) -> None:
    log.send(5, 0, 0)
    assert log.send(5, 1, 1) == GAP
    assert log.send(5, 1, 5) == GAP
    assert log.send(5, 1, 0) == 1
    assert log.send(5, 1, 0) == Duplicate(1, 0)
    assert log.send(5, 3, 0) == 2


def test_21_any_sequence_without_state(log: Log) -> None:
    assert log.send(5, 4, 1234) == 0
    assert log.send(5, 4, 1236) == GAP
    assert log.send(5, 4, 1235) == 1


def test_22_old_epoch_is_fenced(log: Log) -> None:
    log.send(5, 7, 0)
    for sequence in (0, 1, 9):
        assert log.send(5, 6, sequence) == FENCED
    assert log.send(5, 8, 0) == 1
    assert log.send(5, 7, 1) == FENCED
    assert log.send(5, 7, 0) == FENCED  # a repeat, but of an epoch that is over


def test_epoch_minus_one_is_no_epoch(log: Log) -> None:
    assert log.send(4, -1, 0) == 0
    assert log.send(4, -1, 9) == 1
    assert log.send(4, -1, 9) == Duplicate(1, 0)
    assert log.send(4, 0, 3) == 2
    assert log.send(4, -1, 10) == FENCED
    assert log.send(9, -2, 0) == FENCED


def test_producers_and_partitions_do_not_mix(log: Log) -> None:
    log.send(5, 0, 0)
    assert log.send(6, 0, 9) == 1
    assert log.producers.judge(2, header_of(5, 0, 44)) is None
    assert len(log.producers) == 2


# -------------------------------------------------------------------------------- failed, restarted


def test_a_failed_commit_takes_back_what_waited_for_it(log: Log) -> None:
    for i in range(7):
        log.send(5, 0, i)
    log.commit()
    for i in range(7, 20):
        log.send(5, 0, i)
    log.send(6, 0, 0)
    log.fail()
    assert log.send(5, 0, 8) == GAP
    assert log.send(5, 0, 2) == Duplicate(2, 0)  # all five are back, however many waited
    assert log.send(5, 0, 1) == GAP
    assert log.send(5, 0, 7) == 7
    assert log.send(6, 0, 55) == 8  # nothing of it was ever true


def test_a_failed_commit_takes_back_a_new_epoch(log: Log) -> None:
    log.send(5, 0, 0)
    log.commit()
    log.send(5, 1, 0)
    log.checkpoint()
    log.fail()
    assert log.send(5, 0, 1) == 1
    log.commit()
    log.restart()
    assert log.send(5, 0, 0) == Duplicate(0, 0)
    assert log.send(5, 0, 2) == 2


def test_a_checkpoint_holds_only_what_is_committed(log: Log) -> None:
    for i in range(6):
        log.send(5, 0, i, time=i)
    log.commit()
    for i in range(6, 12):
        log.send(5, 0, i)
    log.send(6, 0, 0)
    log.checkpoint()
    log.restart()
    assert log.send(5, 0, 1) == Duplicate(1, 1)
    assert log.send(5, 0, 0) == GAP
    assert log.send(5, 0, 6) == 6
    assert log.send(6, 3, 9) == 7


def test_what_waited_during_a_checkpoint_is_in_the_next(log: Log) -> None:
    log.send(5, 0, 0)
    log.checkpoint()
    assert log.rows == {}
    log.commit()
    log.checkpoint()
    assert len(log.rows) == 1
    assert log.producers.take_changed(lambda number: log.committed) == []
    log.batches.clear()
    log.restart()
    assert log.send(5, 0, 0) == Duplicate(0, 0)


@pytest.mark.parametrize("replay_from", range(10))
def test_replaying_twice_is_harmless(log: Log, replay_from: int) -> None:
    for i in range(10):
        log.send(5, 0, i)
        log.commit()
        if i == 6:
            log.checkpoint()
    log.restart(replay_from)
    assert [log.send(5, 0, i) for i in range(11)] == (
        [GAP] * 5 + [Duplicate(i, 0) for i in range(5, 10)] + [10]
    )


def test_a_row_that_is_not_ours(log: Log) -> None:
    log.send(5, 0, 0)
    log.commit()
    log.checkpoint()
    ((key, value),) = log.rows.items()
    for bad in (value[:-1], value + b"x", b"\x07" + value[1:]):
        with pytest.raises(ValueError, match="producer row"):
            Producers().load(key, bad)


# ------------------------------------------------------------------------------------------- expiry


def test_expired_producers_may_start_anywhere(log: Log) -> None:
    log.send(5, 0, 0)
    log.commit()
    log.checkpoint()
    log.now += DAY // 2
    log.send(6, 0, 0)
    assert not log.producers.expire(log.now + DAY // 2 - 1, DAY)
    assert len(log.producers) == 2
    assert not log.producers.expire(log.now + DAY // 2, DAY)
    assert len(log.producers) == 1
    assert log.send(5, 0, 99) == 2
    assert log.send(6, 0, 99) == GAP
    log.fail()
    log.checkpoint()
    assert log.rows == {}


def test_sending_keeps_a_producer_alive_over_a_restart(log: Log) -> None:
    log.send(5, 0, 0)
    log.commit()
    log.now += DAY - 1
    log.send(5, 0, 1)
    log.commit()
    log.checkpoint()
    log.restart()
    log.producers.expire(log.now + DAY - 1, DAY)
    assert log.send(5, 0, 2) == 2
    log.producers.expire(log.now + DAY, DAY)
    assert len(log.producers) == 0


def test_expiry_goes_in_slices(log: Log) -> None:
    for producer_id in range(25):
        log.send(producer_id, 0, 0)
    slices = 1
    while log.producers.expire(log.now + DAY, DAY, budget=10):
        slices += 1
        log.send(100 + slices, 0, 0)
    assert slices == 3
    assert len(log.producers) == 2


def test_a_dropped_partition_takes_its_rows_along(log: Log) -> None:
    log.send(5, 0, 0)
    log.commit()
    log.checkpoint()
    log.producers.drop_partition(1)
    assert len(log.producers) == 0
    log.checkpoint()
    assert log.rows == {}


# ---------------------------------------------------------------------------------- against a model


class Sent(NamedTuple):
    offset: int
    producer_id: int
    epoch: int
    first: int
    records: int
    time: int

    @property
    def last(self) -> int:
        return (self.first + self.records - 1) % (LAST + 1)


class Machine(RuleBasedStateMachine):
    """Sends, commits, failures, checkpoints and kills in any order, against the whole history."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.history: list[Sent] = []
        self.clock = 0

    def expected(self, sent: Sent) -> int | Error | Duplicate:
        own = [row for row in self.history if row.producer_id == sent.producer_id]
        if not own:
            return sent.offset
        epoch = own[-1].epoch
        if sent.epoch < epoch:
            return FENCED
        if sent.epoch > epoch:
            return sent.offset if sent.first == 0 else GAP
        for row in [row for row in own if row.epoch == epoch][-BATCHES_KEPT:]:
            if (row.first, row.last) == (sent.first, sent.last):
                return Duplicate(row.offset, row.time)
        return sent.offset if sent.first == (own[-1].last + 1) % (LAST + 1) else GAP

    @rule(
        producer_id=st.integers(0, 2),
        jump=st.sampled_from((0, 0, 0, 0, 1)),
        step=st.sampled_from((0, 0, 0, 0, 0, -1, -2, -5, 1)),
        count=st.integers(1, 3),
        fresh=st.sampled_from((0, 5, LAST - 3, LAST)),
    )
    def send(self, producer_id: int, jump: int, step: int, count: int, fresh: int) -> None:
        self.clock += 1
        own = [row for row in self.history if row.producer_id == producer_id]
        epoch, first = 3, fresh
        if own:
            epoch = own[-1].epoch + jump
            first = 0 if jump else own[-1].last + 1 + step
        sent = Sent(self.log.end, producer_id, epoch, first % (LAST + 1), count, self.clock)
        self.try_it(sent)

    @rule(data=st.data(), old=st.booleans())
    @precondition(lambda self: self.history)
    def repeat(self, data: st.DataObject, old: bool) -> None:
        choice = self.history if old else self.history[-8:]
        self.try_it(data.draw(st.sampled_from(choice))._replace(offset=self.log.end))

    def try_it(self, sent: Sent) -> None:
        expected = self.expected(sent)
        found = self.log.send(sent.producer_id, sent.epoch, sent.first, sent.records, sent.time)
        assert found == expected
        if expected == sent.offset and not isinstance(expected, Duplicate | Error):
            self.history.append(sent)

    @rule()
    def commit(self) -> None:
        self.log.commit()

    @rule()
    def fail(self) -> None:
        self.log.fail()
        self.forget()

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()

    @rule(earlier=st.integers(0, 10))
    def kill(self, earlier: int) -> None:
        self.log.restart(max(0, self.log.applied - earlier))
        self.forget()

    def forget(self) -> None:
        self.history = [row for row in self.history if row.offset < self.log.committed]

    @invariant()
    def memory_is_bounded(self) -> None:
        for producers in self.log.producers._partitions.values():
            for producer in producers.values():
                waiting = sum(1 for row in self.history if row.offset >= self.log.committed)
                assert len(producer.batches) // 5 <= 2 * BATCHES_KEPT + waiting


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


# ------------------------------------------------------------------------------------- producer ids


class Rows:
    def __init__(self) -> None:
        self.stored: bytes | None = None
        self.asked: list[tuple[Change, Ticket]] = []

    def change(self, changes: Sequence[Change]) -> Ticket:
        ticket = Ticket()
        self.asked += [(change, ticket) for change in changes]
        return ticket

    def commit(self) -> None:
        for change, ticket in self.asked:
            assert (change.table, change.key) == (Table.CLUSTER, KEY)
            self.stored = change.value
            ticket.settle()
        self.asked.clear()


def test_ids_are_never_given_twice() -> None:
    rows = Rows()
    seen: set[int] = set()
    for _ in range(3):  # each round ends with a kill
        ids = ProducerIds(rows.stored, rows.change)
        for _ in range(BLOCK + 7):
            producer_id, ticket = ids.take()
            rows.commit()
            assert ticket.done
            assert producer_id not in seen
            seen.add(producer_id)
    assert min(seen) == 0


def test_a_block_is_one_commit_and_is_waited_for() -> None:
    rows = Rows()
    ids = ProducerIds(None, rows.change)
    tickets = [ids.take()[1] for _ in range(BLOCK)]
    assert len(rows.asked) == 1
    assert not any(ticket.done for ticket in tickets)
    rows.commit()
    assert all(ticket.done for ticket in tickets)
    assert not ids.take()[1].done
    assert len(rows.asked) == 1


def test_after_a_failed_commit_ids_come_from_a_new_block() -> None:
    rows = Rows()
    ids = ProducerIds(None, rows.change)
    first, _ = ids.take()
    rows.asked.clear()  # it failed: nobody was told of the id
    ids.reset(rows.stored)
    again, ticket = ids.take()
    assert again == first
    rows.commit()
    assert ticket.done
