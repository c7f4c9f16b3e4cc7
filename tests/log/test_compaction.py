"""Compaction: the latest of each key stays, with its offset; everything else is as before."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.log.compactkit import COMPACT, OPTIONS, CompactedLog, Row
from tests.log.logkit import crash_copy, open_store, put, read_batches, scratch

from ottla.log.cleaning import KEY_BYTES, digest
from ottla.log.timestamps import Found
from ottla.wire.codecs import Codec
from ottla.wire.records import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    Record,
    build_batch,
    read_header,
    rewritten,
)

DAY = 86_400_000


@pytest.fixture
def folder() -> Iterator[Path]:
    path = scratch("ottla-compaction-")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def log(folder: Path) -> Iterator[CompactedLog]:
    log = CompactedLog(folder / "data")
    yield log
    log.store.close()


def rows(*pairs: str) -> list[Row]:
    """`k=v`, or `k` for a tombstone."""
    found: list[Row] = []
    for pair in pairs:
        key, is_there, value = pair.partition("=")
        found.append((key.encode(), value.encode() if is_there else None))
    return found


def test_the_latest_value_of_each_key_stays_at_its_offset(log: CompactedLog) -> None:
    log.put(rows("a=1", "b=1", "c=1"))
    log.put(rows("a=2"))
    log.roll()
    log.put(rows("b=2", "a=3"))
    log.roll()
    log.put(rows("b=3"))
    log.compact()
    assert log.left() == [
        (2, b"c", b"1"), (4, b"b", b"2"), (5, b"a", b"3"), (6, b"b", b"3"),
    ]  # fmt: skip
    log.check()
    assert log.row() == (6, -1)
    partition = log.partition()
    assert (partition.log_start_offset, partition.high_watermark) == (0, 7)


def test_nothing_of_the_active_segment_is_touched(log: CompactedLog) -> None:
    log.put(rows("a=1", "a=2"))
    log.compact()
    assert len(log.left()) == 2
    assert log.row() == (0, -1)


def test_offsets_in_gaps_lead_to_the_next_batch(log: CompactedLog) -> None:
    for turn in range(10):
        log.put(rows(f"a={turn}"))
        log.put(rows(f"b{turn}=x"))
        if turn % 3 == 2:
            log.roll()
    log.roll()
    log.put(rows("z=1"))
    log.compact()
    there = [offset for offset, _, _ in log.left()]
    assert there == [1, 3, 5, 7, 9, 11, 13, 15, 17, 18, 19, 20]
    for offset in range(20):
        found = read_batches(log.store, log.partition(), offset)
        assert found[0][0] == next(at for at in there if at >= offset)


def test_batches_that_lose_nothing_keep_every_byte(log: CompactedLog) -> None:
    log.put(rows("a=1", "b=1"), codec=Codec.zstd)
    log.put(rows("c=1", "d=1"), codec=Codec.gzip)
    log.put(rows("a=2"))
    before = dict(read_batches(log.store, log.partition()))
    log.roll()
    log.compact()
    after = dict(read_batches(log.store, log.partition()))
    assert after[2] == before[2]
    assert after[4] == before[4]
    assert after[0] != before[0]
    log.check()


def test_nothing_to_remove_leaves_the_files_alone(log: CompactedLog) -> None:
    log.put(rows("a=1", "b=1"))
    log.roll()
    files = log.files
    log.compact()
    assert log.files == files
    assert log.row() == (2, -1)


def test_a_tombstone_stays_for_delete_retention_and_goes_then(log: CompactedLog) -> None:
    log.configure(replace(COMPACT, delete_retention_ms=60_000))
    log.put(rows("a=1", "b=1"))
    log.put(rows("a", "c=1"))
    log.roll()
    log.compact()
    assert log.left() == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    header, _ = log.batches()[1]
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == log.now + 60_000
    assert log.row() == (4, log.now + 60_000)
    log.check()
    log.wait(58_000)
    log.compact()
    assert (2, b"a", None) in log.left()
    log.compact()  # nobody has written anything since
    assert log.left() == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert log.row() == (4, -1)
    log.check()


def test_delete_retention_of_nothing_takes_two_passes(log: CompactedLog) -> None:
    log.configure(replace(COMPACT, delete_retention_ms=0))
    log.put(rows("a=1"))
    log.put(rows("a"))
    log.put(rows("b=1"))
    log.roll()
    log.compact()
    assert log.left() == [(1, b"a", None), (2, b"b", b"1")]
    log.compact()
    assert log.left() == [(2, b"b", b"1")]
    log.check()


def test_log_append_time_survives_a_delete_horizon(log: CompactedLog) -> None:
    log.put(rows("a=1", "b=1", "a"), attributes=LOG_APPEND_TIME)
    log.put(rows("c=1"))
    log.roll()
    stamp = log.expected[log.number].batches[0].header.max_timestamp
    log.compact()
    header, found = log.batches()[0]
    assert header.attributes & LOG_APPEND_TIME
    assert [(r.offset, r.timestamp) for r in found] == [(1, stamp), (2, stamp)]


def test_records_without_a_key_go(log: CompactedLog) -> None:
    """They came before the topic was compacted."""
    log.put([(None, b"1"), (b"a", b"1"), (b"", b"2")])
    log.roll()
    log.put([(None, b"1")])
    log.compact()
    assert log.left() == [(1, b"a", b"1"), (2, b"", b"2"), (3, None, b"1")]


def test_a_batch_that_cannot_be_opened_is_left_as_it_is(log: CompactedLog) -> None:
    log.put(rows("a=1"))
    good = build_batch([Record(0, 1, b"a", b"2"), Record(1, 1, b"b", b"1")])
    bad, _ = rewritten(good, read_header(good)._replace(attributes=Codec.gzip))
    put(log.store, log.partition(), bad)
    log.put(rows("b=2"))
    log.roll()
    log.compact()
    assert [base for base, _ in read_batches(log.store, log.partition())] == [0, 1, 3]
    assert log.row()[0] == 4


def test_the_last_batch_of_a_producer_and_of_a_pass_stand_empty(log: CompactedLog) -> None:
    log.put(rows("a=1"), producer=(7, 0, 0))
    log.put(rows("a=2", "b=1"), producer=(7, 0, 1))
    log.put(rows("b=2", "c=1"))
    log.put(rows("c=2"))
    log.put(rows("c"), time=5)
    log.roll()
    log.put(rows("a=3"))
    log.roll()
    log.compact()
    log.check()
    found = [(header.base_offset, header.record_count) for header, _ in log.batches()]
    assert found == [(1, 0), (3, 1), (6, 1), (7, 1)]
    header, _ = log.batches()[0]
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (7, 1, 2)
    log.reopen()
    log.put(rows("d=1"), producer=(7, 0, 3))
    log.roll()
    log.compact()
    log.check()
    assert log.batches()[0][0].base_offset == 3


def test_the_end_of_the_log_stays_when_its_last_records_go(log: CompactedLog) -> None:
    log.configure(replace(COMPACT, delete_retention_ms=0))
    log.put(rows("a=1"))
    log.put(rows("a"))
    log.roll()
    log.compact()
    log.compact()
    assert log.left() == []
    log.reopen()
    assert log.partition().high_watermark == 2
    log.check()
    assert log.put(rows("a=2")) == 2
    log.check()


def test_the_dirty_ratio_decides(log: CompactedLog) -> None:
    log.configure(replace(COMPACT, min_cleanable_dirty_ratio=0.5))
    for turn in range(10):
        log.put(rows(f"k{turn}=x"))
    log.roll()
    log.compact()  # all of it is dirty
    assert log.row()[0] == 10
    for turn in range(9):
        log.put(rows(f"k{turn}=y"))
    log.roll()
    before = log.left()
    log.store.tick(log.now + 60_000)
    assert log.row()[0] == 10
    assert log.left() == before
    for turn in range(3):
        log.put(rows(f"k{turn}=z"))
    log.roll()
    log.now += 60_000
    log.compact()
    assert log.row()[0] == 22
    log.check()


def test_max_compaction_lag_overrules_the_ratio(log: CompactedLog) -> None:
    log.configure(replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=30_000))
    log.put(rows("a=1", "a=2"))
    log.roll()
    log.wait(20_000)
    sweep = log.store._maintenance.sweep
    sweep._compaction._next_ms = log.now
    log.work()
    assert log.row()[0] == 0
    log.wait(10_000)
    log.compact()
    assert log.row()[0] == 2
    log.check()


def test_min_compaction_lag_keeps_what_is_young(log: CompactedLog) -> None:
    log.configure(replace(COMPACT, min_compaction_lag_ms=3_600_000))
    log.put(rows("a=1"))
    log.put(rows("a=2"))
    log.roll()
    log.wait(3_600_010)
    log.put(rows("a=3"))
    log.roll()
    log.now += 1000
    log.store._maintenance.sweep._compaction._next_ms = log.now
    log.work()
    assert log.left() == [(1, b"a", b"2"), (2, b"a", b"3")]
    assert log.row()[0] == 2


def test_a_cleaner_that_is_switched_off_does_nothing(folder: Path) -> None:
    log = CompactedLog(folder / "data", options=replace(OPTIONS, compaction=False))
    log.put(rows("a=1", "a=2"))
    log.roll()
    for _ in range(100):
        log.now += 10_000
        log.store.tick(log.now)
    assert len(log.left()) == 2
    log.store.close()


def test_it_comes_by_itself(log: CompactedLog) -> None:
    log.put(rows("a=1", "a=2"))
    log.roll()
    for _ in range(30):
        log.now += 100
        log.store.tick(log.now)
    assert log.left() == [(1, b"a", b"2")]


def test_more_keys_than_memory_take_several_passes(folder: Path) -> None:
    options = replace(OPTIONS, compaction_keys_bytes=4 * KEY_BYTES)
    log = CompactedLog(folder / "data", options=options)
    for turn in range(3):
        log.put(rows(*(f"k{i}={turn}" for i in range(10))))
        log.roll()
    ends = []
    for _ in range(60):
        log.now += 100
        log.store.tick(log.now)
        ends.append(log.row()[0])
    assert ends[-1] == 30
    assert len(set(ends)) > 4
    assert [offset for offset, _, _ in log.left()] == list(range(20, 30))
    log.store.close()


def test_several_partitions_in_the_same_files(folder: Path) -> None:
    log = CompactedLog(folder / "data", count=4)
    plain = log.numbers.pop()
    log.store.configure([plain], replace(COMPACT, compact=False))
    kept = log.expected.pop(plain)
    for turn in range(40):
        for number in log.numbers:
            log.put(rows(f"a={turn}", f"b{turn % number}={turn}"), number=number)
        log.expected[plain] = kept
        log.put(rows(f"a={turn}"), number=plain)
        del log.expected[plain]
        if turn % 15 == 14:
            log.roll()
    log.roll()
    log.compact()
    log.check()
    assert len(log.left(plain)) == 40
    log.reopen()
    log.check()
    log.store.close()


def test_short_keys_stand_for_themselves() -> None:
    assert digest(b"") == b""
    assert digest(b"short") == b"short"
    assert len(digest(b"x" * 16)) == len(digest(b"x" * 1000)) == 16
    assert digest(b"x" * 16) != digest(b"x" * 17)


# -------------------------------------------------------------------------------- beside the rest


def find_timestamp(log: CompactedLog, timestamp: int) -> Found | None:
    box: list[Found | Exception | None] = []
    log.store.offset_for_timestamp(log.partition(), timestamp, box.append)
    (found,) = box
    assert not isinstance(found, Exception)
    return found


def test_timestamps_lead_to_records_that_are_there(log: CompactedLog) -> None:
    for turn, time in enumerate([100, 200, 300, 400, 500]):
        log.put(rows(f"a={turn}", f"b{turn}=1"), time=time)
    log.put(rows("a=x", "b0=x", "b4=x", "z"), time=50)
    log.put(rows("z=1"), time=20, producer=(3, 0, 0))
    log.roll()
    log.put(rows("z=2"), time=10)
    log.roll()
    log.compact()
    log.check()
    there = [r for _, found in log.batches() for r in found]
    for timestamp in range(0, 600, 7):
        wanted = next(((r.offset, r.timestamp) for r in there if r.timestamp >= timestamp), None)
        assert find_timestamp(log, timestamp) == wanted
    box: list[Found | Exception | None] = []
    log.store.offset_of_max_timestamp(log.partition(), box.append)
    best = max(r.timestamp for r in there)
    assert box == [next((r.offset, r.timestamp) for r in there if r.timestamp == best)]


def test_log_append_times_of_a_compacted_batch(log: CompactedLog) -> None:
    log.put(rows("a=1", "b=1", "a=2"), time=100, attributes=LOG_APPEND_TIME)
    log.put(rows("c=1"), time=50)
    log.roll()
    log.compact()
    assert find_timestamp(log, 90) == (1, 102)


def test_epochs_end_where_they_did(log: CompactedLog) -> None:
    log.put(rows("a=1", "a=2", "a=3"))
    log.roll()
    before = log.store.epoch_end(log.partition(), 0)
    log.compact()
    assert log.store.epoch_end(log.partition(), 0) == before == (0, 3)


def test_views_from_before_stay_good(log: CompactedLog) -> None:
    log.put(rows(*(f"k{i}=1" for i in range(100))))
    log.put(rows(*(f"k{i}=2" for i in range(100))))
    log.roll()
    log.put(rows("z=1"))
    found = log.store.read(log.partition(), 0, 1 << 20, end=200, min_one=True)
    wanted = [bytes(buffer) for buffer in found.buffers]  # type: ignore[union-attr]
    log.compact()
    assert len(log.left()) == 101
    assert [bytes(buffer) for buffer in found.buffers] == wanted  # type: ignore[union-attr]


def test_retention_goes_on_where_both_are_asked_for(folder: Path) -> None:
    options = replace(OPTIONS, retention_check_ms=1000)
    both = replace(COMPACT, delete=True, retention_ms=DAY)
    log = CompactedLog(folder / "data", both, options)
    log.put(rows("a=1", "b=1", "a=2"))
    log.roll()
    log.put(rows("z=1"))
    log.roll()
    log.compact()
    assert [offset for offset, _, _ in log.left()] == [1, 2, 3]
    log.wait(DAY)
    log.put(rows("c=1"), time=log.now)
    for _ in range(20):
        log.now += 1000
        log.store.tick(log.now)
    assert log.partition().log_start_offset == 4
    assert log.left() == [(4, b"c", b"1")]
    log.store.close()


def test_size_retention_counts_what_is_left(folder: Path) -> None:
    options = replace(OPTIONS, retention_check_ms=1000)
    both = replace(COMPACT, delete=True, retention_ms=-1, retention_bytes=20_000)
    log = CompactedLog(folder / "data", both, options)
    for turn in range(100):
        log.put([(b"a", b"%d" % turn * 200)])
        if turn % 10 == 9:
            log.roll()
            log.compact()
    for _ in range(20):
        log.now += 1000
        log.store.tick(log.now)
    assert log.partition().log_start_offset == 0
    assert log.left() == [(99, b"a", b"99" * 200)]
    log.store.close()


def test_records_deleted_do_not_come_back(log: CompactedLog) -> None:
    log.put(rows("a=1", "b=1"))
    log.put(rows("a=2", "c=1"))
    log.roll()
    log.delete_to(2)
    log.compact()
    assert log.left() == [(2, b"a", b"2"), (3, b"c", b"1")]
    log.check()


def test_a_dropped_partition_leaves_no_row(log: CompactedLog) -> None:
    log.put(rows("a=1", "a=2"))
    log.roll()
    log.compact()
    assert log.row()[0] == 2
    log.store.change(log.store.drop_partitions(log.numbers))
    log.store.flush()
    log.store.tick(log.now + 1)
    log.reopen()
    assert log.row()[0] == 0


def test_a_damaged_file_is_left_alone(log: CompactedLog, caplog: pytest.LogCaptureFixture) -> None:
    log.put(rows("a=1"))
    log.roll()
    log.put(rows("a=2"))
    log.roll()
    _, batch = read_batches(log.store, log.partition())[0]
    log.store.close()
    path = log.store.layout.sealed[0].path
    image = bytearray(path.read_bytes())
    image[image.index(batch) + 70] ^= 0xFF
    path.chmod(0o644)
    path.write_bytes(image)
    log.store = open_store(log.path, options=log.options, now_ms=log.now)
    log.configure(log.settings)
    for _ in range(50):
        log.now += 1000
        log.store.tick(log.now)
    assert path.exists()
    assert log.row()[0] == 0
    assert len([r for r in caplog.records if path.name in r.getMessage()]) == 1


# --------------------------------------------------------------------------------------- crashes


def history(log: CompactedLog) -> None:
    """Something for each rule, over three files."""
    log.put(rows("a=1", "b=1", "c=1"), codec=Codec.gzip)
    log.put(rows("d=1"), producer=(9, 0, 0))
    log.roll()
    log.put(rows("a", "b=2"))
    log.put(rows("d=2"), producer=(8, 0, 0))
    log.roll()
    log.put(rows("b=3", "e=1"))
    log.put(rows("e=2"))
    log.roll()


def copy_at(stop: int, seen: list[str], path: Path, copy: Path, name: str) -> None:
    """Before the step number `stop`."""
    if len(seen) == stop:
        crash_copy(path, copy)
    seen.append(name)


def test_a_crash_at_any_step_loses_and_revives_nothing(folder: Path) -> None:
    settings = replace(COMPACT, delete_retention_ms=5_000)
    for stop in itertools.count():
        log = CompactedLog(folder / f"data-{stop}", settings)
        history(log)
        seen: list[str] = []
        copy = folder / f"copy-{stop}"
        log.step = partial(copy_at, stop, seen, log.path, copy)
        log.compact()
        log.wait(5_000)
        log.compact()  # the tombstone goes
        log.step = lambda name: None
        log.check()
        wanted = log.left()
        assert [key for _, key, _ in wanted] == [b"c", b"d", b"b", b"e"]
        log.abandon()
        if len(seen) <= stop:
            break
        log.path = copy
        log.store = open_store(copy, options=log.options, now_ms=log.now)
        log.configure(settings)
        latest = {key: value for _, key, value in log.left()}
        assert latest.get(b"a") is None, seen[stop]
        assert [latest[k] for k in (b"b", b"c", b"d", b"e")] == [b"3", b"1", b"2", b"2"]
        for _ in range(30):
            log.now += 1000
            log.store.tick(log.now)
        assert log.left() == wanted, seen[stop]
        assert not [name for name in log.files if name.endswith(".tmp")]
        log.abandon()
    assert stop > 20


# ---------------------------------------------------------------------------------- whole histories

KEYS = [b"", b"a", b"b", b"c", b"a rather long key, so it is digested", b"another long key......"]
VALUES = st.one_of(st.none(), st.binary(max_size=30), st.just(b"x" * 3000))
ROWS = st.lists(st.tuples(st.sampled_from(KEYS), VALUES), min_size=1, max_size=6)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = scratch("ottla-compaction-")
        self.copies = 0
        settings = replace(COMPACT, delete_retention_ms=20_000)
        self.log = CompactedLog(self.folder / "data", settings, count=2)
        self.sequences: dict[tuple[int, int], int] = {}

    def teardown(self) -> None:
        self.log.store.close()
        shutil.rmtree(self.folder)

    @rule(which=st.integers(0, 1), rows=ROWS, codec=st.sampled_from(Codec), time=st.integers(0, 99))
    def write(self, which: int, rows: list[Row], codec: Codec, time: int) -> None:
        self.log.put(rows, number=self.log.numbers[which], codec=codec, time=time)

    @rule(which=st.integers(0, 1), rows=ROWS, producer=st.integers(1, 3))
    def write_idempotently(self, which: int, rows: list[Row], producer: int) -> None:
        number = self.log.numbers[which]
        sequence = self.sequences.get((number, producer), 0)
        self.log.put(rows, number=number, producer=(producer, 0, sequence))
        self.sequences[number, producer] = sequence + len(rows)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(ms=st.integers(1, 30_000))
    def wait(self, ms: int) -> None:
        self.log.wait(ms)

    @rule()
    def compact(self) -> None:
        self.log.roll()
        self.log.compact()

    @rule()
    def compact_what_is_sealed(self) -> None:
        self.log.compact()

    @rule()
    def sweep(self) -> None:
        """Rewrites beside it: the model does not change."""
        sweep = self.log.store._maintenance.sweep
        sweep._compaction._next_ms = 1 << 60
        sweep._began_ms = self.log.now - self.log.options.retention_check_ms
        self.log.work()

    @precondition(lambda self: self.log.partition().high_watermark)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        partition = self.log.partition()
        low, high = partition.log_start_offset, partition.high_watermark
        self.log.delete_to(data.draw(st.integers(low, min(high, low + 8))))

    @rule()
    def reopen(self) -> None:
        self.log.reopen()

    @rule()
    def crash(self) -> None:
        self.copies += 1
        self.log.crash(self.folder / f"copy-{self.copies}")

    @invariant()
    def holds(self) -> None:
        self.log.check()


TestHistories = Histories.TestCase
TestHistories.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
