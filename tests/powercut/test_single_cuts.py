"""Single cuts, each with what it once took."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.log.logkit import commit, crash_copy
from tests.powercut.cuts import moments
from tests.powercut.disk import Cut, Disk, Nothing
from tests.powercut.explore import NOTHING
from tests.powercut.life import OPTIONS, START_MS, Known, Life, live
from tests.powercut.rescue import rescue
from tests.powercut.trace import Op, read
from tests.powercut.worker import Worker

from ottla.log.gaps import Gap
from ottla.log.options import Change, Table
from ottla.log.repair import repair
from ottla.log.store import Store
from ottla.wire.records import Record, build_batch


class NamesOnly(Nothing):
    """All that was renamed, created, removed; of contents and sizes only what was flushed."""

    def names(self, count: int) -> int:
        return count


class SizesOnly(NamesOnly):
    """As above, and the sizes: what was not flushed reads as zeros."""

    def size(self, count: int) -> int:
        return count


def cut_at_the_end(
    worker: Worker, root: Path, script: Callable[[Life], None], cut: Cut, *, made: bool = True
) -> tuple[Path, Known]:
    """The data folder of an image, cut when all of a script was acknowledged; what is known of it.

    made: the data folder was there before.
    """
    place = root / "place"
    place.mkdir()
    if made:
        (place / "data").mkdir()
    disk = Disk(place)
    lived = worker.call(live, place / "data", NOTHING, 1, "boot", root / "trace", script)
    events = list(read(root / "trace"))
    (moment,) = moments(disk, events, NOTHING, lived.deeds, {len(events)}, lived.now_ms)
    assert moment.known.acked == len(lived.deeds)
    return moment.image(root / "image", cut), moment.known


# ------------------------------------------------------------------------------------------ scripts


def begin(life: Life) -> None:
    life.first_partitions()
    life.append(1, 100)
    life.settle()
    life.pass_time(10_000)  # a checkpoint, so that state.lmdb is there


def one_in_the_second_segment(life: Life) -> None:
    begin(life)
    life.roll()
    life.append(1, 100)
    life.settle()


def one_in_each_of_two_segments(life: Life) -> None:
    one_in_the_second_segment(life)
    life.roll()
    life.append(2, 100)
    life.settle()


def applied(life: Life) -> None:
    one_in_the_second_segment(life)
    life.change()
    life.settle()
    life.pass_time(10_000)
    life.roll()
    life.change()
    life.settle()
    life.pass_time(10_000)


def not_one_checkpoint(life: Life) -> None:
    life.first_partitions()
    life.append(1, 100)
    life.settle()


# -------------------------------------------------------------------------------------------- tests


def test_the_newest_commit_is_found_without_its_meta_page(worker: Worker, root: Path) -> None:
    data, known = cut_at_the_end(worker, root, begin, Nothing())
    worker.call(live, data, known, 2, "boot 2", None, 5)


@pytest.mark.parametrize("script", [one_in_the_second_segment, one_in_each_of_two_segments])
def test_the_first_commit_of_a_segment_is_found_without_its_meta_page(
    worker: Worker, root: Path, script: Callable[[Life], None]
) -> None:
    data, known = cut_at_the_end(worker, root, script, Nothing())
    worker.call(live, data, known, 2, "boot 2", None, 5)


def write_again(image: Path, copy: Path) -> None:
    """Start, one change, kill -9, start: is it there? In a worker."""
    row = Change(Table.GROUPS, b"written after the cut", b"value")
    store = Store.open(image, options=OPTIONS, now_ms=START_MS, boot_id="boot 2")
    commit(store, [row])
    crash_copy(image, copy)
    store.close()
    store = Store.open(copy, options=OPTIONS, now_ms=START_MS, boot_id="boot 2")
    assert store.get(row.table, row.key) == row.value, "acknowledged, and gone by kill -9"
    store.close()


def test_what_is_written_after_a_cut_outlives_kill_9(worker: Worker, root: Path) -> None:
    data, _ = cut_at_the_end(worker, root, applied, Nothing())
    worker.call(write_again, data, root / "copy")


@pytest.mark.parametrize("script", [begin, one_in_the_second_segment])
def test_a_repair_after_a_cut_keeps_the_newest_commit(
    worker: Worker, root: Path, script: Callable[[Life], None]
) -> None:
    data, known = cut_at_the_end(worker, root, script, Nothing())
    worker.call(rescue, data, known)


def compacted(life: Life) -> None:
    """All of one key, compacted, and then a clean stop."""
    number = life.create("compact")
    for _ in range(20):
        life.append(number, 0)
        life.settle()
    life.roll()
    for _ in range(20):
        life.pass_time(1000)
    assert life.store.partition(number).high_watermark > 0
    assert any(not name.name.endswith(".0.sealed") for name in _sealed(life))


def _sealed(life: Life) -> list[Path]:
    return sorted(life.store.folder.segments.glob("*.sealed"))


def test_a_repair_of_a_compacted_folder_says_that_nothing_is_lost(
    worker: Worker, root: Path
) -> None:
    data, known = cut_at_the_end(worker, root, compacted, Cut())
    assert worker.call(told, data) == []
    worker.call(live, data, known, 2, "boot 2", None, 2)


def test_a_disk_that_forgets_while_the_machine_goes_on(worker: Worker, root: Path) -> None:
    data, known = cut_at_the_end(worker, root, begin, Nothing())
    worker.call(live, data, known, 2, "boot", None, 5)


def test_a_checkpoint_that_was_made_and_never_written(worker: Worker, root: Path) -> None:
    data, known = cut_at_the_end(worker, root, not_one_checkpoint, SizesOnly())
    worker.call(live, data, known, 2, "boot 2", None, 5)


def test_a_new_data_folder_keeps_its_name(worker: Worker, root: Path) -> None:
    data, known = cut_at_the_end(worker, root, begin, Nothing(), made=False)
    assert data.is_dir()
    worker.call(live, data, known, 2, "boot 2", None, 5)


def test_a_cut_in_the_first_start_leaves_a_folder_that_opens(worker: Worker, root: Path) -> None:
    """Before anything is acknowledged, every moment, with and without what was not flushed."""
    place = root / "place"
    (place / "data").mkdir(parents=True)
    disk = Disk(place)
    lived = worker.call(live, place / "data", NOTHING, 1, "boot", root / "trace", idle)
    events = list(read(root / "trace"))
    changes = {at + 1 for at, event in enumerate(events) if event.op is not Op.MARK}
    for moment in moments(disk, events, NOTHING, lived.deeds, changes, lived.now_ms):
        for cut in (Cut(), Nothing(), NamesOnly()):
            data = moment.image(root / "image", cut)
            worker.call(live, data, moment.known, 2, "boot 2", None, 1)
            shutil.rmtree(root / "image")


def idle(life: Life) -> None:
    """Nothing is done."""


def told(folder: Path) -> list[Gap]:
    """What a repair says is lost. In a worker."""
    return repair(folder).gaps


def superseded(life: Life) -> None:
    """A file of which compaction leaves nothing, and one that has the same key again."""
    number = life.create("compact")
    for _ in range(3):
        for _ in range(4):
            life.send(number, build_batch([Record(0, life.now_ms, b"key", b"value")]))
            life.settle()
        life.roll()
    for _ in range(20):
        life.pass_time(1000)


def test_a_repair_in_the_middle_of_a_compaction_says_that_nothing_is_lost(
    worker: Worker, root: Path
) -> None:
    place = root / "place"
    (place / "data").mkdir(parents=True)
    disk = Disk(place)
    lived = worker.call(live, place / "data", NOTHING, 1, "boot", root / "trace", superseded)
    events = list(read(root / "trace"))
    begun = next(at for at, event in enumerate(events) if event.data == b"step rewrite: create")
    names = (Op.RENAME, Op.UNLINK)
    changes = {at + 1 for at, event in enumerate(events) if at > begun and event.op in names}
    assert changes
    for moment in moments(disk, events, NOTHING, lived.deeds, changes, lived.now_ms):
        for cut in (Cut(), Nothing()):
            data = moment.image(root / "image", cut)
            assert worker.call(told, data) == []
            shutil.rmtree(root / "image")
