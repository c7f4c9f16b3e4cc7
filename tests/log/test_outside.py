"""What another process reads of a folder that a broker has open: the same batches, no lock."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest
from tests.log.logkit import (
    commit,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    row,
    scratch,
)

from ottla.log import pages
from ottla.log.errors import Damaged, NotALog
from ottla.log.options import Table
from ottla.log.outside import Outside
from ottla.log.partition import Partition
from ottla.log.state import State
from ottla.log.store import Store
from ottla.wire.records import walk


@pytest.fixture
def folder() -> Iterator[Path]:
    path = scratch("outside-")
    yield path / "data"
    shutil.rmtree(path)


def batches(
    outside: Outside, partition: Partition, start: int = 0, end: int = 1 << 62
) -> list[tuple[int, bytes]]:
    return [
        (header.base_offset, bytes(extent.view[at : at + header.size]))
        for extent in outside.extents(partition.number, start, end)
        for at, header in walk(extent.view)
    ]


def filled(store: Store) -> tuple[Partition, Partition]:
    """Two partitions over three sealed segments, and some more in the active one."""
    one, two = new_partitions(store, 2)
    for segment in range(4):
        for fill in range(5):
            put(store, one, make_batch(3, fill=segment * 5 + fill, size=100))
            put(store, two, make_batch(1, fill=fill, size=9000))
        if segment < 3:
            store.roll()
            store.flush()
    return one, two


def test_sealed_segments_read_as_the_broker_reads_them(folder: Path) -> None:
    store = open_store(folder)
    one, two = filled(store)
    outside = Outside(folder)
    for partition, sealed in ((one, 45), (two, 15)):
        found = batches(outside, partition)
        assert found
        assert found == [b for b in read_batches(store, partition) if b[0] < sealed]
    store.close()


def test_a_range_is_found_by_its_offsets(folder: Path) -> None:
    store = open_store(folder)
    one, _ = filled(store)
    found = list(Outside(folder).extents(one.number, 16, 32))
    assert found[0].first <= 16 <= found[0].last
    assert found[-1].first < 32 <= found[-1].last + 1
    assert [extent.follows for extent in found] == [True] * len(found)
    assert list(Outside(folder).extents(99, 0, 100)) == []
    store.close()


def test_a_missing_file_does_not_pass_for_a_gap(folder: Path) -> None:
    store = open_store(folder)
    one, _ = filled(store)
    store.close()
    names = sorted((folder / "log").glob("*.sealed"))
    names[1].unlink()
    found = list(Outside(folder).extents(one.number, 0, 100))
    after = [extent for extent in found if extent.first >= 30]
    assert [extent.follows for extent in after][:2] == [False, True]


def test_a_file_that_is_replaced_while_it_is_read_is_read_once(folder: Path) -> None:
    store = open_store(folder)
    one, _ = filled(store)
    expected = [b for b in read_batches(store, one) if b[0] < 45]
    outside = Outside(folder)
    reading = outside.extents(one.number, 0, 100)
    found = [next(reading)]
    names = sorted((folder / "log").glob("*.sealed"))
    # as a rewrite does it: the same range in a higher generation, then the old file goes
    for name in names:
        name.rename(name.with_name(name.name.replace(".0.sealed", ".1.sealed")))
    found += reading
    seen = [header.base_offset for extent in found for _, header in walk(extent.view)]
    assert seen == [offset for offset, _ in expected]
    store.close()


def test_an_altered_extent_is_an_error(folder: Path) -> None:
    store = open_store(folder)
    one, _ = filled(store)
    store.close()
    name = sorted((folder / "log").glob("*.sealed"))[0]
    view = next(Outside(folder).extents(one.number, 0, 3)).view.tobytes()
    altered = view[:70] + bytes([view[70] ^ 1]) + view[71:]
    # LMDB's pages that are not in the tree any more have copies of it
    name.write_bytes(name.read_bytes().replace(view, altered))
    with pytest.raises(Damaged, match="altered"):
        list(Outside(folder).extents(one.number, 0, 3))


def test_rows_of_the_checkpoint(folder: Path) -> None:
    store = open_store(folder)
    commit(store, [row(Table.TOPICS, b"topic-%04d" % i, b"v" * i) for i in range(3000)])
    store.tick(10_000)
    store.close()
    found = Outside(folder).rows(
        [
            (Table.TOPICS, b"topic-0000"),
            (Table.TOPICS, b"topic-2999"),
            (Table.TOPICS, b"topic-1234"),
            (Table.TOPICS, b"topic-1234x"),
            (Table.CONFIGS, b""),
        ]
    )
    assert found == [b"", b"v" * 2999, b"v" * 1234, None, None]


def test_rows_hold_while_checkpoints_are_written(folder: Path) -> None:
    """What is read is the one or the other checkpoint, whatever is written meanwhile."""
    open_store(folder).close()
    state = State(folder / "state.lmdb", sync=False)
    for turn in range(200):
        value = b"%d" % turn * 50
        state.apply([row(Table.TOPICS, b"k%d" % key, value) for key in range(50)])
        state.write(state.freeze(), turn)
        state.thaw(turn)
        found = Outside(folder).rows([(Table.TOPICS, b"k%d" % key) for key in range(50)])
        assert set(found) == {value}
    state.close()


def test_a_tree_that_moves_on_while_it_is_read_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(folder).close()
    state = State(folder / "state.lmdb", sync=False)

    def write(turn: int) -> None:
        state.apply([row(Table.TOPICS, b"a", b"%d" % turn), row(Table.TOPICS, b"b", b"%d" % turn)])
        state.write(state.freeze(), turn)
        state.thaw(turn)

    write(0)
    find = pages.find
    looks = 0

    def moving(file: memoryview, meta: pages.Meta, key: bytes) -> pages.Value | None:
        nonlocal looks
        looks += 1
        if looks == 2:
            for turn in range(1, 6):
                write(turn)
        return find(file, meta, key)

    monkeypatch.setattr("ottla.log.outside.pages.find", moving)
    found = Outside(folder).rows([(Table.TOPICS, b"a"), (Table.TOPICS, b"b")])
    assert found == [b"5", b"5"]
    assert looks == 4
    state.close()


def test_looking_up_finds_what_lmdb_has(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    env = lmdb.Environment(str(path), subdir=False, map_size=1 << 26, lib_version=0)
    rows = {b"%05d" % (i * 7): bytes([i % 256]) * (i % 5000) for i in range(4000)}
    with env.begin(write=True) as txn:
        for key, value in rows.items():
            txn.put(key, value)
    env.close()
    file = memoryview(path.read_bytes())
    meta = pages.read_meta(file)
    for number in range(0, 28_000, 3):
        key = b"%05d" % number
        found = pages.find(file, meta, key)
        end = 0 if found is None else found.position + found.size
        there = None if found is None else bytes(file[found.position : end])
        assert there == rows.get(key)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="not an Ottla data folder"):
        Outside(tmp_path)
