"""Compaction beside the rest: timestamps, readers, retention, deletion, damage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.log.compactkit import COMPACT, OPTIONS, CompactedLog, rows
from tests.log.logkit import open_store, read_batches

from ottla.log.timestamps import Found
from ottla.wire.records import (
    LOG_APPEND_TIME,
)

DAY = 86_400_000


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
