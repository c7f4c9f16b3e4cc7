"""Offsets for timestamps: one batch, then a whole log in segments of every kind, against a list."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.errors import Damaged
from ottla.log.options import PartitionSettings, StoreOptions
from ottla.log.partition import Partition
from ottla.log.store import Store
from ottla.log.timestamps import Found, first_at_or_after, latest
from ottla.wire.codecs import Codec
from ottla.wire.errors import KafkaError
from ottla.wire.records import (
    Record,
    build_batch,
    read_header,
    rewritten,
    with_log_append_time,
)

T0 = 1_700_000_000_000
times = st.lists(st.integers(T0, T0 + 30) | st.just(-1), min_size=1, max_size=8)


def batch_of(stamps: list[int], offset: int = 0, codec: Codec = Codec.none) -> bytearray:
    return build_batch(
        [Record(offset + i, time, b"k", b"v") for i, time in enumerate(stamps)], codec=codec
    )


# ------------------------------------------------------------------------------------- one batch


@given(times, st.sampled_from(Codec), st.integers(T0, T0 + 31), st.integers(0, 9))
def test_first_record_of_a_batch(stamps: list[int], codec: Codec, wanted: int, start: int) -> None:
    batch = batch_of(stamps, 100, codec)
    expected = [(100 + i, time) for i, time in enumerate(stamps) if time >= wanted and i >= start]
    found = first_at_or_after(batch, read_header(batch), wanted, 100 + start)
    assert found == (expected[0] if expected else None)


@given(times, st.sampled_from(Codec), st.integers(0, 9))
def test_latest_record_of_a_batch(stamps: list[int], codec: Codec, start: int) -> None:
    batch = batch_of(stamps, 100, codec)
    kept = [(100 + i, time) for i, time in enumerate(stamps) if i >= start and time >= 0]
    expected = max(kept, key=lambda row: (row[1], -row[0]), default=None)
    assert latest(batch, read_header(batch), 100 + start) == expected


def test_log_append_time_is_the_same_for_all_records() -> None:
    sent = batch_of([5, 6, 7], 100, Codec.gzip)
    batch, header = with_log_append_time(sent, read_header(sent), T0)
    assert first_at_or_after(batch, header, T0, 0) == (100, T0)
    assert first_at_or_after(batch, header, T0 - 9, 102) == (102, T0)
    assert first_at_or_after(batch, header, T0 + 1, 0) is None
    assert latest(batch, header, 0) == (100, T0)


def test_a_batch_that_is_stepped_over_is_not_opened() -> None:
    garbage, header = rewritten(batch_of([T0])[:61] + b"\xff" * 9, read_header(batch_of([T0])))
    assert first_at_or_after(garbage, header, T0 + 1, 0) is None
    with pytest.raises(KafkaError):
        first_at_or_after(garbage, header, T0, 0)


def test_timestamps_beyond_int64_can_be_answered() -> None:
    batch = batch_of([(1 << 63) - 10, 5])
    far, header = rewritten(batch, read_header(batch)._replace(base_timestamp=(1 << 63) - 1))
    header = header._replace(max_timestamp=(1 << 63) - 1)
    found = first_at_or_after(far, header, (1 << 63) - 11, 0)
    assert found is not None
    assert found[1] < 1 << 63


# -------------------------------------------------------------------------------------- whole log


class Log:
    """A store, a partition of it, and what should be in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = self.open()
        (self.number,), changes = self.store.new_partitions(1, PartitionSettings())
        self.store.change(changes)
        self.store.flush()
        self.rows: list[Found] = []

    def open(self) -> Store:
        return Store.open(
            self.path, options=StoreOptions(durability="os"), now_ms=T0, boot_id="boot"
        )

    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()

    @property
    def partition(self) -> Partition:
        return self.store.partition(self.number)

    def put(self, *stamps: int, codec: Codec = Codec.none, batch: Any = None) -> None:
        partition = self.partition
        base = partition.log_end_offset
        sent = batch_of(list(stamps), codec=codec) if batch is None else batch
        self.store.append(partition, sent, read_header(sent), T0)
        self.rows += [(base + i, time) for i, time in enumerate(stamps)]

    def roll(self, *, seal: bool = True) -> None:
        self.store.flush()
        self.store.roll()
        self.store.flush()

    def delete_to(self, offset: int) -> None:
        self.store.delete_records(self.partition, offset)
        self.store.flush()
        self.rows = [row for row in self.rows if row[0] >= offset]

    def first(self, timestamp: int) -> Found | None:
        found: list[Found | Exception | None] = []
        self.store.offset_for_timestamp(self.partition, timestamp, found.append)
        (result,) = found
        if isinstance(result, Exception):
            raise result
        return result

    def latest(self) -> Found | None:
        found: list[Found | Exception | None] = []
        self.store.offset_of_max_timestamp(self.partition, found.append)
        (result,) = found
        if isinstance(result, Exception):
            raise result
        return result

    def check(self, low: int = T0 - 1, high: int = T0 + 40) -> None:
        for wanted in range(low, high):
            expected = next((row for row in self.rows if row[1] >= wanted), None)
            assert self.first(wanted) == expected, wanted
        dated = [row for row in self.rows if row[1] >= 0]
        assert self.latest() == max(dated, key=lambda row: (row[1], -row[0]), default=None)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path / "data")
    yield log
    log.store.close()


