"""`ottla repair`: what can be read is kept, what cannot is told, nothing is given out twice."""

from __future__ import annotations

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
    read_once,
    scratch,
    with_options,
    without_epoch,
)

from ottla.log.errors import Damaged, FolderLocked, MissingRecords, NotALog, UncleanFolder
from ottla.log.options import Change, Table
from ottla.log.repair import Report, repair
from ottla.log.store import Store
from ottla.wire.records import walk

EACH = 8


class Written:
    """Two sealed segments, one of them rewritten by a repair of nothing; one active; two
    partitions; a large batch (a value of its own) now and then."""

    def __init__(self, path: Path, durability: str = "fsync") -> None:
        self.path = path
        options = with_options(durability=durability)
        self.store = store = open_store(path, options=options)
        self.numbers = [p.number for p in new_partitions(store, 2)]
        self.batches: dict[int, list[tuple[int, bytes]]] = {n: [] for n in self.numbers}
        for segment in range(3):
            for turn in range(EACH):
                for number in self.numbers:
                    self.put(number, 9000 if turn == 3 else 300)
            store.change([Change(Table.TOPICS, b"segment-%d" % segment, b"x")])
            store.flush()
            if segment < 2:
                store.roll()
                store.tick(segment)

    def put(self, number: int, size: int) -> None:
        mine = self.batches[number]
        batch = make_batch(
            2, size=size, fill=len(mine) + number, producer=(number, 0, 2 * len(mine))
        )
        offset = put(self.store, self.store.partition(number), batch)
        mine.append((offset, without_epoch(bytes(batch))))


def segments(path: Path) -> list[Path]:
    """Sealed, sealed, active; by commit."""
    return sorted(p for p in (path / "log").iterdir() if "-lock" not in p.name)


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    root = scratch("ottla-repair-")
    made = Written(root / "log")
    crash_copy(made.path, root / "killed")
    made.path = root / "killed"
    yield made
    made.store.close()
    shutil.rmtree(root)


@pytest.fixture
def copy(written: Written) -> Iterator[Path]:
    root = scratch("ottla-repaired-")
    yield crash_copy(written.path, root / "log")
    shutil.rmtree(root)


def flip(path: Path, position: int, bit: int = 3) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def read_all(store: Store, number: int) -> list[tuple[int, bytes]]:
    """Everything there is, over gaps."""
    partition = store.partition(number)
    offset = partition.log_start_offset
    found = []
    while offset < partition.high_watermark:
        result = read_once(store, partition, offset, 2000)
        if not result.buffers:
            break  # the next offset was raised: nothing lies between
        for buffer in result.buffers:
            for pos, header in walk(buffer):
                batch = bytes(buffer[pos : pos + header.size])
                found.append((header.base_offset, without_epoch(batch)))
                offset = header.next_offset
    return found


def test_sound_folder_is_left_as_it_is(written: Written, copy: Path) -> None:
    before = [p.name for p in segments(copy)]
    report = repair(copy)
    assert not report.lost
    assert report.lines()[-1] == "nothing is lost"
    # One more, without content: what an unclean stop left is not written again.
    *same, added = [p.name for p in segments(copy)]
    assert same == before
    assert added.endswith(".active")
    assert not repair(copy).lost
    assert [p.name for p in segments(copy)] == [*before, added]
    store = open_store(copy)
    for number in written.numbers:
        assert read_all(store, number) == written.batches[number]
    store.close()


def test_flipped_batch_in_a_sealed_segment(written: Written, copy: Path) -> None:
    path = segments(copy)[1]
    number = written.numbers[0]
    victim = written.batches[number][EACH + 5]
    # LMDB leaves older copies of small values in pages that it no longer uses.
    altered = bytearray(victim[1][20:])
    altered[100] ^= 8
    path.write_bytes(path.read_bytes().replace(victim[1][20:], altered))
    store = open_store(copy)
    with pytest.raises(Damaged, match=path.name):
        read_once(store, store.partition(number), victim[0])
    store.close()
    report = repair(copy)
    assert [(g.partition, g.first, g.last) for g in report.gaps] == [
        (number, victim[0], victim[0] + 1)
    ]
    assert any(path.name in line for line in report.lines())
    check_after(written, copy, lost={number: [victim]})


