"""Where and how a disk is cut: moments of a trace, and what is left at each.

Everything is drawn from a seed, so a failure is found again by its number.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.powercut.disk import META_BYTES, PAGE, SECTOR, Cut, Disk
from tests.powercut.life import Known
from tests.powercut.trace import Event, Op
from tests.powercut.world import Deed

_META_SECTORS: Final = META_BYTES // SECTOR
_PAGE_SECTORS: Final = PAGE // SECTOR


class _Drawn(Cut):
    """Contents by one rule, names by another."""

    def __init__(self, rng: random.Random, contents: str, names: str) -> None:
        self._rng = rng
        self._contents = contents
        self._names = names
        self._share = rng.choice((0.1, 0.5, 0.9))
        self._torn: dict[int, int] = {}

    def __str__(self) -> str:
        return f"{self._contents}, names {self._names}"

    def sector(self, number: int, writes: list[int]) -> int:
        count = len(writes)
        rng = self._rng
        match self._contents:
            case "all":
                return count
            case "none":
                return 0
            case "some":
                return rng.randint(1, count) if rng.random() < self._share else 0
            case "meta pages only":
                return count if number < _META_SECTORS else 0
            case "all but meta pages":
                return count if number >= _META_SECTORS else 0
            case "torn pages":
                # All that precedes some place of each page; pages are left as they were, too.
                page = number // _PAGE_SECTORS
                kept = self._torn.setdefault(page, rng.randint(0, _PAGE_SECTORS))
                return count if number % _PAGE_SECTORS < kept else 0
        raise AssertionError(self._contents)

    def size(self, count: int) -> int:
        if self._contents in ("some", "torn pages"):
            return self._rng.randint(0, count)
        return 0 if self._contents in ("none", "meta pages only") else count

    def names(self, count: int) -> int:
        if self._names == "some":
            return self._rng.randint(0, count)
        return count if self._names == "all" else 0


CONTENTS: Final = (
    "all",
    "none",
    "some",
    "some",
    "meta pages only",
    "all but meta pages",
    "torn pages",
)
NAMES: Final = ("all", "none", "some")


def drawn(rng: random.Random) -> Cut:
    """Any of the ways."""
    return _Drawn(rng, rng.choice(CONTENTS), rng.choice(NAMES))


class Moment(NamedTuple):
    """A cut of a trace, and what was promised until then."""

    #: So many events had happened.
    events: int
    #: What the log was at.
    step: str
    known: Known
    disk: Disk

    def image(self, to: Path, cut: Cut) -> Path:
        """The data folder of an image in the new folder `to`."""
        self.disk.image(to, cut)
        return to / "data"


def moments(
    disk: Disk,
    trace: Sequence[Event],
    before: Known,
    deeds: Sequence[Deed],
    wanted: set[int],
    now_ms: int,
) -> Iterator[Moment]:
    """The moments of a trace that are wanted, by their number of events.

    before: what was known when the trace began; deeds: what came of it. A Moment's disk is the
    caller's until the next one is asked for.
    """
    teller = _Teller(trace, before, deeds, now_ms)
    for count, event in enumerate(trace):
        if count in wanted:
            yield Moment(count, teller.step, teller.known(count), disk)
        disk.apply(event)
        teller.hear(event)
    if len(trace) in wanted:
        yield Moment(len(trace), teller.step, teller.known(len(trace)), disk)


class _Teller:
    """What the marks of a trace say at each moment."""

    def __init__(
        self, trace: Sequence[Event], before: Known, deeds: Sequence[Deed], now_ms: int
    ) -> None:
        self._before = before
        self._deeds = deeds
        self._now_ms = now_ms
        self.step = "start"
        #: None while the start has not yet shown what is there.
        self._asked: int | None = None
        self._acked = before.acked
        self._starts = {number: least for number, (least, _) in before.starts.items()}
        #: Log starts that are told later: what a cut may leave is at most the next of them.
        self._later = [
            (at, _starts(event))
            for at, event in enumerate(trace)
            if event.op is Op.MARK and event.data.startswith(b"starts ")
        ]

    def hear(self, event: Event) -> None:
        if event.op is not Op.MARK:
            return
        kind, _, rest = event.data.decode().partition(" ")
        if kind == "step":
            self.step = rest
        elif kind == "found":
            self._asked = self._acked = int(rest)
        elif kind == "asked":
            self._asked = int(rest)
        elif kind == "acked":
            self._acked = int(rest)
        elif kind == "starts":
            self._starts |= _starts(event)

    def known(self, at: int) -> Known:
        later = [starts for place, starts in self._later if place >= at]
        starts = {}
        for number in set(self._starts) | {n for told in later[:1] for n in told}:
            # A sweep may be under way: what it will do is told after it.
            tops = [told[number] for told in later[:2] if number in told]
            starts[number] = self._starts.get(number, 0), max(tops, default=1 << 62)
        before = self._before
        if self._asked is None:
            return Known(before.deeds, before.acked, starts, self._now_ms)
        return Known(self._deeds[: self._asked], self._acked, starts, self._now_ms)


def _starts(event: Event) -> dict[int, int]:
    told = json.loads(event.data.decode().partition(" ")[2])
    return {int(number): offset for number, offset in told.items()}


def choose(trace: Sequence[Event], count: int, rng: random.Random) -> list[int]:
    """Moments of a trace: some at each of the log's steps, the rest anywhere.

    A moment is right behind something that changes what a cut may leave.
    """
    by_step: dict[str, list[int]] = {}
    step = "start"
    for at, event in enumerate(trace):
        if event.op is Op.MARK:
            if event.data.startswith(b"step "):
                step = event.data.decode()[5:]
        elif event.op not in (Op.CLOSE, Op.MAPPED):
            by_step.setdefault(step, []).append(at + 1)
    everywhere = [at for places in by_step.values() for at in places]
    if len(everywhere) <= count:
        return sorted(set(everywhere))
    chosen: set[int] = set()
    each = max(1, count // (2 * len(by_step)))
    for places in by_step.values():
        chosen.update(rng.sample(places, min(each, len(places))))
    rest = [at for at in everywhere if at not in chosen]
    chosen.update(rng.sample(rest, max(0, min(len(rest), count - len(chosen)))))
    return sorted(chosen)
