"""The recorder misses nothing, and the model of the disk forgets what a disk may forget."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.powercut.disk import SECTOR, Cut, Disk, File, Nothing
from tests.powercut.explore import NOTHING
from tests.powercut.life import Life, live
from tests.powercut.trace import Op, Recorder, read
from tests.powercut.worker import Died, Failed, Worker

from ottla.log.repair import repair


def contents(folder: Path) -> dict[str, bytes]:
    """All files but LMDB's lock files, which it writes through a map and believes no word of."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith("-lock")
    }


def record(folder: Path, trace: Path, seed: int, threads: bool) -> None:
    """A life with all that belongs to it, a repair and a clean stop among it; in a worker."""
    recorder = Recorder()
    recorder.start(folder.parent, trace)
    life = Life(folder, NOTHING, seed, "boot", recorder, threads)
    life.go_on(120)
    life.settle()
    life.store.close()
    (folder / "state.lmdb").unlink()
    assert repair(folder).lines()
    recorder.stop()


@pytest.mark.parametrize("threads", [False, True], ids=["inline", "threads"])
def test_a_trace_is_all_that_happened(worker: Worker, root: Path, threads: bool) -> None:
    place = root / "place"
    (place / "data").mkdir(parents=True)
    disk = Disk(place)
    worker.call(record, place / "data", root / "trace", 5, threads)
    seen: set[str] = set()
    for event in read(root / "trace"):
        disk.apply(event)
        if event.op is Op.MARK and event.data.startswith(b"step "):
            seen.add(event.data.decode()[5:].partition(":")[0])
    disk.image(root / "image", Cut())
    assert contents(root / "image") == contents(place)
    wanted = {"mark", "commit", "roll", "seal", "checkpoint"}
    assert wanted | (set() if threads else {"copy", "rewrite"}) <= seen
    mapped = {
        name
        for folder in disk.folders.values()
        for name, file in folder.now.items()
        if isinstance(file, File) and file.mapped
    }
    assert all(name.endswith("-lock") for name in mapped)


def one_commit(life: Life) -> None:
    life.first_partitions()
    life.append(1, 100)
    life.settle()
    life.pass_time(10_000)  # a checkpoint


def test_lmdb_calls_what_is_recorded(worker: Worker, root: Path) -> None:
    """Commits are one flush and a meta page behind it; the checkpoint's meta page is O_DSYNC."""
    place = root / "place"
    (place / "data").mkdir(parents=True)
    worker.call(live, place / "data", NOTHING, 1, "boot", root / "trace", one_commit)
    names: dict[int, str] = {}
    told: list[tuple[str, Op, bool]] = []
    at = 0
    for event in read(root / "trace"):
        if event.op is Op.OPEN:
            names[event.handle] = Path(event.path).suffix
        elif event.op is Op.MARK and event.data == b"step commit: write":
            at = len(told)
        elif event.op in (Op.WRITE, Op.FLUSH, Op.FLUSHED, Op.SYNCED):
            meta = event.offset < 8192 and event.op is Op.WRITE
            told.append((names[event.handle], event.op, meta))
    commit = [one for one in told[at:] if one[0] == ".active"]
    order = [".active", ".active", ".active", ".active"]
    assert [name for name, _, _ in commit[-4:]] == order
    assert [(op, meta) for _, op, meta in commit[-4:]] == [
        (Op.WRITE, False), (Op.FLUSH, False), (Op.FLUSHED, False), (Op.WRITE, True),
    ]  # fmt: skip
    assert (".lmdb", Op.SYNCED, False) in told


def write(folder: Path, trace: Path) -> None:
    """Files and names, flushed and not; in a worker."""
    recorder = Recorder()
    recorder.start(folder, trace)
    fd = os.open(folder / "a", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"1" * 2000, 0)
    os.fsync(fd)
    os.pwrite(fd, b"2" * 600, 500)  # four sectors begun, one of them whole
    os.ftruncate(fd, 1500)
    os.close(fd)
    os.mkdir(folder / "sub")
    names = os.open(folder, os.O_RDONLY)
    os.fsync(names)
    os.close(names)
    (folder / "sub" / "b").write_bytes(b"b")
    os.rename(folder / "a", folder / "c")
    recorder.stop()


class Some(Cut):
    """Every second sector that was written, and the first name."""

    def sector(self, number: int, writes: list[int]) -> int:
        return len(writes) if number % 2 else 0

    def names(self, count: int) -> int:
        return min(count, 1)


def test_what_a_cut_leaves(worker: Worker, root: Path) -> None:
    place = root / "place"
    place.mkdir()
    disk = Disk(place)
    worker.call(write, place, root / "trace")
    for event in read(root / "trace"):
        disk.apply(event)
    for cut, name in ((Cut(), "all"), (Nothing(), "none"), (Some(), "some")):
        disk.image(root / name, cut)
    new = b"1" * 500 + b"2" * 600 + b"1" * 400
    assert contents(root / "all") == {"c": new, "sub/b": b"b"}
    assert contents(root / "none") == {"a": b"1" * 2000}
    mixed = b"1" * SECTOR + new[SECTOR : 2 * SECTOR] + b"1" * (1500 - 2 * SECTOR)
    assert contents(root / "some") == {"c": mixed, "sub/b": b"\0"}
    shutil.rmtree(root / "some")


def crash() -> None:
    os.kill(os.getpid(), 11)


def fail() -> None:
    raise ValueError("no such luck")


def test_a_worker_outlives_what_it_runs(worker: Worker) -> None:
    with pytest.raises(Died, match="SIGSEGV"):
        worker.call(crash)
    with pytest.raises(Failed, match="no such luck"):
        worker.call(fail)
    assert worker.call(os.getpid) > 0
