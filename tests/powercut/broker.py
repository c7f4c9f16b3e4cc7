"""A broker on an image: is there what its clients were told?"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.broker.harness import START_MS, Harness, VirtualClock
from tests.powercut.clients import CLIENTS, TIME_MS, Fact, Place

from ottla.log.repair import repair

#: What was asked for by each client, and how much of it was answered.
Known = Mapping[str, tuple[Sequence[Fact], int]]


def check(place: Place, known: Known) -> dict[str, list[Fact]]:
    """What is there of each client's requests. Raises AssertionError where something answered is
    not, or what nobody asked for is."""
    found = {}
    for name, (facts, acked) in known.items():
        kind = CLIENTS[name]
        shown = kind.shown(place, name)
        for count in range(acked, len(facts) + 1):
            if shown == kind.wanted(facts[:count]):
                found[name] = list(facts[:count])
                break
        else:
            told = _short(shown, kind.wanted(facts[:acked]))
            raise AssertionError(f"{name}, {acked} of {len(facts)} requests answered: {told}")
    return found


def _short(shown: Any, wanted: Any) -> str:
    if isinstance(shown, dict):
        keys = sorted(set(shown) | set(wanted), key=str)
        return "; ".join(
            f"{key!r}: {str(shown.get(key))[:60]} is not {str(wanted.get(key))[:60]}"
            for key in keys
            if shown.get(key) != wanted.get(key)
        )
    if isinstance(shown, tuple) and len(shown) == 3:
        ends = [[batch[:2] for batch in which[2]] for which in (shown, wanted)]
        return f"{shown[:2]} and {ends[0][-3:]}, not {wanted[:2]} and {ends[1][-3:]}"
    return f"{str(shown)[-200:]} is not {str(wanted)[-200:]}"


def try_image(data: Path, known: Known, seed: int, repaired: bool) -> None:
    """Start without sockets, look, let each client go on, kill -9, start and look again."""
    report = repair(data) if repaired else None
    clock = VirtualClock()
    clock.passed_ms = TIME_MS + 60_000 - START_MS
    harness = Harness(data, clock=clock)
    try:
        if report is not None:
            told = "\n  ".join(report.lines())
            assert not report.lost, f"a repair says that something is lost:\n  {told}"
        found = check(harness, known)
        after: dict[str, tuple[Sequence[Fact], int]] = {}
        for name, facts in found.items():
            client = CLIENTS[name](name, lambda _: None, seed)
            client.go_on(harness, facts)
            after[name] = client.facts, len(client.facts)
        copy = data.with_name("killed")
        shutil.copytree(data, copy)
    finally:
        harness.store.close()
    again = Harness(copy, clock=clock)
    try:
        check(again, after)
    finally:
        again.store.close()
