"""A scripted history of transactions, with the broker killed after each of its commits.

The folder is copied when a commit is on the disk and before anybody has been answered. From each
copy a broker starts; what readers see is what is true at that commit; then the clients, who have
had no answer to their last request, ask it again and go on to the end.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.broker.harness import Harness, VirtualClock
from tests.broker.txnkit import NEW, OLD, TxnProducer, group_offset, seen
from tests.log.logkit import crash_copy

from ottla.wire.errors import Error

NONE, CONCURRENT = Error.NONE, Error.CONCURRENT_TRANSACTIONS

View = tuple[list[bytes], list[bytes], int]
"""Committed values of the two partitions, committed offset of the group."""


class Clients:
    """Two instances with one transactional id; the second takes over from the first."""

    def __init__(self, new: bool) -> None:
        self.old = TxnProducer.__new__(TxnProducer)
        self.young = TxnProducer.__new__(TxnProducer)
        for producer in (self.old, self.young):
            producer.name, producer.new, producer.timeout_ms = "x", new, 60_000
            producer.id = producer.epoch = -1
            producer.sequences = {}

    def connect(self, harness: Harness) -> None:
        for producer in (self.old, self.young):
            producer.client = harness.client()

    def copied(self) -> Clients:
        made = Clients.__new__(Clients)
        made.old, made.young = copy(self.old), copy(self.young)
        for producer in (made.old, made.young):
            producer.sequences = dict(producer.sequences)
        return made


class Step(NamedTuple):
    """One request; what it may be answered, the first time and when it is asked again; and what is
    seen once it is true, where that changes."""

    do: Callable[[Clients], Error]
    answers: tuple[Error, ...] = (NONE,)
    view: View | None = None


NOTHING: View = ([], [], -1)
FIRST: View = ([b"a0", b"a0+"], [b"b0"], 5)
THIRD: View = ([b"a0", b"a0+", b"a2"], [b"b0"], 5)
LAST: View = ([b"a0", b"a0+", b"a2", b"a4"], [b"b0"], 11)

HISTORY = [
    Step(lambda c: c.old.init(), view=NOTHING),
    Step(lambda c: c.old.send("t", 0, b"a0", b"a0+")),
    Step(lambda c: c.old.send("t", 1, b"b0")),
    Step(lambda c: c.old.offsets("g", "t", 0, 5)),
    Step(lambda c: c.old.end(), view=FIRST),
    Step(lambda c: c.old.send("t", 0, b"a1")),
    Step(lambda c: c.old.offsets("g", "t", 0, 9)),
    Step(lambda c: c.old.end(False)),
    Step(lambda c: c.old.send("t", 0, b"a2")),
    Step(lambda c: c.old.end(), view=THIRD),
    Step(lambda c: c.old.send("t", 1, b"lost")),
    Step(lambda c: c.old.offsets("g", "t", 0, 10)),
    # When the abort is committed and was not answered, asking again gives the epoch.
    Step(lambda c: c.young.init(), (CONCURRENT, NONE)),
    Step(lambda c: c.young.init()),
    Step(
        lambda c: c.old.produce("t", 1, b"late"),
        (Error.INVALID_PRODUCER_EPOCH,),
    ),
    Step(lambda c: c.young.send("t", 0, b"a4")),
    Step(lambda c: c.young.offsets("g", "t", 0, 11)),
    Step(lambda c: c.young.end(), view=LAST),
]


def view(harness: Harness) -> View:
    return seen(harness, "t", 0), seen(harness, "t", 1), group_offset(harness, "g", "t")[1]


class Kill(NamedTuple):
    """The broker was killed behind a commit of a step."""

    step: int
    folder: Path
    clients: Clients


def play(harness: Harness, clients: Clients, start: int, folder: Path | None) -> list[Kill]:
    """The history from a step on; with `folder`, copies of every commit go there."""
    kills: list[Kill] = []
    at, before = start, clients.copied()

    def committed(_: object) -> None:
        if folder is not None:
            to = folder / f"{len(kills)}"
            kills.append(Kill(at, crash_copy(harness.store.folder.path, to), before))

    harness.store.listen(committed)
    clients.connect(harness)
    current = NOTHING
    for at in range(start, len(HISTORY)):
        before = clients.copied()
        step = HISTORY[at]
        answer = step.do(clients)
        assert answer in step.answers, f"step {at}"
        current = step.view or current
        if start == 0:
            assert answer is step.answers[0]
            if folder is not None:
                assert view(harness) == current, f"step {at}"
    return kills


def seen_before(step: int) -> View:
    views = [one.view for one in HISTORY[:step] if one.view is not None]
    return views[-1] if views else NOTHING


@pytest.mark.parametrize("new", [NEW, OLD], ids=["v2", "v1"])
def test_killed_after_every_commit(tmp_path: Path, new: bool) -> None:
    clock = VirtualClock()
    harness = Harness(tmp_path / "data", clock=clock)
    harness.topic("t", 2)
    kills = play(harness, Clients(new), 0, tmp_path)
    harness.store.close()
    assert {kill.step for kill in kills} >= set(range(len(HISTORY))) - {14}
    ends = 0
    for kill in kills:
        # Time goes on while nobody is there, but not past the transaction's timeout.
        clock.passed_ms += 1000
        again = Harness(kill.folder, clock=clock)
        found, after = view(again), HISTORY[kill.step].view
        # The only commit of an end is all of it; any other commit shows nothing new.
        expected = seen_before(kill.step) if after is None else after
        if kill.step:
            assert found == expected, f"killed in step {kill.step}"
            ends += after is not None
        play(again, kill.clients.copied(), kill.step, None)
        assert view(again) == LAST, f"killed in step {kill.step}"
        again.store.close()
    assert ends == 3
