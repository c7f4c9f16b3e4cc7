"""Compaction of transactions: what was aborted goes, what is open stays, and a marker stays as long
as it marks something. Kafka's Cleaner and CleanedTransactionMetadata."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.log.compactkit import COMPACT, OPTIONS, CompactedLog
from tests.log.logkit import crash_copy, open_store, put, scratch
from tests.log.transactionkit import aborted, marker

from ottla.log.layout import Missing
from ottla.log.options import Table
from ottla.log.partition import Partition
from ottla.wire.records import TRANSACTIONAL, Record, build_batch

DAY = COMPACT.delete_retention_ms
#: Producers are remembered for longer than it takes a marker to go.
PATIENT = replace(OPTIONS, producer_id_expiration_ms=100 * DAY)


class TransactionalLog(CompactedLog):
    """Keys and values by producers with transactions; the model of the kit is not for them."""

    def __init__(self, path: Path, count: int = 1) -> None:
        super().__init__(path, options=PATIENT, count=count)
        self.expected = {}
        self.sequences: dict[tuple[int, int], int] = {}

    def write(self, producer_id: int, *pairs: str, epoch: int = 0) -> int:
        """`k=v`, or `k` for a tombstone; producer -1 is a plain one. The base offset."""
        rows = []
        for index, pair in enumerate(pairs):
            key, there, value = pair.partition("=")
            rows.append(Record(index, self.now, key.encode(), value.encode() if there else None))
        sequence = -1
        if producer_id >= 0:
            sequence = self.sequences.get((producer_id, epoch), 0)
            self.sequences[producer_id, epoch] = sequence + len(rows)
        batch = build_batch(
            rows,
            producer_id=producer_id,
            producer_epoch=epoch if producer_id >= 0 else -1,
            base_sequence=sequence,
            attributes=TRANSACTIONAL if producer_id >= 0 else 0,
        )
        return put(self.store, self.partition(), batch, self.now)

    def end(self, producer_id: int, committed: bool, *, epoch: int = 0, version: int = 1) -> int:
        """The marker's offset."""
        at = self.partition().high_watermark
        one = marker(self.partition(), producer_id, epoch, committed=committed, version=version)
        self.store.write_markers([one], [], self.now)
        self.store.flush()
        return at

    def pass_(self) -> None:
        """Seal, and compact."""
        self.roll()
        self.compact()

    def offsets(self) -> dict[int, int]:
        """Base offset of each batch, and its record count."""
        return {header.base_offset: header.record_count for header, _ in self.batches()}

    def values(self) -> dict[bytes | None, bytes | None]:
        """What a read_committed consumer ends up with, up to the last stable offset."""
        partition = self.partition()
        end = partition.last_stable_offset
        told = self.store.aborted(partition, partition.log_start_offset, end)
        starts = sorted((first, producer_id) for producer_id, first in zip(*told, strict=True))
        found: dict[bytes | None, bytes | None] = {}
        dropping: set[int] = set()
        for header, rows in self.batches():
            if header.base_offset >= end:
                break
            while starts and starts[0][0] <= header.last_offset:
                dropping.add(starts.pop(0)[1])
            if header.is_control:
                if rows and rows[0].key == b"\0\0\0\0":
                    dropping.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropping):
                found.update((row.key, row.value) for row in rows)
        return {key: value for key, value in found.items() if value is not None}


@contextmanager
def made() -> Iterator[TransactionalLog]:
    folder = scratch("ottla-compaction-")
    log = TransactionalLog(folder / "data")
    try:
        yield log
    finally:
        log.store.close()
        shutil.rmtree(folder)


@pytest.fixture
def log() -> Iterator[TransactionalLog]:
    with made() as log:
        yield log


