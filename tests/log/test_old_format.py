"""Folders that format 1 wrote: they open, lose nothing, and become format 2 in time.

tests/log/folders has three of them, made by the last version that wrote format 1: after a clean
stop, after kill -9, and after a power cut that took the newest meta page. Each has sealed,
rewritten and active files, and says in expected.json what is in it.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.log.logkit import BOOT, make_batch, open_store, put, read_batches, without_epoch

from ottla.log.errors import NewerFormat
from ottla.log.folder import FORMAT
from ottla.log.options import Table
from ottla.log.outside import Outside
from ottla.log.repair import repair
from ottla.log.store import Store

FOLDERS = Path(__file__).parent / "folders"
KINDS = ["clean", "killed", "cut"]


def unpack(kind: str, to: Path) -> dict[str, Any]:
    """The folder, and what is in it."""
    with tarfile.open(FOLDERS / f"version-1-{kind}.tar.xz") as archive:
        archive.extractall(to, filter="data")
    expected = to / "expected.json"
    found: dict[str, Any] = json.loads(expected.read_text())
    expected.unlink()
    return found


def check(store: Store, expected: dict[str, Any]) -> None:
    for number, wanted in expected["partitions"].items():
        partition = store.partition(int(number))
        assert partition.log_start_offset == wanted["start"]
        digests = [
            [offset, hashlib.sha256(without_epoch(batch)).hexdigest()]
            for offset, batch in read_batches(store, partition)
        ]
        assert digests == [row for row in wanted["batches"] if row[0] >= wanted["start"]]
    for key, value in expected["rows"].items():
        assert store.get(Table.CLUSTER, key.encode()) == value.encode()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("boot", [BOOT, "boot-2"])
def test_a_folder_of_format_1_opens_with_all_that_is_in_it(
    tmp_path: Path, kind: str, boot: str
) -> None:
    if kind == "cut" and boot == BOOT:
        boot = "boot-3"  # a power cut is another boot
    expected = unpack(kind, tmp_path)
    store = open_store(tmp_path, boot_id=boot)
    check(store, expected)
    assert json.loads((tmp_path / "mark").read_text())["format"] == FORMAT
    assert store.layout.active.format == FORMAT
    partition = store.partition(1)
    end = partition.log_end_offset
    assert put(store, partition, make_batch(1)) == end
    store.close()
    store = open_store(tmp_path, boot_id=boot)
    assert store.partition(1).log_end_offset == end + 1
    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_repair_of_a_folder_of_format_1_loses_nothing(tmp_path: Path, kind: str) -> None:
    expected = unpack(kind, tmp_path)
    report = repair(tmp_path)
    assert not report.lost
    store = open_store(tmp_path, boot_id="boot-2")
    check(store, expected)
    store.close()


def test_files_of_format_1_are_rewritten_beside_the_work(tmp_path: Path) -> None:
    expected = unpack("clean", tmp_path)
    store = open_store(tmp_path)
    assert {segment.format for segment in store.layout.sealed} == {1}
    now = 0
    for _ in range(12):
        now += store.options.retention_check_ms
        for _ in range(20):
            now += 10
            store.tick(now)
    assert {segment.format for segment in store.layout.sealed} == {FORMAT}
    check(store, expected)
    outside = Outside(tmp_path)
    assert list(outside.extents(1, 0, 4))
    store.close()
    store = open_store(tmp_path)
    check(store, expected)
    store.close()


def test_a_version_that_knows_format_1_refuses_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack("clean", tmp_path)
    open_store(tmp_path).close()
    monkeypatch.setattr("ottla.log.folder.FORMAT", 1)
    with pytest.raises(NewerFormat, match=r"format 2.*up to 1"):
        open_store(tmp_path)
