"""Files without an index at a start: in which order they are sealed, which of them is written
again, and when one of them says that commits are missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.log.logkit import (
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
    with_options,
)
from tests.log.test_old_format import unpack
from tests.log.test_power_cut import files, put_metas

from ottla.log import maintenance, pages
from ottla.log.commit import Extent, encode
from ottla.log.errors import WriteFailed
from ottla.log.folder import FORMAT
from ottla.log.partition import Partition
from ottla.log.repair import repair
from ottla.log.sealing import seal
from ottla.log.segment import ActiveSegment, SealedSegment
from ottla.log.store import Store
from ottla.log.writer import CommitFailed
from ottla.wire.records import patch


def never_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on rolled segments stay as they are."""
    monkeypatch.setattr(maintenance.Maintenance, "seal", lambda self: None)


def offsets(store: Store, number: int) -> list[int]:
    return [offset for offset, _ in read_batches(store, store.partition(number))]


def roll_with(store: Store, partition: Partition, fill: int) -> None:
    """A commit in a segment of its own."""
    put(store, partition, make_batch(fill=fill))
    store.roll()


# ------------------------------------------------------------------------------ order of the seals


def test_no_file_is_sealed_before_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Reads look at sealed files first: records of the older one would be passed over."""
    store = open_store(tmp_path)
    (partition,) = new_partitions(store)
    stuck = store.layout.active.first

    def sealing(folder: object, segment: ActiveSegment, pause: object) -> SealedSegment:
        if segment.first == stuck:
            raise OSError(28, "No space left on device")
        return seal(folder, segment, pause)  # type: ignore[arg-type] # passed on as they are

    monkeypatch.setattr(maintenance, "seal", sealing)
    for fill in range(4):
        roll_with(store, partition, fill)
    assert "No space left" in caplog.text
    assert not store.layout.sealed
    assert offsets(store, partition.number) == [0, 1, 2, 3]
    stuck = -1
    store.tick(10_000)
    assert [segment.first for segment in store.layout.sealed] == [1, 3, 4, 5]
    assert not store.layout.rolled
    assert offsets(store, partition.number) == [0, 1, 2, 3]
    store.close()


def test_a_start_seals_what_lies_before_a_sealed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions before left such folders behind a seal that failed."""
    store = open_store(tmp_path / "a")
    (partition,) = new_partitions(store)
    never_seal(monkeypatch)
    for fill in range(3):
        roll_with(store, partition, fill)
    middle = store.layout.rolled[1]
    seal(store.folder, middle, lambda: None)
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    again = open_store(killed)
    assert [segment.first for segment in again.layout.sealed] == [1, middle.first]
    assert again.partition(partition.number).log_end_offset == 3
    assert offsets(again, partition.number) == [0, 1, 2]
    again.close()


def test_a_file_whose_newest_tree_is_torn_is_sealed_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree before it holds, but LMDB looks at the newest, and may end the process."""
    store = open_store(tmp_path / "a")
    (partition,) = new_partitions(store)
    roll_with(store, partition, 0)
    never_seal(monkeypatch)
    roll_with(store, partition, 1)
    torn = store.layout.active
    for fill in range(2, 60):
        put(store, partition, make_batch(size=400, fill=fill))
    store.roll()
    put(store, partition, make_batch(fill=60))
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    path = killed / "log" / torn.path.name
    data = bytearray(path.read_bytes())
    root = pages.read_meta(memoryview(bytes(data))).root * 4096
    data[root : root + 4096] = bytes(4096)
    path.write_bytes(data)
    store = open_store(killed, boot_id="boot-2")
    assert torn.first in [segment.first for segment in store.layout.sealed]
    assert offsets(store, partition.number) == list(range(61))
    assert not store.layout.missing
    store.close()


# -------------------------------------------------------------------------- files written no more


def test_repair_does_not_let_an_unclean_stops_file_be_written_again(tmp_path: Path) -> None:
    """It may hold parts of a commit that was never acknowledged; its number is given out next."""
    store = open_store(tmp_path / "a")
    (partition,) = new_partitions(store)
    put(store, partition, make_batch())
    old = store.layout.active.path.name
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    assert not repair(killed).lost
    again = open_store(killed)
    assert again.layout.active.path.name != old
    assert offsets(again, partition.number) == [0]
    again.close()


def test_a_failed_commit_is_ignored_where_the_file_behind_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_seal(monkeypatch)
    store = open_store(tmp_path / "a")
    (partition,) = new_partitions(store)
    put(store, partition, make_batch(fill=1))
    old = store.layout.active
    failed = store.committed + 1
    batch = make_batch(fill=7)
    patch(batch, 0, 1, 0)
    extent = Extent(partition.number, 0, 1, 1, 5, len(batch), [batch])
    old.write(encode(failed, 5, [extent], [], 1 << 20, old.salt)[0])
    store.pipeline._failed(CommitFailed(WriteFailed("no flush"), True))
    put(store, partition, make_batch(fill=2))
    assert store.layout.active.first == failed
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    put_metas(killed / "log" / store.layout.active.path.name, bytes(8192))
    store.close()
    for turn in range(3):
        store = open_store(killed)
        assert store.layout.rolled[0].last == failed - 1
        killed = crash_copy(killed, tmp_path / f"again-{turn}")
        store.close()


# ------------------------------------------------------------------------------------------- holes


def test_a_file_that_lost_all_its_commits_is_a_hole_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk lost what it had said it had written: an empty file with a later one behind it."""
    store = open_store(tmp_path / "a")
    (partition,) = new_partitions(store)
    roll_with(store, partition, 1)
    store.tick(1)
    active = store.layout.active
    empty = active.path.read_bytes()
    for fill in range(3):
        put(store, partition, make_batch(fill=fill))
    with monkeypatch.context() as patched:
        never_seal(patched)
        store.roll()
    put(store, partition, make_batch(fill=9))
    lost = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    (lost / "log" / active.path.name).write_bytes(empty)
    first, last = active.first, active.last
    store = open_store(lost, boot_id="boot-2")
    assert f"commits {first} to {last} were acknowledged" in caplog.text
    assert active.path.name not in files(lost)
    for turn in range(3):
        caplog.clear()
        killed = crash_copy(lost, tmp_path / f"c{turn}")
        store.close()
        lost = killed
        store = open_store(lost, boot_id=f"boot-{turn + 3}")
        assert "acknowledged" not in caplog.text
        assert [(missing.first, missing.last) for missing in store.layout.missing] == [
            (first, last)
        ]
    store.close()
    assert repair(lost).lost
    store = open_store(lost)
    assert "acknowledged" not in caplog.text
    assert not store.layout.missing
    store.close()