def test_what_was_aborted_goes_and_stands_against_nothing(log: TransactionalLog) -> None:
    log.write(-1, "a=1", "b=1")  # 0
    log.write(5, "a=2")  # 2
    log.write(5, "c=2")  # 3
    log.end(5, False)  # 4
    log.write(5, "b=3")  # 5
    log.end(5, True)  # 6
    log.write(-1, "z=1")  # 7
    assert log.values() == {b"a": b"1", b"b": b"3", b"z": b"1"}
    log.pass_()
    assert log.values() == {b"a": b"1", b"b": b"3", b"z": b"1"}
    assert log.offsets() == {0: 1, 4: 1, 5: 1, 6: 1, 7: 1}


def test_what_is_open_is_not_looked_at(log: TransactionalLog) -> None:
    log.write(-1, "a=1")  # 0
    log.write(-1, "a=2")  # 1
    log.write(5, "a=3")  # 2
    log.write(-1, "a=4")  # 3
    log.pass_()
    assert log.offsets() == {1: 1, 2: 1, 3: 1}
    assert log.row()[0] == 2
    log.pass_()
    assert log.row()[0] == 2, "nothing new before the last stable offset"
    log.end(5, False)
    log.pass_()
    # Its last batch is the producer's last too, and stays without records.
    assert log.offsets() == {2: 0, 3: 1, 4: 1}
    assert log.values() == {b"a": b"4"}


def test_nothing_is_due_behind_an_open_transaction(log: TransactionalLog) -> None:
    log.write(5, "a=1")
    log.write(-1, "a=2")
    log.roll()
    touched: list[str] = []
    log.step = touched.append
    for _ in range(3):
        log.compact()
    assert [name for name in touched if name.startswith(("rewrite", "commit"))] == []


def test_a_marker_stays_until_its_horizon(log: TransactionalLog) -> None:
    log.write(5, "a=1")  # 0
    log.end(5, False)  # 1
    log.write(5, "b=1")  # 2
    log.end(5, True)  # 3
    log.write(5, "c=1")  # 4: the producer's last
    log.end(5, True)  # 5
    log.write(-1, "b=2", "c=2")  # 6
    log.pass_()
    horizon = log.now + DAY
    # The abort has nothing to mark any more; the first commit still had when this pass began.
    assert log.offsets() == {1: 1, 3: 1, 4: 0, 5: 1, 6: 2}
    assert log.row()[1] == horizon
    assert aborted(log.store, log.partition()) == [(5, 0)]
    log.write(-1, "d=1")  # 8
    log.pass_()
    second = log.now + DAY
    assert log.offsets() == {1: 1, 3: 1, 4: 0, 5: 1, 6: 2, 8: 1}
    assert log.row()[1] == second
    log.wait(DAY)
    log.compact()  # by itself: the horizon makes it due
    assert log.offsets() == {4: 0, 5: 1, 6: 2, 8: 1}
    assert aborted(log.store, log.partition()) == []
    assert list(log.store.scan(Table.ABORTED)) == []
    assert log.row()[1] == -1
    log.reopen()
    assert log.values() == {b"b": b"2", b"c": b"2", b"d": b"1"}


def test_a_marker_that_alone_tells_an_epoch_stays_empty(log: TransactionalLog) -> None:
    log.write(5, "a=1")  # 0
    log.end(5, False, epoch=1, version=2)  # 1
    log.write(-1, "b=1")  # 2
    log.pass_()
    assert log.offsets() == {1: 1, 2: 1}
    log.wait(DAY)
    log.compact()
    assert log.offsets() == {1: 0, 2: 1}
    assert aborted(log.store, log.partition()) == []
    log.reopen()
    (state,) = log.store.producers_of(log.partition())
    assert (state.producer_id, state.producer_epoch) == (5, 1)
    log.write(5, "b=2", epoch=1)
    log.end(5, True, epoch=2, version=2)
    log.write(-1, "b=3")
    log.pass_()
    assert 1 not in log.offsets()


