"""Clients plant what looks like the log's own commits, then the machine goes down: none is taken.

The kit is forge.py (the bytes) and planting.py (all places that a client can write to).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.powercut import forge
from tests.powercut.cuts import drawn, moments
from tests.powercut.disk import PAGE, SECTOR, Cut, Disk, File, Nothing
from tests.powercut.explore import NOTHING
from tests.powercut.life import Life, live
from tests.powercut.planting import (
    IMPOSTOR,
    VICTIM,
    beside_another,
    found,
    in_records,
    on_pages,
    through_a_broker,
)
from tests.powercut.rescue import rescue
from tests.powercut.trace import Op, read
from tests.powercut.worker import Worker

PLACES: list[Callable[[Life], None]] = [
    partial(in_records, at="key"),
    partial(in_records, at="value"),
    partial(in_records, at="header"),
    on_pages,
]


@pytest.mark.parametrize("plant", PLACES, ids=["key", "value", "header", "pages"])
def test_nothing_planted_in_records_is_taken(
    worker: Worker, root: Path, plant: Callable[[Life], None]
) -> None:
    """Every cut within the last commits: with and without their meta page, and in the middle."""
    place = root / "place"
    (place / "data").mkdir(parents=True)
    disk = Disk(place)
    lived = worker.call(live, place / "data", NOTHING, 1, "boot", root / "trace", plant)
    events = list(read(root / "trace"))
    changes = [at + 1 for at, event in enumerate(events) if event.op is not Op.MARK]
    wanted = {*changes[-24:], len(events)}
    rng = random.Random(1)
    for moment in moments(disk, events, NOTHING, lived.deeds, wanted, lived.now_ms):
        for cut in (Cut(), Nothing(), drawn(rng)):
            data = moment.image(root / "image", cut)
            if rng.random() < 0.2:
                worker.call(rescue, data, moment.known)
            else:
                worker.call(live, data, moment.known, 2, "boot 2", None, 1)
            shutil.rmtree(root / "image")


class Lost(Cut):
    """All is there but some sectors."""

    def __init__(self, sectors: set[int]) -> None:
        self._sectors = sectors

    def sector(self, number: int, writes: list[int]) -> int:
        return 0 if number in self._sectors else len(writes)


def page_of(disk: Disk, needle: bytes) -> int:
    """Where `needle` begins in the newest segment, for the last time."""
    folder = disk.folders[str(disk.root / "data" / "log")]
    file = folder.now[max(name for name in folder.now if name.endswith(".active"))]
    assert isinstance(file, File)
    at = bytes(file.now).rfind(needle)
    assert at > 0
    return at // PAGE


def sectors(first: int, pages: int) -> set[int]:
    return set(range(first * PAGE // SECTOR, (first + pages) * PAGE // SECTOR))


def test_a_planted_batch_does_not_stand_in_for_one_that_is_torn(worker: Worker, root: Path) -> None:
    """A commit in the middle of its flush: another client's batch is not on the disk yet, the first
    page of the planter's neither, what it wrote behind that is."""
    place = root / "place"
    (place / "data").mkdir(parents=True)
    disk = Disk(place)
    lived = worker.call(live, place / "data", NOTHING, 1, "boot", root / "trace", beside_another)
    events = list(read(root / "trace"))
    commits = [at for at, event in enumerate(events) if event.data == b"step commit: write"]
    flushes = {
        next(n for n in range(at, len(events)) if events[n].op is Op.FLUSHED) for at in commits[-6:]
    }
    tried = 0
    for moment in moments(disk, events, NOTHING, lived.deeds, flushes, lived.now_ms):
        torn = sectors(page_of(disk, VICTIM), len(VICTIM) // PAGE + 2)
        head = sectors(page_of(disk, IMPOSTOR) - 2, 1)
        data = moment.image(root / "image", Lost(torn | head))
        worker.call(live, data, moment.known, 2, "boot 2", None, 1)
        shutil.rmtree(root / "image")
        tried += 1
    assert tried == 6


def test_nothing_planted_through_a_broker_is_taken(worker: Worker, root: Path) -> None:
    """In names and texts of all kinds, members' bytes, records, batches."""
    place = root / "place"
    (place / "data").mkdir(parents=True)
    disk = Disk(place)
    view, taken, refused = worker.call(through_a_broker, place / "data", root / "trace")
    for name in (
        "group and offset's metadata",
        "member",
        "assignment",
        "transactional id",
        "batch",
    ):
        assert f"{name}: NONE" in taken
    assert [one for one in refused if one.startswith("topic: ")] == [
        "topic: INVALID_TOPIC_EXCEPTION"
    ] * 2
    for event in read(root / "trace"):
        disk.apply(event)
    rng = random.Random(2)
    cuts = [Cut(), Nothing(), *(drawn(rng) for _ in range(20))]
    for turn, cut in enumerate(cuts):
        disk.image(root / "image", cut)
        after, seconds = worker.call(found, root / "image" / "data", turn % 3 == 2)
        assert set(after.rows) == set(view.rows)
        assert after == view
        assert seconds < 20, "a client's bytes take a start long"
        shutil.rmtree(root / "image")


def test_forged_commits_are_what_the_log_would_write(worker: Worker, root: Path) -> None:
    """The kit is worth something only as long as it knows the format."""
    text = forge.text(77)
    assert text.isascii()
    assert text.startswith("OtC1")
    page = forge.leaf_page(5, [((9, 0), forge.commit(9, forge.evil()[0]))])
    assert len(page) == forge.PAGE
    assert forge.POISON in page
