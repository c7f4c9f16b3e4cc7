"""Keyed deadlines."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.group.timers import Timers


def drain(timers: Timers[str], now: int) -> list[str]:
    keys = []
    while (key := timers.due(now)) is not None:
        keys.append(key)
    return keys


def test_deadlines_fire_in_order_and_once() -> None:
    timers: Timers[str] = Timers()
    timers.at("late", 30)
    timers.at("early", 10)
    assert timers.next() == 10
    assert drain(timers, 9) == []
    assert drain(timers, 30) == ["early", "late"]
    assert drain(timers, 100) == []
    assert timers.next() is None


def test_equal_deadlines_fire_in_the_order_they_were_set() -> None:
    timers: Timers[str] = Timers()
    for key in ("c", "a", "b"):
        timers.at(key, 5)
    assert drain(timers, 5) == ["c", "a", "b"]


def test_a_deadline_moved_later_does_not_fire_at_its_old_time() -> None:
    timers: Timers[str] = Timers()
    timers.at("k", 10)
    timers.at("k", 20)
    assert drain(timers, 10) == []
    assert drain(timers, 20) == ["k"]


def test_a_deadline_moved_earlier_fires_once() -> None:
    timers: Timers[str] = Timers()
    timers.at("k", 20)
    timers.at("k", 10)
    assert drain(timers, 10) == ["k"]
    assert drain(timers, 20) == []


def test_a_cancelled_deadline_never_fires() -> None:
    timers: Timers[str] = Timers()
    timers.at("k", 10)
    timers.cancel("k")
    timers.cancel("unknown")
    assert drain(timers, 10) == []
    assert timers.deadline("k") is None


def test_memory_follows_the_deadlines_that_are_set() -> None:
    timers: Timers[str] = Timers()
    for n in range(10_000):
        timers.at(f"k{n}", 1_000_000 + n)
        timers.cancel(f"k{n}")
    assert len(timers) == 0
    assert len(timers._heap) <= 64


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 50))), max_size=40
    ),
    st.lists(st.integers(0, 60), max_size=5).map(sorted),
)
def test_timers_behave_like_a_dictionary_of_deadlines(
    changes: list[tuple[str, int | None]], times: list[int]
) -> None:
    timers: Timers[str] = Timers()
    model: dict[str, int] = {}
    for key, deadline in changes:
        if deadline is None:
            timers.cancel(key)
            model.pop(key, None)
        else:
            timers.at(key, deadline)
            model[key] = deadline
    for now in times:
        expected = sorted(key for key, deadline in model.items() if deadline <= now)
        assert sorted(drain(timers, now)) == expected
        for key in expected:
            del model[key]
        nearest = timers.next()
        if model:
            assert nearest is not None
            assert nearest <= min(model.values())