def test_an_empty_file_alone_is_no_hole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(tmp_path / "a")
    (partition,) = new_partitions(store)
    roll_with(store, partition, 1)
    killed = tmp_path / "a"
    for turn in range(4):
        killed = crash_copy(killed, tmp_path / f"k{turn}")
        store.close()
        if turn & 1:
            assert not repair(killed).lost
        store = open_store(killed, boot_id=f"boot-{turn}")
        assert store.partition(partition.number).log_end_offset == 1
        assert not store.layout.missing
    store.close()
    assert "acknowledged" not in caplog.text


def test_an_end_that_is_lost_is_told_though_an_older_file_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """How far a file went that was the newest when it was set aside is known when another is
    behind it."""
    store = open_store(tmp_path / "a")
    (partition,) = new_partitions(store)
    put(store, partition, make_batch(fill=1))
    name = store.layout.active.path.name
    killed = crash_copy(tmp_path / "a", tmp_path / "b")
    store.close()
    put_metas(killed / "log" / name, bytes(8192))
    store = open_store(killed)
    found = store.partition(partition.number)
    early = store.layout.active.path.read_bytes()
    name = store.layout.active.path.name
    for fill in range(3):
        put(store, found, make_batch(fill=fill))
    store.tick(10_000)
    store._maintenance.checkpoint()
    applied = store.state.applied
    assert applied == store.committed
    lost = crash_copy(killed, tmp_path / "c")
    store.close()
    (lost / "log" / name).write_bytes(early)
    caplog.clear()
    store = open_store(lost, boot_id="boot-2")
    assert f"to {applied} were acknowledged" in caplog.text
    assert store.committed >= applied
    store.close()


# ---------------------------------------------------------------------------------------- the mark


@pytest.mark.parametrize("how", ["start", "repair"])
def test_the_marks_format_is_raised_before_a_file_of_it_is_made(tmp_path: Path, how: str) -> None:
    """An older version must not open half of a newer folder."""
    unpack("cut", tmp_path)
    seen: list[int] = []

    def step(name: str) -> None:
        if name in ("roll: create", "rewrite: create"):
            seen.append(json.loads((tmp_path / "mark").read_text())["format"])

    if how == "start":
        open_store(tmp_path, boot_id="boot-3", step=step).close()
    else:
        repair(tmp_path, step=step)
    assert seen
    assert set(seen) == {FORMAT}


def test_the_commit_that_a_cut_left_is_flushed_whatever_the_durability(tmp_path: Path) -> None:
    """It was acknowledged under `fsync`, and the file it lay in is cut when it is sealed."""
    unpack("cut", tmp_path)
    steps: list[str] = []
    options = with_options(durability="os")
    open_store(tmp_path, boot_id="boot-3", options=options, step=steps.append).close()
    assert steps.index("roll: sync folder") < steps.index("mark: rename", 3)
