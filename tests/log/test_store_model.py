"""Random histories of a store against a plain dict: appends, transactions, changes, rolls,
checkpoints, failed commits, crashes and clean stops, in any order."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.log.logkit import make_batch, open_store, read_batches, scratch

from ottla.log.options import Change, PartitionSettings, Table
from ottla.log.store import Store
from ottla.log.tickets import Ticket
from ottla.log.transactions import Marker, marker_batch
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import TRANSACTIONAL, read_header

TABLES = (Table.TOPICS, Table.OFFSETS, Table.TRANSACTIONS)
TRANSACTIONAL_IDS = (20, 21, 22)


class ModelPartition:
    def __init__(self) -> None:
        self.start = 0
        self.batches: list[tuple[int, int, bytes]] = []  # base, next, bytes
        self.end = 0
        self.sequences: dict[int, int] = {}
        #: First offset of what is open, by producer; and what was aborted: marker, producer, first.
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []

    def copy(self) -> ModelPartition:
        other = ModelPartition()
        other.start, other.end = self.start, self.end
        other.batches = list(self.batches)
        other.sequences = dict(self.sequences)
        other.open = dict(self.open)
        other.aborted = list(self.aborted)
        return other


class Model:
    """What is true, or will be with the next commit."""

    def __init__(self) -> None:
        self.partitions: dict[int, ModelPartition] = {}
        self.rows: dict[tuple[Table, bytes], bytes] = {}
        #: Of the transactional producers.
        self.epochs = dict.fromkeys(TRANSACTIONAL_IDS, 0)

    def copy(self) -> Model:
        other = Model()
        other.partitions = {n: p.copy() for n, p in self.partitions.items()}
        other.rows = dict(self.rows)
        other.epochs = dict(self.epochs)
        return other


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = scratch("ottla-model-")
        self.lives = 0
        self.failing: str | None = None
        self.store = self.open(self.root / "0")
        self.true = Model()
        self.admitted = Model()
        self.tickets: list[Ticket] = []
        self.now_ms = 1000
        self.fill = 0

    def open(self, path: Path) -> Store:
        return open_store(path, step=self.step)

    def step(self, name: str) -> None:
        if name == self.failing:
            self.failing = None
            raise OSError(errno.EIO, "injected")

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)

    # ------------------------------------------------------------------------------- admission

    @initialize(count=st.integers(1, 4))
    def first(self, count: int) -> None:
        self.new_topic(count)

    @rule(count=st.integers(1, 3))
    def new_topic(self, count: int) -> None:
        numbers, changes = self.store.new_partitions(count, PartitionSettings())
        assert not set(numbers) & set(self.true.partitions), "numbers are never given out twice"
        self.tickets.append(self.store.change(changes))
        for number in numbers:
            self.admitted.partitions[number] = ModelPartition()
        self.flush()

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.true.partitions)))
        count = data.draw(st.integers(1, 5))
        size = data.draw(st.sampled_from([0, 30, 700, 3000]))
        producer_id = data.draw(st.sampled_from([-1, -1, 7, 8]))
        mine = self.admitted.partitions.get(number)
        if mine is None:
            return
        self.fill += 1
        sequence = mine.sequences.get(producer_id, 0) if producer_id >= 0 else -1
        batch = make_batch(
            count,
            size=size,
            fill=self.fill,
            time=self.now_ms,
            producer=(producer_id, 0 if producer_id >= 0 else -1, sequence),
        )
        partition = self.store.partition(number)
        done = self.store.append(partition, batch, read_header(batch), self.now_ms)
        assert not done.duplicate
        assert done.base_offset == mine.end
        self.tickets.append(done.ticket)
        mine.batches.append((mine.end, mine.end + count, bytes(batch)))
        mine.end += count
        if producer_id >= 0:
            mine.sequences[producer_id] = sequence + count
            again = self.store.append(partition, batch, read_header(batch), self.now_ms)
            assert again.duplicate
            assert again.base_offset == done.base_offset

    @rule(data=st.data(), producer_id=st.sampled_from(TRANSACTIONAL_IDS))
    def write_in_transaction(self, data: st.DataObject, producer_id: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.true.partitions)))
        mine = self.admitted.partitions.get(number)
        if mine is None:
            return
        count = data.draw(st.integers(1, 3))
        self.fill += 1
        sequence = mine.sequences.get(producer_id, 0)
        batch = make_batch(
            count,
            fill=self.fill,
            time=self.now_ms,
            producer=(producer_id, self.admitted.epochs[producer_id], sequence),
            attributes=TRANSACTIONAL,
        )
        partition = self.store.partition(number)
        assert self.store.open_transaction(partition, producer_id) == mine.open.get(producer_id)
        done = self.store.append(partition, batch, read_header(batch), self.now_ms)
        assert done.base_offset == mine.end
        self.tickets.append(done.ticket)
        mine.open.setdefault(producer_id, mine.end)
        mine.batches.append((mine.end, mine.end + count, bytes(batch)))
        mine.end += count
        mine.sequences[producer_id] = sequence + count

    @rule(
        producer_id=st.sampled_from(TRANSACTIONAL_IDS),
        committed=st.booleans(),
        version=st.sampled_from([1, 2]),
    )
    def end_transaction(self, producer_id: int, committed: bool, version: int) -> None:
        """Markers wherever it wrote, and a row, in one commit."""
        admitted = self.admitted
        epoch = admitted.epochs[producer_id] + (version == 2)
        written = {
            number: mine
            for number, mine in admitted.partitions.items()
            if producer_id in mine.open and number in self.true.partitions
        }
        markers = [
            Marker(self.store.partition(number), producer_id, epoch, 0, committed, version)
            for number in written
        ]
        key, value = b"%d" % producer_id, b"%d" % self.fill
        row = Change(Table.TRANSACTIONS, key, value)
        self.tickets.append(self.store.write_markers(markers, [row], self.now_ms))
        admitted.rows[Table.TRANSACTIONS, key] = value
        admitted.epochs[producer_id] = epoch
        for one, mine in zip(markers, written.values(), strict=True):
            first = mine.open.pop(producer_id)
            if not committed:
                mine.aborted.append((mine.end, producer_id, first))
            epoch_of_leader = one.partition.leader_epoch
            batch = marker_batch(one, mine.end, epoch_of_leader, self.now_ms)
            mine.batches.append((mine.end, mine.end + 1, bytes(batch)))
            mine.end += 1
        if version == 2:
            for mine in admitted.partitions.values():
                mine.sequences.pop(producer_id, None)

    @rule(
        table=st.sampled_from(TABLES),
        key=st.sampled_from([b"", b"a", b"ab", b"b", b"\xff"]),
        value=st.none() | st.binary(max_size=40),
    )
    def change(self, table: Table, key: bytes, value: bytes | None) -> None:
        self.tickets.append(self.store.change([Change(table, key, value)]))
        if value is None:
            self.admitted.rows.pop((table, key), None)
        else:
            self.admitted.rows[table, key] = value

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.true.partitions)))
        mine = self.admitted.partitions.get(number)
        if mine is None:
            return
        end = self.true.partitions[number].end
        offset = data.draw(st.integers(0, end))
        self.tickets.append(self.store.delete_records(self.store.partition(number), offset))
        mine.start = max(mine.start, offset)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        if len(self.admitted.partitions) < 2:
            return
        number = data.draw(st.sampled_from(sorted(self.admitted.partitions)))
        self.tickets.append(self.store.change(self.store.drop_partitions([number])))
        del self.admitted.partitions[number]

    # ---------------------------------------------------------------------------------- commits

    @rule()
    def flush(self) -> None:
        self.store.flush()
        for ticket in self.tickets:
            assert ticket.done
            assert ticket.error is None
        self.tickets = []
        self.true = self.admitted.copy()

    @rule(where=st.sampled_from(["create", "rename", "sync folder", "open"]))
    def failed_roll(self, where: str) -> None:
        """The old segment gets what was admitted, and what comes."""
        self.append_one()
        self.flush()
        self.append_one()
        self.store.pipeline.committer.roll_due = True  # type: ignore[union-attr] # it is there
        self.failing = f"roll: {where}"
        self.flush()
        self.failing = None

    @rule(where=st.sampled_from(["commit: write", "commit: written"]))
    def failed_commit(self, where: str) -> None:
        self.append_one()
        self.failing = where
        tickets = list(self.tickets)
        self.store.flush()
        self.failing = None
        for ticket in tickets:
            assert ticket.done
            assert ticket.error is not None or ticket is not tickets[-1]
        self.tickets = []
        self.admitted = self.true.copy()
        assert self.store.refusing is None

    def append_one(self) -> None:
        number = min(set(self.true.partitions) & set(self.admitted.partitions), default=None)
        if number is None:
            self.tickets.append(self.store.change([Change(Table.TOPICS, b"x", b"y")]))
            self.admitted.rows[Table.TOPICS, b"x"] = b"y"
            return
        batch = make_batch()
        partition = self.store.partition(number)
        done = self.store.append(partition, batch, read_header(batch), self.now_ms)
        self.tickets.append(done.ticket)
        mine = self.admitted.partitions[number]
        mine.batches.append((mine.end, mine.end + 1, bytes(batch)))
        mine.end += 1

    @rule(passed=st.integers(0, 3_700_000))
    def tick(self, passed: int) -> None:
        self.now_ms += passed
        self.flush()
        self.store.tick(self.now_ms)

    @rule()
    def roll(self) -> None:
        self.store.roll()
        self.flush()

    # ----------------------------------------------------------------------------------- restarts

    @rule()
    def kill(self) -> None:
        """What was admitted and not committed is gone, the rest is there."""
        self.lives += 1
        path = self.root / str(self.lives)
        shutil.copytree(self.store.folder.path, path)
        self.store.close()
        shutil.rmtree(self.store.folder.path)
        self.store = self.open(path)
        self.admitted = self.true.copy()
        self.tickets = []

    @rule()
    def stop(self) -> None:
        self.store.close()
        for ticket in self.tickets:
            assert ticket.done
        self.store = self.open(self.store.folder.path)
        self.true = self.admitted.copy()
        self.tickets = []

    # ----------------------------------------------------------------------------------- questions

    @invariant()
    def holds(self) -> None:
        for number, mine in self.true.partitions.items():
            partition = self.store.partition(number)
            assert partition.log_start_offset == mine.start
            assert partition.high_watermark == mine.end
            stable = min(mine.open.values(), default=mine.end)
            assert partition.last_stable_offset == max(stable, mine.start)
            kept = [(p, first) for last, p, first in mine.aborted if last >= mine.start]
            told = zip(*self.store.aborted(partition, mine.start, 1 << 62), strict=True)
            assert list(told) == kept
            wanted = [(base, data) for base, end, data in mine.batches if end > mine.start]
            assert read_batches(self.store, partition, max_bytes=5000) == wanted
            assert partition.size_bytes >= sum(len(data) for _, data in wanted)
        for table in TABLES:
            wanted_rows = sorted((k, v) for (t, k), v in self.true.rows.items() if t is table)
            assert list(self.store.scan(table)) == wanted_rows
            assert list(self.store.scan(table, b"a")) == [
                r for r in wanted_rows if r[0].startswith(b"a")
            ]
            for key, value in wanted_rows:
                assert self.store.get(table, key) == value
            assert self.store.get(table, b"never") is None

    @rule()
    def gone(self) -> None:
        """A dropped partition is not found."""
        for number in range(1, 3):
            if number not in self.true.partitions:
                with pytest.raises(KeyError):
                    self.store.partition(number)

    @rule(data=st.data())
    def beyond(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.true.partitions)))
        partition = self.store.partition(number)
        offset = partition.log_end_offset + 1
        with pytest.raises(KafkaError) as caught:
            self.store.read(partition, offset, 100, end=1 << 62, min_one=True)
        assert caught.value.error is Error.OFFSET_OUT_OF_RANGE


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.long
class TestLongHistories(Histories.TestCase):
    settings = settings(
        max_examples=5000,
        stateful_step_count=80,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
