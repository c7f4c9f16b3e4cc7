"""Failed commits, a full disk, a failed flush: what was admitted is answered, the rest goes on."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

from ottla.log.errors import DiskFull, LogError, WriteFailed
from ottla.log.folder import Step, no_step
from ottla.log.options import Change, PartitionSettings, Table
from ottla.log.pipeline import RETRY_MS
from ottla.log.store import Store
from ottla.wire.errors import Error, KafkaError


class Disk:
    """Fails the file operations that it is told to."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}
        self.free = 1 << 40

    def step(self, name: str) -> None:
        if name in self.failing:
            raise OSError(self.failing[name], os.strerror(self.failing[name]))


class Flushes:
    """An environment that writes down when it is flushed."""

    def __init__(self, env: Any, path: Path, flushed: list[Path]) -> None:
        self._env = env
        self._path = path
        self._flushed = flushed

    def sync(self, force: bool) -> None:
        self._env.sync(force)
        self._flushed.append(self._path)

    def close(self) -> None:
        self._env.close()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def store(tmp_path: Path, disk: Disk) -> Iterator[Store]:
    made = open_store(tmp_path / "log", step=disk.step)
    made.folder.free_bytes = lambda: disk.free  # type: ignore[method-assign] # the fake disk
    yield made
    made.close()


def names(store: Store) -> list[str]:
    return sorted(p.name for p in store.folder.segments.iterdir() if "-lock" not in p.name)


@pytest.mark.parametrize("where", ["commit: write", "commit: written"])
def test_failed_commit_fails_everything_behind_it(store: Store, disk: Disk, where: str) -> None:
    a, b = new_partitions(store, 2)
    put(store, a, make_batch())
    resets: list[LogError] = []
    store.on_reset(resets.append)
    disk.failing[where] = errno.EIO
    first = append(store, a, make_batch(3, producer=(5, 0, 0)))
    second = append(store, b, make_batch())
    change = store.change([Change(Table.TOPICS, b"x", b"y")])
    assert (first.base_offset, second.base_offset) == (1, 0)
    store.flush()
    for ticket in (first.ticket, second.ticket, change):
        assert ticket.done
        assert isinstance(ticket.error, WriteFailed)
        assert "00000000000000000001.active" in str(ticket.error)
    assert resets == [first.ticket.error]
    disk.failing.clear()
    assert store.refusing is None, "a new segment took over"
    assert names(store) == ["00000000000000000001-00000000000000000002.0.sealed",
                            "00000000000000000003.active"]  # fmt: skip
    # Offsets and sequences are as if the batches had never been sent.
    assert (a.log_end_offset, a.high_watermark, b.log_end_offset) == (1, 1, 0)
    assert put(store, a, make_batch(2, producer=(5, 0, 0))) == 1
    assert put(store, b, make_batch()) == 0
    assert store.get(Table.TOPICS, b"x") is None
    kept = [read_batches(store, p) for p in (a, b)]
    again = open_store(crash_copy(store.folder.path, store.folder.path.with_name("killed")))
    assert [read_batches(again, again.partition(p.number)) for p in (a, b)] == kept
    assert again.get(Table.TOPICS, b"x") is None
    again.close()


def test_a_clean_stop_leaves_nothing_to_the_system(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "log", options=with_options(durability="os"), step=disk.step)
    (a,) = new_partitions(store)
    disk.failing["seal: write"] = errno.EIO
    put(store, a, make_batch())
    store.roll()
    put(store, a, make_batch())
    flushed: list[Path] = []
    monkeypatch.setattr(store.folder, "sync", lambda: flushed.append(Path("log")))
    for segment in store.layout.unsealed():
        monkeypatch.setattr(segment, "env", Flushes(segment.env, segment.path, flushed))
    rolled, active = store.layout.rolled[0].path, store.layout.active.path
    store.close()
    assert set(flushed) == {rolled, active, Path("log")}


@pytest.mark.parametrize("full", [True, False])
def test_roll_by_age_that_fails_is_about_nobody(store: Store, disk: Disk, full: bool) -> None:
    (a,) = new_partitions(store)
    put(store, a, make_batch())
    resets: list[LogError] = []
    store.on_reset(resets.append)
    if full:
        disk.free = 0
    else:
        disk.failing["roll: create"] = errno.EIO
    due = store.options.segment_ms
    for now_ms in range(due, due + 1000, 100):
        store.tick(now_ms)
    assert not resets
    assert store.refusing is None
    disk.free = 1 << 40
    disk.failing.clear()
    assert put(store, a, make_batch(), due + 1000) == 1
    store.tick(due + 10_000)
    assert len([name for name in names(store) if name.endswith(".sealed")]) == 1


