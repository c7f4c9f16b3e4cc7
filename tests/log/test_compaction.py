"""Compaction: the latest of each key stays, with its offset; everything else is as before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.log.compactkit import COMPACT, OPTIONS, CompactedLog, rows
from tests.log.logkit import put, read_batches

from ottla.log.cleaning import KEY_BYTES, digest
from ottla.wire.codecs import Codec
from ottla.wire.records import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    Record,
    build_batch,
    read_header,
    rewritten,
)


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


def test_a_shorter_interval_counts_from_the_last_look(log: CompactedLog) -> None:
    log.compact()
    log.put(rows("a=1", "a=2"))
    log.roll()
    options = log.store.options
    assert options.compaction_check_ms > 500

    log.store.set_options(replace(options, compaction_check_ms=500))
    log.wait(499)
    log.work()
    assert log.row()[0] == 0
    log.wait(1)
    log.work()
    assert log.left() == [(1, b"a", b"2")]


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
