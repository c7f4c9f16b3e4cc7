"""When the garbage collector is kept off what lives long."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ottla.broker.garbage import LONG_MS, SLICES, THOROUGH, Tenure


class Ticks:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Ticks]:
    """The collector is as before at the end."""
    yield Ticks()
    gc.unfreeze()


def collected(tenure: Tenure, clock: Ticks, ms: float, generation: int = 2) -> int:
    """A collection that takes so long; how many objects have been set aside."""
    tenure("start", {"generation": generation})
    clock.now += ms / 1000
    tenure("stop", {"generation": generation})
    return gc.get_freeze_count()


def test_what_survives_a_long_collection_is_set_aside(clock: Ticks) -> None:
    tenure = Tenure(clock)
    before = gc.get_freeze_count()
    assert collected(tenure, clock, LONG_MS / 2) == before
    assert collected(tenure, clock, 10 * LONG_MS, generation=1) == before
    assert collected(tenure, clock, 2 * LONG_MS) > before + 1000


def test_now_and_then_everything_is_looked_at(clock: Ticks) -> None:
    tenure = Tenure(clock)
    for _ in range(THOROUGH):
        assert collected(tenure, clock, 2 * LONG_MS) > 1000
    assert collected(tenure, clock, LONG_MS / 2) == 0
    assert collected(tenure, clock, 2 * LONG_MS) > 1000


def test_what_a_slice_of_long_work_made_is_set_aside_until_everything_is_looked_at(
    clock: Ticks,
) -> None:
    tenure = Tenure(clock)
    for _ in range(SLICES):
        tenure.after_slice()
    assert gc.get_freeze_count() > 1000
    assert collected(tenure, clock, LONG_MS / 2) == 0


def test_it_is_called_by_the_collector_until_it_is_stopped(clock: Ticks) -> None:
    tenure = Tenure(lambda: 0.0)
    tenure.start()
    try:
        assert gc.get_freeze_count() > 1000
        assert tenure in gc.callbacks
    finally:
        tenure.stop()
    assert tenure not in gc.callbacks