def test_tombstones_of_committed_transactions(log: TransactionalLog) -> None:
    log.write(5, "a=1")  # 0
    log.write(5, "a")  # 1
    log.end(5, True)  # 2
    log.write(-1, "b=1")  # 3
    log.pass_()
    assert log.offsets() == {1: 1, 2: 1, 3: 1}
    log.wait(DAY)
    log.compact()
    assert log.offsets() == {1: 0, 2: 1, 3: 1}, "it is the producer's last batch"


def test_nothing_goes_for_good_while_files_are_missing(log: TransactionalLog) -> None:
    """What was aborted may come back with a repair, and then somebody must know that it was."""
    log.write(5, "a=1")
    log.end(5, False)
    log.write(-1, "b=1")
    log.pass_()
    log.wait(DAY)
    log.store.layout.missing = [Missing(1 << 40, 1 << 40, log.path)]
    log.write(-1, "c=1")
    log.pass_()
    assert log.offsets()[1] == 1
    assert aborted(log.store, log.partition()) == [(5, 0)]
    log.store.layout.missing = []


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.sampled_from("abc"), st.booleans()),
        st.tuples(st.just("write"), st.sampled_from("abc"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["end", "end and raise"]), st.booleans(), st.integers(1, 3)),
        st.tuples(st.sampled_from(["pass", "wait", "reopen", "kill"]), st.none(), st.none()),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_a_reader_sees_the_same_before_and_after(steps: list[tuple[str, object, object]]) -> None:
    """Whatever comes when: the values that a read_committed consumer ends up with."""
    with made() as log:
        run(log, steps)
        before = log.values()
        log.pass_()
        assert log.values() == before


def run(log: TransactionalLog, steps: list[tuple[str, object, object]]) -> None:
    open_ones: set[int] = set()
    epochs = dict.fromkeys(range(1, 4), 0)
    for count, (kind, first, second) in enumerate(steps):
        if kind == "plain":
            log.write(-1, f"{first}={count}" if second else str(first))
        elif kind == "write":
            assert isinstance(second, int)
            log.write(second, f"{first}={count}", epoch=epochs[second])
            open_ones.add(second)
        elif kind.startswith("end") and second in open_ones:
            assert isinstance(second, int)
            raises = kind != "end"
            epochs[second] += raises
            log.end(second, bool(first), epoch=epochs[second], version=1 + raises)
            open_ones.discard(second)
        elif kind == "wait":
            log.wait(DAY)
        elif kind == "reopen":
            log.reopen()
        elif kind == "kill":
            log.crash(log.path.with_name(f"data-{count}"))
        elif kind == "pass":
            before = log.values()
            log.pass_()
            assert log.values() == before


def test_a_kill_at_every_step(log: TransactionalLog) -> None:
    """Of two passes, the second of which lets markers go."""
    root = log.path.with_name("copies")
    log.write(5, "a=1", "b=1")
    log.end(5, False)
    log.roll()
    log.write(5, "a=2")
    log.end(5, True)
    log.roll()
    log.write(6, "b=2")
    log.end(6, False)
    log.write(-1, "a=3", "c=1")
    wanted = log.values()
    copies: list[Path] = []

    def step(name: str) -> None:
        copies.append(crash_copy(log.path, root / f"{len(copies):03d}"))

    log.step = step
    log.pass_()
    log.wait(DAY)
    log.write(-1, "d=1")
    log.pass_()
    log.step = lambda name: None
    assert aborted(log.store, log.partition()) == [(6, 5)], "its header stays, as the last one's"
    number = log.number
    log.store.close()
    for copy in copies:
        store = open_store(copy, options=PATIENT, now_ms=log.now)
        log.store = store
        log.path = copy
        log.configure(COMPACT)
        partition: Partition = store.partition(number)
        values = log.values()
        values.pop(b"d", None)
        assert values == wanted, copy.name
        assert partition.last_stable_offset == partition.high_watermark
        log.pass_()
        values = log.values()
        values.pop(b"d", None)
        assert values == wanted, copy.name
        store.close()
    log.store = open_store(copies[0], options=PATIENT, now_ms=log.now)