def test_33_first_record_at_or_after_with_its_own_timestamp(log: Log) -> None:
    log.put(T0, T0 + 10, T0 + 20, codec=Codec.lz4)
    log.put(T0 + 30)
    log.store.flush()
    assert log.first(T0 + 5) == (1, T0 + 10)
    assert log.first(T0 + 20) == (2, T0 + 20)
    assert log.first(T0 + 21) == (3, T0 + 30)
    assert log.first(T0 + 31) is None


def test_an_empty_log(log: Log) -> None:
    assert log.first(0) is None
    assert log.latest() is None
    log.put(-1, -1)
    log.store.flush()
    assert log.first(0) is None
    assert log.latest() is None


def test_what_is_not_committed_is_not_found(log: Log) -> None:
    log.put(T0)
    log.store.flush()
    log.put(T0 + 9)
    assert log.first(T0 + 1) is None
    assert log.latest() == (0, T0)
    log.store.flush()
    assert log.first(T0 + 1) == (1, T0 + 9)


@pytest.mark.parametrize("seed", range(6))
def test_every_kind_of_segment_in_any_order_of_time(log: Log, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        stamps = [T0 + rng.randrange(30) for _ in range(rng.randint(1, 4))]
        log.put(*stamps, codec=rng.choice(list(Codec)))
        if rng.random() < 0.4:
            log.store.flush()
        if rng.random() < 0.08:
            log.roll()
    log.store.flush()
    log.check()
    end = log.partition.high_watermark
    for start in sorted(rng.randrange(end) for _ in range(4)):
        log.delete_to(start)
        log.check()
    log.reopen()
    log.check()
    log.delete_to(end)
    log.check()


def test_garbage_of_a_producer_is_stepped_over(log: Log) -> None:
    """Batches are not opened on the way in, so one may hold nothing that can be read."""
    log.put(T0)
    sound = batch_of([T0 + 5])
    garbage, _ = rewritten(sound[:61] + b"\xff" * 20, read_header(sound))
    log.put(-1, batch=garbage)
    log.put(T0 + 7)
    log.store.flush()
    assert log.first(T0 + 1) == (2, T0 + 7)


def test_a_damaged_batch_is_an_error(log: Log) -> None:
    log.put(T0)
    log.roll()
    log.put(T0 + 5)
    log.store.flush()
    (sealed,) = log.store.layout.sealed
    sent = bytes(sealed.extent(0))
    log.store.close()
    image = bytearray(sealed.path.read_bytes())
    at = image.index(sent)
    image[at + 65] ^= 1
    sealed.path.chmod(0o644)
    sealed.path.write_bytes(image)
    log.store = log.open()
    with pytest.raises(Damaged, match="offset 0 is altered"):
        log.first(T0)
    assert log.first(T0 + 1) == (1, T0 + 5)
