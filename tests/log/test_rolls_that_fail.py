"""No new segment can be begun, for want of descriptors or another reason: the old one is written
on."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest
from tests.log.logkit import (
    TINY,
    append,
    crash_copy,
    make_batch,
    new_partitions,
    open_store,
    put,
    read_batches,
)
from tests.log.test_failures import Disk, names

from ottla.log.errors import LogError
from ottla.log.maintenance import RETRY_MS
from ottla.log.segment import ActiveSegment
from ottla.log.store import Store

CREATION = ["roll: create", "roll: rename", "roll: sync folder", "roll: open"]
#: About ten of these fill a segment.
PIECE = 20_000


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def store(tmp_path: Path, disk: Disk) -> Iterator[Store]:
    made = open_store(tmp_path / "log", step=disk.step)
    yield made
    made.close()


def check_after_a_kill(store: Store, number: int, kept: list[tuple[int, bytes]]) -> None:
    to = store.folder.path.with_name(f"killed-{len(kept)}")
    again = open_store(crash_copy(store.folder.path, to))
    partition = again.partition(number)
    assert read_batches(again, partition) == kept
    assert put(again, partition, make_batch()) == len(kept)
    again.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("where", CREATION)
def test_a_full_segment_is_written_on_and_rolled_later(
    store: Store, disk: Disk, where: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    (a,) = new_partitions(store)
    disk.failing[where] = code
    for turn in range(20):
        assert put(store, a, make_batch(size=PIECE, fill=turn)) == turn
    assert store.refusing is None
    assert names(store) == ["00000000000000000001.active"]
    check_after_a_kill(store, a.number, read_batches(store, a))
    for now in range(0, 4 * RETRY_MS, 100):
        store.tick(now)
        put(store, a, make_batch(), now)
    lines = [r for r in caplog.records if "new segment" in r.getMessage()]
    assert len(lines) == 1, "one line, however often it is tried"
    disk.failing.clear()
    store.tick(5 * RETRY_MS)
    put(store, a, make_batch(fill=99), 5 * RETRY_MS)
    assert len(store.layout.sealed) == 1
    assert [r.levelno for r in caplog.records if "again" in r.getMessage()][-1] == logging.WARNING
    check_after_a_kill(store, a.number, read_batches(store, a))


@pytest.mark.parametrize("where", CREATION)
def test_a_roll_by_age_that_fails_leaves_no_trace(store: Store, disk: Disk, where: str) -> None:
    """A file named for the next commit would hide what the old one gets."""
    (a,) = new_partitions(store)
    put(store, a, make_batch())
    disk.failing[where] = errno.EIO
    store.roll()
    for turn in range(3):
        put(store, a, make_batch(fill=turn))
    check_after_a_kill(store, a.number, read_batches(store, a))


@pytest.mark.parametrize("where", ["roll: sync folder", "roll: open"])
def test_a_file_that_cannot_be_taken_back_ends_the_old_one(
    store: Store, disk: Disk, where: str
) -> None:
    """It may be there after a power cut: what follows goes into a file of that name."""
    (a,) = new_partitions(store)
    put(store, a, make_batch())
    kept = read_batches(store, a)
    disk.failing = {where: errno.EIO, "roll: take back": errno.EIO}
    store.roll()
    assert isinstance(store.refusing, LogError)
    assert read_batches(store, a) == kept
    disk.failing.clear()
    store.tick(RETRY_MS)
    assert store.refusing is None
    assert put(store, a, make_batch(fill=7), RETRY_MS) == 1
    assert names(store)[-1] == "00000000000000000003.active"
    check_after_a_kill(store, a.number, read_batches(store, a))


def test_a_segment_does_not_grow_for_ever(store: Store, disk: Disk) -> None:
    (a,) = new_partitions(store)
    disk.failing["roll: create"] = errno.EMFILE
    error: LogError | None = None
    for turn in range(1000):
        done = append(store, a, make_batch(size=PIECE, fill=turn))
        store.flush()
        error = done.ticket.error
        if error is not None:
            break
    assert error is not None
    assert "Too many open files" in str(error)
    size = store.layout.active.path.stat().st_size
    assert 2 * TINY.segment_bytes < size
    kept = read_batches(store, a)
    assert len(kept) == turn
    assert store.layout.active.path.stat().st_size == size, "nothing of it was written"
    disk.failing.clear()
    assert put(store, a, make_batch()) == turn
    assert len(store.layout.sealed) == 1
    check_after_a_kill(store, a.number, read_batches(store, a))


def test_an_old_file_that_cannot_be_opened_again_is_opened_later(
    store: Store, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed commit and no descriptors: neither a new file nor the old one can be opened."""
    (a,) = new_partitions(store)
    put(store, a, make_batch())
    kept = read_batches(store, a)
    disk.failing = {"commit: write": errno.EIO, "roll: create": errno.EMFILE}

    def failing(*_: Any) -> None:
        raise lmdb.Error("Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(ActiveSegment, "reopen", failing)
        append(store, a, make_batch())
        store.flush()
        assert store.refusing is not None
        with pytest.raises(LogError, match="cannot be read"):
            read_batches(store, a)
    store.tick(RETRY_MS)
    assert read_batches(store, a) == kept
    disk.failing.clear()
    store.tick(2 * RETRY_MS)
    assert put(store, a, make_batch(), 2 * RETRY_MS) == 1
    check_after_a_kill(store, a.number, read_batches(store, a))