def check_after(
    written: Written, copy: Path, lost: dict[int, list[tuple[int, bytes]]], *, at_end: bool = False
) -> None:
    """The rest is there, the folder opens and takes records, and again after a restart."""
    for turn in range(2):
        store = open_store(copy)
        for number in written.numbers:
            wanted = [b for b in written.batches[number] if b not in lost.get(number, [])]
            assert [b for b in read_all(store, number) if b in written.batches[number]] == wanted
            partition = store.partition(number)
            end = partition.log_end_offset
            assert end >= written.batches[number][-1][0] + 2
            assert partition.leader_epoch == (1 if at_end else 0)
            assert put(store, partition, make_batch(1, fill=turn)) == end
        assert {k for k, _ in store.scan(Table.TOPICS)} == {
            b"segment-0",
            b"segment-1",
            b"segment-2",
        }
        assert not store.layout.missing
        store.close()


def test_index_of_a_sealed_segment_is_gone(written: Written, copy: Path) -> None:
    """Its commits are all there: nothing is lost."""
    path = segments(copy)[1]
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 100)
    report = repair(copy)
    assert not report.gaps
    check_after(written, copy, lost={})


def test_segment_that_a_start_set_aside(written: Written, copy: Path) -> None:
    path = segments(copy)[0]
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    store = open_store(copy)
    number = written.numbers[0]
    last = written.batches[number][EACH - 1][0]
    with pytest.raises(MissingRecords):
        read_once(store, store.partition(number), last)
    store.close()
    report = repair(copy)
    assert report.lost
    store = open_store(copy)
    kept = read_all(store, number)
    assert kept == [b for b in written.batches[number] if b in kept]
    assert kept[-2 * EACH :] == written.batches[number][EACH:]
    assert len(kept) > 2 * EACH, "part of the first segment could be read"
    gaps = [g for g in report.gaps if g.partition == number]
    held = {offset for offset, _ in kept}
    for offset, _ in written.batches[number]:
        assert (offset in held) != any(g.first <= offset <= g.last for g in gaps)
    store.close()
    assert not [p for p in (copy / "log").iterdir() if p.name.endswith(".bad")]


def test_active_segment_whose_tree_is_torn(written: Written, copy: Path) -> None:
    """LMDB's pages are useless, the commits are found by themselves."""
    path = segments(copy)[2]
    data = bytearray(path.read_bytes())
    data[0 : 2 * 4096] = bytes(2 * 4096)  # both meta pages
    path.write_bytes(data)
    report = repair(copy)
    assert all(g.skipped for g in report.gaps)
    check_after(written, copy, lost={}, at_end=True)


def test_power_cut_under_os(tmp_path: Path) -> None:
    written = Written(tmp_path / "a", durability="os")
    killed = crash_copy(written.path, tmp_path / "killed")
    written.store.close()
    # The newest pages never reached the disk.
    path = segments(killed)[2]
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])
    with pytest.raises(UncleanFolder):
        open_store(killed, boot_id="boot-2")
    report = repair(killed)
    assert report.lost
    store = open_store(killed, boot_id="boot-2")
    for number in written.numbers:
        kept = read_all(store, number)
        assert kept == [b for b in written.batches[number] if b in kept]
        assert kept[: 2 * EACH] == written.batches[number][: 2 * EACH]
        partition = store.partition(number)
        assert partition.leader_epoch == 1
        end = partition.log_end_offset
        assert end >= written.batches[number][-1][0] + 2
        assert put(store, partition, make_batch(1)) == end
        # A consumer at the end of what is left goes on with what comes.
        after = kept[-1][0] + 2
        assert read_once(store, partition, after).size > 0
    store.close()


def test_state_that_is_gone(written: Written, copy: Path) -> None:
    path = copy / "state.lmdb"
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(Damaged):
        open_store(copy)
    report = repair(copy)
    assert any("state.lmdb" in name for name, _ in report.files)
    assert not report.lost, "all journals are still there"
    check_after(written, copy, lost={})


