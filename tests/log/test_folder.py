"""Opening a folder: the lock, the format, what was left by whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.log.logkit import (
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
    rewrite_mark(tmp_path, format=2)
    with pytest.raises(NewerFormat, match=r"format 2.*up to 1"):
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
