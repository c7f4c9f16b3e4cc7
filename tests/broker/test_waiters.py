"""Timers and parked fetches, in virtual time."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from tests.broker.harness import VirtualClock

from ottla.broker.timers import Timer, Timers
from ottla.broker.waiters import Waiters
from ottla.log.partition import Partition


class Moved(Partition):
    """A partition of which only the number matters."""

    __slots__ = ()

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def timers(clock: VirtualClock) -> Timers:
    return Timers(clock)


# ------------------------------------------------------------------------------------------ timers


def test_callbacks_come_in_order_of_their_deadlines(clock: VirtualClock, timers: Timers) -> None:
    fired: list[int] = []
    for delay in (30, 10, 20, 10):
        timers.after(delay, partial(fired.append, delay))
    assert timers.run_due() == 0
    clock.passed_ms = 20
    assert timers.run_due() == 3
    clock.passed_ms = 1000
    timers.run_due()
    assert fired == [10, 10, 20, 30]
    assert timers.next_deadline_ms is None


def test_a_cancelled_deadline_never_comes(clock: VirtualClock, timers: Timers) -> None:
    timer = timers.after(10, lambda: pytest.fail("cancelled"))
    timer.cancel()
    timer.cancel()
    assert len(timers) == 0
    clock.passed_ms = 10
    assert timers.run_due() == 0


def test_a_callback_may_cancel_and_add_deadlines(clock: VirtualClock, timers: Timers) -> None:
    fired: list[str] = []
    later = timers.after(20, lambda: fired.append("cancelled"))

    def first() -> None:
        fired.append("first")
        later.cancel()
        timers.after(5, lambda: fired.append("second"))

    timers.after(10, first)
    clock.passed_ms = 10
    timers.run_due()
    clock.passed_ms = 100
    timers.run_due()
    assert fired == ["first", "second"]


def test_the_owner_hears_when_the_nearest_deadline_comes_nearer(timers: Timers) -> None:
    armed: list[float] = []
    timers.after(40, lambda: None)
    timers.on_nearer(armed.append)
    for delay in (30, 50, 10, 20):
        timers.after(delay, lambda: None)
    assert armed == [40, 30, 10]


def test_cancelled_deadlines_do_not_pile_up(timers: Timers) -> None:
    random = Random(1)
    alive: list[Timer] = []
    for number in range(50_000):
        timer = timers.after(random.randrange(10_000), lambda: None)
        if number % 100:
            timer.cancel()
        else:
            alive.append(timer)
    assert len(timers) == len(alive)
    assert len(timers._heap) < 3000


def test_nobody_is_woken_for_a_cancelled_deadline(timers: Timers) -> None:
    for delay in (10, 20):
        timers.after(delay, lambda: None).cancel()
    timers.after(30, lambda: None)
    assert timers.next_deadline_ms == 30


def test_a_callback_that_fails_leaves_the_others(clock: VirtualClock, timers: Timers) -> None:
    fired: list[int] = []

    def bug() -> None:
        raise ZeroDivisionError

    timers.after(1, bug)
    timers.after(2, lambda: fired.append(2))
    clock.passed_ms = 5
    with pytest.raises(ZeroDivisionError):
        timers.run_due()
    timers.run_due()
    assert fired == [2]


# ----------------------------------------------------------------------------------------- waiters


def test_a_commit_wakes_those_who_wait_for_its_partitions(timers: Timers) -> None:
    waiters = Waiters(timers)
    woken: list[str] = []
    waiters.park([1, 2], 100, lambda _: True, lambda: woken.append("a"))
    waiters.park([3], 100, lambda _: True, lambda: woken.append("b"))
    waiters.moved([Moved(9)])
    assert woken == []
    waiters.moved([Moved(2)])
    assert woken == ["a"]
    assert (len(waiters), len(timers)) == (1, 1)
    waiters.moved([Moved(1), Moved(2), Moved(3)])
    assert woken == ["a", "b"]
    assert waiters._by_number == {}


def test_too_little_keeps_it_waiting(clock: VirtualClock, timers: Timers) -> None:
    waiters = Waiters(timers)
    woken: list[int] = []
    asked: list[int] = []

    def enough(partition: Partition) -> bool:
        asked.append(partition.number)
        return len(asked) == 3

    waiters.park([1], 100, enough, lambda: woken.append(1))
    for _ in range(2):
        waiters.moved([Moved(1)])
    assert woken == []
    waiters.moved([Moved(1)])
    assert woken == [1]


def test_time_runs_out(clock: VirtualClock, timers: Timers) -> None:
    waiters = Waiters(timers)
    woken: list[int] = []
    waiters.park([1], 100, lambda _: True, lambda: woken.append(1))
    clock.passed_ms = 99
    timers.run_due()
    assert woken == []
    clock.passed_ms = 100
    timers.run_due()
    waiters.moved([Moved(1)])
    assert woken == [1]
    assert len(waiters) == 0


def test_a_cancelled_wait_is_forgotten(timers: Timers) -> None:
    waiters = Waiters(timers)
    waiter = waiters.park([1], 100, lambda _: True, lambda: pytest.fail("cancelled"))
    waiter.cancel()
    waiter.cancel()
    waiter.wake()
    waiters.moved([Moved(1)])
    assert (len(waiters), len(timers), waiters._by_number) == (0, 0, {})


def test_one_answer_may_end_another_wait(timers: Timers) -> None:
    waiters = Waiters(timers)
    woken: list[str] = []
    second = waiters.park([1], 100, lambda _: True, lambda: woken.append("second"))

    def first() -> None:
        woken.append("first")
        second.cancel()

    second.cancel()
    waiters.park([1], 100, lambda _: True, first)
    second = waiters.park([1], 100, lambda _: True, lambda: woken.append("second"))
    waiters.moved([Moved(1)])
    assert woken == ["first"]


def test_a_deleted_partition_wakes_those_who_wait_for_it(timers: Timers) -> None:
    waiters = Waiters(timers)
    woken: list[str] = []
    waiters.park([1, 2], 100, lambda _: True, lambda: woken.append("a"))
    waiters.park([2], 100, lambda _: True, lambda: woken.append("b"))
    waiters.gone(lambda number: number != 1)
    assert woken == ["a"]


def test_stopping_wakes_everybody(timers: Timers) -> None:
    waiters = Waiters(timers)
    woken: list[int] = []
    for number in range(3):
        waiters.park([number], 100, lambda _: True, partial(woken.append, number))
    waiters.wake_all()
    assert woken == [0, 1, 2]
    assert len(timers) == 0