def swept(path: Path) -> dict[bytes, bytes]:
    """A folder whose first segments, and their journals, are gone; its rows of TOPICS."""
    store = open_store(path)
    (a,) = new_partitions(store)
    for turn in range(6):
        rows = [(b"row-%d" % turn, b"x"), (b"same", b"%d" % turn)]
        store.change([Change(Table.TOPICS, key, value) for key, value in rows])
        put(store, a, make_batch(fill=turn))
        store.roll()
        store.tick(10_000 * turn)
    store.delete_records(a, 4)
    store.flush()
    for now_ms in range(100_000, 110_000, 500):
        store.tick(now_ms)
    assert store.layout.sealed[0].first > 1
    assert store.copy.applied >= store.layout.sealed[0].first - 1
    rows_now = dict(store.scan(Table.TOPICS))
    assert len(rows_now) == 7
    crash_copy(path, path.with_name("killed"))
    store.close()
    return rows_now


def test_state_is_put_together_from_its_copy(tmp_path: Path) -> None:
    rows = swept(tmp_path / "log")
    killed = tmp_path / "killed"
    for gone in (b"gone" * 5000, b"cut", None):
        (killed / "state.lmdb").unlink(missing_ok=True)
        if gone is not None:
            (killed / "state.lmdb").write_bytes(gone)
        with pytest.raises(Damaged, match="repair"):
            open_store(killed)
    report = repair(killed)
    assert not report.lost
    assert any(".copy" in what for _, what in report.files)
    store = open_store(killed)
    assert dict(store.scan(Table.TOPICS)) == rows
    assert store.partition(1).log_start_offset == 4
    assert [base for base, _ in read_all(store, 1)] == [4, 5]
    store.close()


def test_state_and_its_copy_are_gone(tmp_path: Path) -> None:
    swept(tmp_path / "log")
    killed = tmp_path / "killed"
    for path in (killed / "state.lmdb", *killed.glob("*.copy")):
        path.write_bytes(b"gone" * 5000)
    report = repair(killed)
    assert report.lost
    assert any("journals" in note for note in report.notes)
    store = open_store(killed)
    assert dict(store.scan(Table.TOPICS))[b"same"] == b"5"
    # The partition's own row is gone with its journal, and its number is not given out again.
    (fresh,) = new_partitions(store)
    assert fresh.number == 2
    store.close()


def test_mark_that_is_gone(written: Written, copy: Path) -> None:
    (copy / "mark").unlink()
    with pytest.raises(NotALog):
        open_store(copy)
    repair(copy)
    store = open_store(copy)
    for number in written.numbers:
        assert read_all(store, number) == written.batches[number]
    store.close()


def test_refuses_what_is_open_or_not_ours(written: Written, copy: Path, tmp_path: Path) -> None:
    store = open_store(copy)
    with pytest.raises(FolderLocked):
        repair(copy)
    store.close()
    with pytest.raises(NotALog):
        repair(tmp_path)
    assert not list(tmp_path.iterdir())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_damage_to_any_segment(written: Written, data: st.DataObject) -> None:
    """What is kept is right; what is not kept is told; the folder opens."""
    root = scratch("ottla-repair-any-")
    copy = crash_copy(written.path, root / "log")
    try:
        for _ in range(data.draw(st.integers(1, 4))):
            path = segments(copy)[data.draw(st.integers(0, 2))]
            size = path.stat().st_size
            if not size:
                continue
            if data.draw(st.integers(0, 3)):
                flip(path, data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, 7)))
            else:
                with open(path, "r+b") as file:
                    file.truncate(data.draw(st.integers(0, size)))
        if data.draw(st.booleans()):
            open_store(copy).close()
        report = repair(copy)
        check_told(written, copy, report)
    finally:
        shutil.rmtree(root)


def check_told(written: Written, copy: Path, report: Report) -> None:
    store = open_store(copy)
    for number in written.numbers:
        kept = read_all(store, number)
        wanted = written.batches[number]
        assert kept == [b for b in wanted if b in kept]
        gaps = [g for g in report.gaps if g.partition == number]
        for offset, batch in wanted:
            told = any(g.first <= offset <= g.last for g in gaps)
            assert ((offset, batch) in kept) != told
        partition = store.partition(number)
        end = partition.log_end_offset
        assert end >= wanted[-1][0] + 2
        assert put(store, partition, make_batch(1)) == end
    store.close()