@pytest.mark.parametrize("where", ["commit: write", "commit: written"])
def test_failed_commit_that_rolled(store: Store, disk: Disk, where: str) -> None:
    (a,) = new_partitions(store)
    put(store, a, make_batch())
    disk.failing[where] = errno.EIO
    failed = append(store, a, make_batch())
    store.roll()
    assert isinstance(failed.ticket.error, WriteFailed)
    disk.failing.clear()
    assert store.refusing is None, "the segment that takes over has the failed one's name"
    assert put(store, a, make_batch(fill=1)) == 1
    store.roll()
    assert put(store, a, make_batch(fill=2)) == 2
    kept = read_batches(store, a)
    again = open_store(crash_copy(store.folder.path, store.folder.path.with_name("killed")))
    assert read_batches(again, again.partition(a.number)) == kept
    again.close()


def test_disk_that_takes_nothing_refuses_until_it_does(store: Store, disk: Disk) -> None:
    (a,) = new_partitions(store)
    put(store, a, make_batch(fill=1))
    disk.failing = {"commit: write": errno.EIO, "roll: create": errno.EIO}
    failed = append(store, a, make_batch(fill=2), now_ms=10)
    store.flush()
    assert isinstance(failed.ticket.error, WriteFailed)
    assert isinstance(store.refusing, WriteFailed)
    for _ in range(2):
        with pytest.raises(KafkaError, match="commit 3 failed") as caught:
            append(store, a, make_batch(), now_ms=11)
        assert caught.value.error is Error.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError):
            store.change([Change(Table.TOPICS, b"x", b"y")])
    # What is there is served.
    assert len(read_batches(store, a)) == 1
    disk.failing.clear()
    store.tick(10 + RETRY_MS)
    assert store.refusing is None
    assert put(store, a, make_batch(fill=3), now_ms=2000) == 1
    assert len(read_batches(store, a)) == 2


def test_stop_while_nothing_can_be_written(tmp_path: Path, disk: Disk) -> None:
    store = open_store(tmp_path / "log", step=disk.step)
    (a,) = new_partitions(store)
    put(store, a, make_batch())
    disk.failing = {"commit: write": errno.EIO, "roll: create": errno.EIO}
    failed = append(store, a, make_batch())
    store.close()
    assert failed.ticket.done
    assert failed.ticket.error is not None
    disk.failing.clear()
    store = open_store(tmp_path / "log")
    assert len(read_batches(store, store.partition(a.number))) == 1
    store.close()


def test_failed_first_commit_of_a_segment(store: Store, disk: Disk) -> None:
    (a,) = new_partitions(store)
    put(store, a, make_batch())
    store.roll()
    disk.failing["commit: write"] = errno.EIO
    failed = append(store, a, make_batch())
    store.flush()
    assert failed.ticket.error is not None
    disk.failing.clear()
    assert put(store, a, make_batch()) == 1
    assert [n for n in names(store) if n.endswith("active")] == ["00000000000000000003.active"]
    again = open_store(crash_copy(store.folder.path, store.folder.path.with_name("killed")))
    assert len(read_batches(again, again.partition(a.number))) == 2
    again.close()


def test_full_disk_is_seen_before_it_is_full(store: Store, disk: Disk) -> None:
    (a,) = new_partitions(store)
    put(store, a, make_batch())
    reserve = store.options.disk_reserve_bytes
    disk.free = reserve + 10_000
    failed = append(store, a, make_batch(size=20_000), now_ms=10)
    store.flush()
    error = failed.ticket.error
    assert isinstance(error, DiskFull)
    assert f"{disk.free} bytes free" in str(error)
    assert error.needed > error.free
    assert names(store) == ["00000000000000000001.active"], "nothing was written, nothing is lost"
    with pytest.raises(KafkaError, match="bytes free") as caught:
        append(store, a, make_batch(), now_ms=11)
    assert caught.value.error is Error.KAFKA_STORAGE_ERROR
    assert len(read_batches(store, a)) == 1
    # Log starts may still move: that is how room is made.
    store.delete_records(a, 1)
    store.flush()
    assert a.log_start_offset == 1
    disk.free = 10 * reserve
    store.tick(10 + RETRY_MS)
    assert put(store, a, make_batch(), now_ms=10 + RETRY_MS) == 1
    assert store.refusing is None


