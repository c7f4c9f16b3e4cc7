"""Cut files and flipped bits: the file is named, the rest is served, no offset comes twice."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.logkit import (
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    read_once,
    scratch,
    with_options,
    without_epoch,
)

from ottla.log.errors import Damaged, LogError, MissingRecords
from ottla.log.options import Change, Table
from ottla.log.store import Store
from ottla.wire.records import walk

#: Appends of each partition in each of the three segments: two sealed, one active.
EACH = 6


class Written:
    """A folder with three segments, three partitions, and what is in them."""

    def __init__(self, root: Path) -> None:
        self.path = root / "log"
        store = open_store(self.path)
        self.numbers = [p.number for p in new_partitions(store, 3)]
        self.batches: dict[int, list[tuple[int, bytes]]] = {n: [] for n in self.numbers}
        for segment in range(3):
            for turn in range(EACH):
                for number in self.numbers[: 3 - segment]:
                    # The second partition is not in the third segment, the third only in the first.
                    self.put(store, number, 9000 if turn == 3 else 300)
            store.change([Change(Table.TOPICS, b"segment-%d" % segment, b"x")])
            store.flush()
            if segment < 2:
                store.roll()
                store.tick(segment)
        self.killed = crash_copy(self.path, root / "killed")
        store.close()

    def put(self, store: Store, number: int, size: int) -> None:
        mine = self.batches[number]
        batch = make_batch(
            2, size=size, fill=len(mine) + number, producer=(number, 0, 2 * len(mine))
        )
        mine.append((put(store, store.partition(number), batch), bytes(batch)))

    def names(self) -> list[str]:
        return sorted(
            p.name for p in (self.killed / "log").iterdir() if not p.name.endswith("-lock")
        )


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    root = scratch("ottla-damage-")
    yield Written(root)
    shutil.rmtree(root)


@pytest.fixture
def copy(written: Written) -> Iterator[Path]:
    root = scratch("ottla-damaged-")
    yield crash_copy(written.killed, root / "log")
    shutil.rmtree(root)


def segment_path(written: Written, copy: Path, index: int) -> Path:
    return copy / "log" / written.names()[index]


def cut(path: Path, size: int) -> None:
    with open(path, "r+b") as file:
        file.truncate(size)


def test_names(written: Written) -> None:
    kinds = [name.rpartition(".")[2] for name in written.names()]
    assert kinds == ["active", "sealed", "sealed"] or kinds == ["sealed", "sealed", "active"]


def check_hole(store: Store, number: int, first: int, last: int, name: str) -> None:
    """Every offset from `first` to `last` is refused with the file's name."""
    for offset in (first, (first + last) // 2, last):
        with pytest.raises(MissingRecords, match=name) as caught:
            read_once(store, store.partition(number), offset)
        assert (caught.value.first, caught.value.last) == (offset, last)


def test_cut_middle_segment(written: Written, copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = segment_path(written, copy, 1)
    cut(path, path.stat().st_size // 2)
    a, b, c = written.numbers
    for start in range(2):
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            store = open_store(copy)
        if start == 0:
            assert path.name in caplog.text
            assert "repair" in caplog.text
        assert not path.exists()
        # Its first segment, then a hole, then the third.
        whole = written.batches[a]
        edge = 2 * EACH
        assert read_batches_until(store, a, edge) == whole[:EACH]
        check_hole(store, a, edge, 2 * edge - 1, path.name)
        after = store.partition(a)
        assert [x for x in read_from(store, a, 2 * edge) if x[0] < 3 * edge] == whole[2 * EACH :]
        # The second ended in the lost one: never an offset again, and the epoch says so.
        partition = store.partition(b)
        assert partition.leader_epoch == 1
        assert partition.log_end_offset >= 2 * edge
        assert read_batches_until(store, b, edge) == written.batches[b][:EACH]
        if start == 0:
            check_hole(store, b, edge, partition.log_end_offset - 1, path.name)
            begun = partition.log_end_offset
            batch = make_batch(3, producer=(b, 0, 2 * 2 * EACH))
            assert put(store, partition, batch) == begun
            assert store.epoch_end(partition, 0) == (0, begun)
        else:
            check_hole(store, b, edge, begun - 1, path.name)
            assert read_from(store, b, begun) == [(begun, bytes(batch))]
        # The third is untouched.
        assert read_batches(store, store.partition(c)) == written.batches[c]
        assert after.leader_epoch == store.partition(c).leader_epoch == 0
        assert [k for k, _ in store.scan(Table.TOPICS)] == [
            b"segment-0",
            b"segment-1",
            b"segment-2",
        ]
        store.close()


def read_from(store: Store, number: int, offset: int) -> list[tuple[int, bytes]]:
    return read_batches(store, store.partition(number), offset)


def read_batches_until(store: Store, number: int, end: int) -> list[tuple[int, bytes]]:
    """What is read below `end`; every read stops there by itself or is cut there."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    partition = store.partition(number)
    while offset < end:
        result = read_once(store, partition, offset, 2000, end=end)
        for buffer in result.buffers:
            found += split(buffer)
        offset = end if not found else found[-1][0] + 2
    return found


def split(buffer: bytes | bytearray | memoryview) -> list[tuple[int, bytes]]:
    return [(h.base_offset, bytes(buffer[p : p + h.size])) for p, h in walk(buffer)]


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9])
def test_cut_active_segment(
    written: Written, copy: Path, part: float, caplog: pytest.LogCaptureFixture
) -> None:
    """What was acknowledged and is not there is told, never handed out again."""
    path = segment_path(written, copy, written_active(written))
    cut(path, int(path.stat().st_size * part) // 4096 * 4096)
    with caplog.at_level(logging.ERROR):
        store = open_store(copy)
    assert path.name in caplog.text
    for number in written.numbers:
        partition = store.partition(number)
        wanted = written.batches[number]
        sure = 2 * EACH if number == written.numbers[0] else 0
        in_sealed = [x for x in wanted if x[0] < 2 * 2 * EACH or not sure]
        assert read_batches_until(store, number, in_sealed[-1][0] + 2) == in_sealed
        end = wanted[-1][0] + 2
        assert partition.log_end_offset >= end
        assert partition.leader_epoch == 1
        if number == written.numbers[0]:
            check_hole(store, number, 4 * EACH, partition.log_end_offset - 1, path.name)
        before = partition.log_end_offset
        assert put(store, partition, make_batch(1)) == before
    store.close()
    store = open_store(copy)
    for number in written.numbers:
        assert store.partition(number).leader_epoch == 1
    store.close()


def written_active(written: Written) -> int:
    return next(i for i, name in enumerate(written.names()) if name.endswith("active"))


def flip(path: Path, position: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_flipped_bit_in_a_segment(written: Written, data: st.DataObject) -> None:
    """What is read is right, or an error names the file; the others do not suffer."""
    root = scratch("ottla-flipped-")
    copy = crash_copy(written.killed, root / "log")
    path = segment_path(written, copy, data.draw(st.integers(0, 2)))
    position = data.draw(st.integers(0, path.stat().st_size - 1))
    flip(path, position, data.draw(st.integers(0, 7)))
    try:
        store = open_store(copy)
        for number in written.numbers:
            check_partition(store, number, written.batches[number], path.name)
        store.close()
    finally:
        shutil.rmtree(root)


def check_partition(store: Store, number: int, wanted: list[tuple[int, bytes]], name: str) -> None:
    partition = store.partition(number)
    assert partition.log_end_offset >= wanted[-1][0] + 2
    for offset, batch in wanted:
        try:
            result = read_once(store, partition, offset, 1)
        except LogError as error:
            told = str(error)
            assert name[:20] in told  # it may be sealed by now
            continue
        # batch_length is what tells one batch from the next: clients go by it.
        (first, found), *_ = split(b"".join(result.buffers))
        assert first == offset
        assert without_epoch(found) == without_epoch(batch)
    epoch = partition.leader_epoch
    before = partition.log_end_offset
    assert put(store, partition, make_batch(1)) == before
    assert epoch in (0, 1)


def test_cut_state(written: Written, copy: Path) -> None:
    path = copy / "state.lmdb"
    cut(path, path.stat().st_size // 2)
    with pytest.raises(Damaged, match=r"state\.lmdb") as caught:
        open_store(copy)
    assert "repair" in str(caught.value)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_flipped_bit_in_the_state(written: Written, data: st.DataObject) -> None:
    root = scratch("ottla-flipped-")
    copy = crash_copy(written.killed, root / "log")
    path = copy / "state.lmdb"
    flip(path, data.draw(st.integers(0, path.stat().st_size - 1)), data.draw(st.integers(0, 7)))
    try:
        store = open_store(copy)
    except Damaged as error:
        told = str(error)
        assert "state.lmdb" in told
        shutil.rmtree(root)
        return
    try:
        rows = [k for k, _ in store.scan(Table.TOPICS)]
        assert rows == [b"segment-0", b"segment-1", b"segment-2"]
        for number in written.numbers:
            assert read_batches(store, store.partition(number)) == written.batches[number]
    except Damaged as error:
        told = str(error)
        assert "state.lmdb" in told
    finally:
        store.close()
        shutil.rmtree(root)


@pytest.mark.parametrize("where", ["warm", "cold"])
def test_segment_cut_while_it_is_served(tmp_path: Path, where: str) -> None:
    """Touching what is gone of a mapped file would end the process."""
    options = with_options(warm_segments=3 if where == "warm" else 0)
    store = open_store(tmp_path, options=options)
    a, b = new_partitions(store, 2)
    put(store, a, make_batch(size=9000))
    store.roll()
    kept = make_batch(size=9000)
    put(store, b, kept)
    store.roll()
    store.tick(1)
    path = store.layout.sealed[0].path
    cut(path, 4096)
    for _ in range(2):
        with pytest.raises(Damaged, match=path.name):
            read_once(store, a, 0)
    assert read_batches(store, b) == [(0, bytes(kept))]
    assert put(store, a, make_batch()) == 1
    store.close()
