"""Reads: where they begin and end, what limits them, and how long their bytes live."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.log.logkit import (
    TINY,
    append,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    read_once,
    with_options,
)

from ottla.log.options import StoreOptions
from ottla.log.partition import Partition
from ottla.log.reading import MAX_EXTENTS, BadBatch, Cold, Read, cut
from ottla.log.store import Store
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import walk

PLACES = ["active", "sealed", "cold"]


def fill(store: Store, where: str) -> tuple[Partition, list[tuple[int, bytes]]]:
    """Twelve batches of three records, four in each commit, in a segment of that kind."""
    (partition, other) = new_partitions(store, 2)
    batches = []
    for turn in range(12):
        batch = make_batch(3, size=100, fill=turn, time=1000 * turn)
        done = append(store, partition, batch)
        append(store, other, make_batch())
        batches.append((done.base_offset, bytes(batch)))
        if turn % 4 == 3:
            store.flush()
    if where != "active":
        store.roll()
        store.tick(1)
    if where == "cold":
        put(store, other, make_batch())
        store.roll()
        store.tick(2)
        assert isinstance(store.read(partition, 0, 1, end=36, min_one=True), Cold)
    return partition, batches


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "log")
    yield made
    made.close()


def found(read: Read) -> list[tuple[int, bytes]]:
    data = b"".join(read.buffers)
    assert read.size == len(data)
    return [(h.base_offset, data[p : p + h.size]) for p, h in walk(data)]


@pytest.mark.parametrize("where", PLACES)
def test_begins_at_the_batch_that_holds_the_offset(store: Store, where: str) -> None:
    partition, batches = fill(store, where)
    for offset in range(36):
        assert found(read_once(store, partition, offset)) == batches[offset // 3 :]
    assert read_once(store, partition, 36) == Read([], 0)


@pytest.mark.parametrize("where", PLACES)
def test_ends_at_a_batch_boundary(store: Store, where: str) -> None:
    """`end` may be anywhere; a batch that reaches beyond it is not sent (read_committed)."""
    partition, batches = fill(store, where)
    for offset in (0, 4, 17):
        for end in range(37):
            wanted = [b for b in batches[offset // 3 :] if b[0] + 3 <= end]
            if end <= offset:
                wanted = []
            assert found(read_once(store, partition, offset, end=end)) == wanted


@pytest.mark.parametrize("where", PLACES)
def test_first_batch_is_returned_whole_whatever_the_limit(store: Store, where: str) -> None:
    partition, batches = fill(store, where)
    size = len(batches[0][1])
    for limit in (0, 1, size - 1, size):
        assert found(read_once(store, partition, 5, limit)) == batches[1:2]
    for count in (2, 5, 7):
        assert found(read_once(store, partition, 0, count * size)) == batches[:count]
        assert found(read_once(store, partition, 0, count * size + size - 1)) == batches[:count]


@pytest.mark.parametrize("where", ["active", "sealed"])
def test_limit_binds_when_the_first_batch_may_be_left_out(store: Store, where: str) -> None:
    partition, batches = fill(store, where)
    size = len(batches[0][1])
    for limit, count in ((0, 0), (size - 1, 0), (size, 1), (2 * size, 2)):
        result = store.read(partition, 3, limit, end=36, min_one=False)
        assert isinstance(result, Read)
        assert found(result) == batches[1 : 1 + count]


@pytest.mark.parametrize("where", PLACES)
def test_offsets_outside_the_log_are_refused(store: Store, where: str) -> None:
    partition, batches = fill(store, where)
    store.delete_records(partition, 7)
    store.flush()
    for offset in (-1, 0, 6, 37, 1 << 60):
        with pytest.raises(KafkaError) as caught:
            read_once(store, partition, offset)
        assert caught.value.error is Error.OFFSET_OUT_OF_RANGE
    # The log starts within a batch: the batch is sent whole, clients skip what comes before.
    assert found(read_once(store, partition, 7)) == batches[2:]


def test_what_is_not_committed_is_not_read(store: Store) -> None:
    partition, batches = fill(store, "active")
    append(store, partition, make_batch(2))
    assert (partition.high_watermark, partition.log_end_offset) == (36, 38)
    assert found(read_once(store, partition, 33)) == batches[-1:]
    for offset in (36, 37, 38):
        assert read_once(store, partition, offset) == Read([], 0)


def test_goes_on_from_segment_to_segment(store: Store) -> None:
    partition, batches = fill(store, "sealed")
    for turn in range(3):
        batch = make_batch(3, fill=100 + turn)
        batches.append((put(store, partition, batch), bytes(batch)))
        if turn == 1:
            store.roll()
    store.tick(5)
    store.options = with_options(warm_segments=9)
    result = store.read(partition, 2, 1 << 20, end=1 << 60, min_one=True)
    assert isinstance(result, Read)
    assert found(result) == batches


def test_many_small_pieces_come_as_one(store: Store) -> None:
    """A socket takes one buffer faster than hundreds of small ones."""
    (partition,) = new_partitions(store)
    for turn in range(40):
        put(store, partition, make_batch(fill=turn))
    result = read_once(store, partition, 0)
    assert len(result.buffers) == 1
    assert len(found(result)) == 40


def test_one_read_looks_at_a_bounded_number_of_extents(tmp_path: Path) -> None:
    store = open_store(tmp_path, options=with_options(durability="os", segment_extents=10_000))
    (partition,) = new_partitions(store)
    for _ in range(MAX_EXTENTS + 10):
        put(store, partition, make_batch())
    assert len(found(read_once(store, partition, 0))) == MAX_EXTENTS
    store.close()


@pytest.mark.parametrize("where", ["sealed", "cold"])
def test_bytes_outlive_their_file(store: Store, where: str) -> None:
    """A sealed file may be replaced and unlinked while its bytes wait to be sent."""
    partition, batches = fill(store, where)
    result = read_once(store, partition, 0)
    segment = store.layout.chain(partition.number).segments[0]
    store.layout.replace([segment], [], None)
    segment.path.unlink()
    del segment
    gc.collect()
    assert found(result) == batches


def test_bytes_outlive_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    partition, batches = fill(store, "sealed")
    result = read_once(store, partition, 0)
    store.close()
    del store, partition
    gc.collect()
    assert found(result) == batches


def test_rolled_and_not_sealed_is_read_like_the_active_one(tmp_path: Path) -> None:
    def step(name: str) -> None:
        if name == "seal: open":
            raise OSError("the disk is busy")

    store = open_store(tmp_path, step=step)
    partition, batches = fill(store, "active")
    store.roll()
    assert len(store.layout.rolled) == 1
    batch = make_batch(3)
    batches.append((put(store, partition, batch), bytes(batch)))
    assert found(read_once(store, partition, 0)) == batches
    assert read_batches(store, partition) == batches
    store.close()


def test_size_counts_what_may_be_read(store: Store) -> None:
    partition, batches = fill(store, "active")
    size = len(batches[0][1])
    assert partition.size_bytes == 12 * size
    for seal in (False, True):
        if seal:
            store.roll()
            store.tick(1)
        # Whole extents: one of four batches in each commit.
        for start, left in ((11, 12), (12, 8), (35, 4), (36, 0)):
            assert store.layout.size(partition.number, start) == left * size
    put(store, partition, make_batch(3, size=100))
    assert partition.size_bytes == 13 * size


def test_large_batches_are_values_of_their_own(tmp_path: Path) -> None:
    options = StoreOptions(
        large_extent_bytes=TINY.large_extent_bytes,
        disk_reserve_bytes=0,
        segment_bytes=64 << 20,
        warm_segments=1,
    )
    store = open_store(tmp_path, options=options)
    a, b = new_partitions(store, 2)
    wanted: dict[int, list[tuple[int, bytes]]] = {a.number: [], b.number: []}
    for turn in range(30):
        for partition in (a, b):
            size = 20_000 if (turn + partition.number) % 3 else 50
            batch = make_batch(2, size=size, fill=turn)
            done = append(store, partition, batch)
            wanted[partition.number].append((done.base_offset, bytes(batch)))
        if turn % 7 == 6:
            store.flush()
    store.flush()
    for seal in (False, True):
        if seal:
            store.roll()
            store.tick(1)
        for partition in (a, b):
            assert read_batches(store, partition) == wanted[partition.number]
            assert read_batches(store, partition, max_bytes=1) == wanted[partition.number]
    store.close()


def test_cut_refuses_what_is_no_batch() -> None:
    batch = bytes(make_batch(2, size=10))
    assert cut(batch * 1, 0, 2, 1000, False) == (0, len(batch))
    for broken in (batch[:-1], batch + b"x", batch[:8] + b"\xff" * 4 + batch[12:]):
        with pytest.raises(BadBatch):
            cut(broken, 0, 1 << 60, 1 << 20, True)


def test_offsets_have_no_holes_between_segments(store: Store) -> None:
    (partition,) = new_partitions(store)
    for turn in range(200):
        put(store, partition, make_batch(1 + turn % 4, size=2000, fill=turn))
    assert len(store.layout.sealed) > 2
    offsets = [base for base, _ in read_batches(store, partition)]
    counts = [1 + turn % 4 for turn in range(200)]
    assert [b - a for a, b in pairwise(offsets)] == counts[:-1]