def test_full_disk_that_lmdb_meets_first(store: Store, disk: Disk) -> None:
    """Someone else took the room in between: the reserve was not enough."""
    (a,) = new_partitions(store)
    disk.failing = {"commit: write": errno.ENOSPC, "roll: create": errno.ENOSPC}
    failed = append(store, a, make_batch(), now_ms=10)
    store.flush()
    assert isinstance(failed.ticket.error, DiskFull)
    assert isinstance(store.refusing, DiskFull)
    disk.failing.clear()
    store.tick(10 + RETRY_MS)
    assert put(store, a, make_batch(), now_ms=10 + RETRY_MS) == 0


@pytest.mark.parametrize("where", ["seal: write", "seal: flush", "seal: rename", "seal: remove"])
def test_failed_seal_is_tried_again(store: Store, disk: Disk, where: str) -> None:
    (a,) = new_partitions(store)
    put(store, a, make_batch(fill=1))
    disk.failing[where] = errno.EIO
    store.roll()
    put(store, a, make_batch(fill=2))
    assert len(read_batches(store, a)) == 2, "served from the unsealed one"
    disk.failing.clear()
    store.tick(1_000_000)
    assert len(store.layout.sealed) == 1
    assert not store.layout.rolled
    assert len(read_batches(store, a)) == 2


def test_failed_checkpoint_keeps_its_rows(store: Store, disk: Disk) -> None:
    commit(store, [Change(Table.TOPICS, b"a", b"1"), Change(Table.TOPICS, b"b", b"1")])
    disk.failing["checkpoint: write"] = errno.EIO
    store.tick(10)
    assert store.state.applied == 0
    commit(store, [Change(Table.TOPICS, b"a", b"2")])
    assert list(store.scan(Table.TOPICS)) == [(b"a", b"2"), (b"b", b"1")]
    disk.failing.clear()
    store.tick(100_000)
    assert store.state.applied == store.committed
    assert list(store.scan(Table.TOPICS)) == [(b"a", b"2"), (b"b", b"1")]


def test_small_disk_filled_to_the_end(tmp_path: Path) -> None:
    """A disk of 8 MiB without a reserve: LMDB meets the end; then room is made.

    A tmpfs where we may mount one; elsewhere a limit that is counted here.
    """
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", os.fspath(mount)]
    mounted = shutil.which("mount") and subprocess.run(command, check=False).returncode == 0
    try:
        fill_and_go_on(mount, no_step if mounted else Quota(mount, 8 << 20).step)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", mount], check=True)


class Quota:
    """Fails every write while a folder holds more than it may."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit

    def step(self, name: str) -> None:
        files = [p for p in self.folder.rglob("*") if p.is_file()]
        if sum(p.stat().st_blocks * 512 for p in files) > self.limit:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_and_go_on(mount: Path, step: Step) -> None:
    options = with_options(disk_reserve_bytes=0)
    store = open_store(mount / "log", options=options, step=step)
    numbers, changes = store.new_partitions(1, PartitionSettings())
    commit(store, changes)
    partition = store.partition(numbers[0])
    ballast = mount / "ballast"
    ballast.write_bytes(b"x" * (3 << 20))
    kept = []
    error: LogError | None = None
    now = 1
    for turn in range(1000):
        batch = make_batch(size=30_000, fill=turn)
        now += 1
        done = append(store, partition, batch, now)
        store.flush()
        if done.ticket.error is not None:
            error = done.ticket.error
            break
        kept.append((done.base_offset, bytes(batch)))
    assert isinstance(error, DiskFull), error
    assert "bytes free" in str(error)
    assert read_batches(store, partition) == kept
    with pytest.raises(KafkaError):
        append(store, partition, make_batch(), now)
    ballast.unlink()
    store.tick(now + RETRY_MS)
    assert store.refusing is None
    batch = make_batch(size=10, fill=7)
    kept.append((put(store, partition, batch, now + RETRY_MS), bytes(batch)))
    assert read_batches(store, partition) == kept
    store.close()
    store = open_store(mount / "log", options=options)
    assert read_batches(store, store.partition(numbers[0])) == kept
    store.close()
