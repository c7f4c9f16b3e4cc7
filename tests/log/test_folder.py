"""Opening a folder: the lock, the format, what was left by whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.log.logkit import (
    append,
    commit,
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    with_options,
)

from ottla.log.errors import Damaged, FolderLocked, NewerFormat, NotALog, UncleanFolder
from ottla.log.folder import SealedName
from ottla.log.options import Change, Table
from ottla.log.repair import repair

OS = with_options(durability="os")


def test_two_stores_cannot_open_one_folder(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(FolderLocked) as caught:
        open_store(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert f"pid {os.getpid()}" in str(caught.value)
    store.close()
    open_store(tmp_path).close()


def test_another_process_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.log.logkit import open_store; from pathlib import Path;"
        "open_store(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"open\n"
    with pytest.raises(FolderLocked, match=f"pid {process.pid}"):
        open_store(tmp_path)
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    open_store(tmp_path).close()


def rewrite_mark(path: Path, **fields: object) -> None:
    mark = json.loads((path / "mark").read_text())
    (path / "mark").write_text(json.dumps(mark | fields))


def test_newer_folder_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    rewrite_mark(tmp_path, format=3)
    with pytest.raises(NewerFormat, match=r"format 3.*up to 2"):
        open_store(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "x"}', '{"format": 1}'])
def test_unreadable_mark_is_refused(tmp_path: Path, text: str) -> None:
    open_store(tmp_path).close()
    (tmp_path / "mark").write_text(text)
    with pytest.raises(NotALog, match="mark is not readable"):
        open_store(tmp_path)


def test_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(NotALog, match="holiday"):
        open_store(tmp_path)
    assert (tmp_path / "holiday.jpg").exists()


@pytest.mark.parametrize("content", ["notes.txt", "log/syslog", "log/old/file"])
def test_a_foreign_folder_is_left_as_it_is(tmp_path: Path, content: str) -> None:
    """Also one with a folder `log` of its own, and also by a repair."""
    (tmp_path / content).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / content).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for use in (open_store, repair):
        with pytest.raises(NotALog):
            use(tmp_path)
        assert sorted(tmp_path.rglob("*")) == before


def test_segments_without_a_mark_are_refused(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    (tmp_path / "mark").unlink()
    with pytest.raises(NotALog, match="mark is missing"):
        open_store(tmp_path)


def test_stop_is_clean_and_kill_is_not(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    assert json.loads((tmp_path / "a" / "mark").read_text())["clean"] is True
    assert json.loads((tmp_path / "b" / "mark").read_text())["clean"] is False
    store.close()


def test_power_cut_under_os_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a", options=OS)
    (partition,) = new_partitions(store)
    put(store, partition, make_batch())
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    # A kill of the process loses nothing.
    same = open_store(crash_copy(killed, tmp_path / "c"), options=OS)
    assert len(read_batches(same, same.partition(partition.number))) == 1
    same.close()
    for options in (OS, with_options(durability="fsync")):
        with pytest.raises(UncleanFolder, match="ottla repair"):
            open_store(killed, options=options, boot_id="boot-2")
    # A clean stop is as good as fsync.
    open_store(tmp_path / "a", options=OS, boot_id="boot-2").close()


def test_fsync_after_os_flushes_what_was_acknowledged(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a", options=OS)
    (partition,) = new_partitions(store)
    put(store, partition, make_batch())
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    store = open_store(killed)
    after = crash_copy(killed, tmp_path / "c")
    store.close()
    store = open_store(after, boot_id="boot-2")
    assert len(read_batches(store, store.partition(partition.number))) == 1
    store.close()


def test_power_cut_under_fsync_verifies_before_opening(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a")
    commit(store, [Change(Table.TOPICS, b"t", b"x")])
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    store = open_store(killed, boot_id="boot-2")
    assert store.get(Table.TOPICS, b"t") == b"x"
    assert json.loads((killed / "mark").read_text())["boot_id"] == "boot-2"
    store.close()


def test_state_that_cannot_be_opened_names_the_way_out(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    (tmp_path / "state.lmdb").write_bytes(b"x" * 10_000)
    with pytest.raises(Damaged, match=r"state\.lmdb.*ottla repair"):
        open_store(tmp_path)
    # The lock is free again.
    with pytest.raises(Damaged):
        open_store(tmp_path)


def test_widest_complete_file_hides_what_it_replaces() -> None:
    narrow, wide = SealedName(1, 10, 3), SealedName(1, 20, 0)
    assert wide.hides(narrow)
    assert not narrow.hides(wide)
    assert SealedName(1, 10, 4).hides(narrow)
    assert not narrow.hides(narrow)
    assert not SealedName(5, 20, 0).hides(narrow)
    assert SealedName.parse(str(narrow)) == narrow
    assert SealedName.parse(f"{narrow}.bad") is None


def metas(path: Path) -> bytes:
    """Both meta pages of an LMDB file."""
    with open(path, "rb") as file:
        return file.read(2 * 4096)


def put_metas(path: Path, pages: bytes) -> None:
    with open(path, "r+b") as file:
        file.write(pages)


@pytest.mark.parametrize("size", [10, 1500, 5000, 20_000])
def test_power_cut_before_the_last_meta_page_reached_the_disk(tmp_path: Path, size: int) -> None:
    """A commit is one flush, of its data: the page that names it may be older after a power cut."""
    options = with_options(segment_bytes=16 << 20)
    store = open_store(tmp_path / "a", options=options)
    partitions = new_partitions(store, 2)
    active = store.layout.active.path
    snapshots = []
    for turn in range(12):
        snapshots.append(metas(active))
        done = []
        for partition in partitions:
            sequence = 2 * turn
            batch = make_batch(2, size=size, fill=turn, producer=(partition.number, 0, sequence))
            done.append(append(store, partition, batch))
        commit(store, [Change(Table.TOPICS, b"turn", b"%d" % turn)])
        wanted = [read_batches(store, p) for p in partitions]
        # A power cut: everything was flushed but the newest meta page.
        killed = crash_copy(tmp_path / "a", tmp_path / f"cut-{turn}")
        put_metas(killed / "log" / active.name, snapshots[-1])
        again = open_store(killed, boot_id="boot-2", options=options)
        for partition, batches in zip(partitions, wanted, strict=True):
            found = again.partition(partition.number)
            assert read_batches(again, found) == batches
            assert found.leader_epoch == 0
            repeat = make_batch(2, size=size, fill=turn, producer=(partition.number, 0, sequence))
            assert append(again, found, repeat).duplicate
            put(again, found, make_batch(1))
        assert again.get(Table.TOPICS, b"turn") == b"%d" % turn
        assert not again.layout.missing
        again.close()
    store.close()


def test_power_cut_in_a_rolled_segment(tmp_path: Path) -> None:
    """The same, with the segment rolled already and not sealed yet."""
    copies: list[Path] = []
    older: list[bytes] = []

    def step(name: str) -> None:
        if name == "seal: open":
            killed = crash_copy(tmp_path / "a", tmp_path / f"cut-{len(copies)}")
            (rolled,) = (killed / "log").glob("*1.active")
            put_metas(rolled, older[-1])
            copies.append(killed)

    store = open_store(tmp_path / "a", step=step)
    (partition,) = new_partitions(store)
    for turn in range(4):
        older.append(metas(store.layout.active.path))
        put(store, partition, make_batch(fill=turn))
    store.roll()
    wanted = read_batches(store, partition)
    (killed,) = copies
    again = open_store(killed, boot_id="boot-2")
    assert read_batches(again, again.partition(partition.number)) == wanted
    assert put(again, again.partition(partition.number), make_batch()) == 4
    again.close()
    store.close()


@pytest.mark.parametrize("left", [None, b"", b"x" * 4096])
def test_kill_while_the_first_checkpoint_file_was_made(tmp_path: Path, left: bytes | None) -> None:
    """All journals are there: nothing is lost with it."""
    store = open_store(tmp_path / "a")
    commit(store, [Change(Table.TOPICS, b"t", b"x")])
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    (killed / "state.lmdb").unlink()
    if left is not None:
        (killed / "state.lmdb").write_bytes(left)
    store = open_store(killed)
    assert store.get(Table.TOPICS, b"t") == b"x"
    store.close()
