"""Members that are silent, slow, or do not come back."""

from __future__ import annotations

from compat_tests.groups.scenarios.registry import scenario, settle, two
from compat_tests.groups.script import Script


@scenario
def a_silent_member(script: Script) -> None:
    a = script.member("a")
    b = script.member("b", session_ms=5_000)
    settle(a, b)
    script.pause(6)
    a.heartbeat()
    b.heartbeat()
    b.join()
    a.join()


@scenario
def slow_within_the_session(script: Script) -> None:
    a, b = two(script, session_ms=9_000)
    script.pause(1.5)
    a.heartbeat()
    script.pause(1)
    b.heartbeat()
    a.heartbeat()


@scenario
def slow_and_back_while_others_join(script: Script) -> None:
    a, b = two(script, rebalance_ms=15_000)
    a.join()
    script.pause(2)
    b.join()
    a.sync(a, b)
    b.sync()


@scenario
def slow_and_back_when_others_have_joined(script: Script) -> None:
    a, b = two(script, rebalance_ms=5_000)
    a.join()
    b.heartbeat()
    script.until_answered(a)
    b.heartbeat()
    b.join()
    a.sync(a, b)
    b.member_id, b.generation_id = "", -1
    b.come_in()
    a.heartbeat()
    a.join()


@scenario
def slow_and_back_between_join_and_sync(script: Script) -> None:
    a, b = two(script, rebalance_ms=5_000)
    a.join()
    b.heartbeat()
    script.until_answered(a)
    b.heartbeat()
    b.member_id, b.generation_id = "", -1
    b.come_in()
    a.sync(a, b)
    a.join()
    b.sync()
    a.sync(a, b)


@scenario
def slow_to_sync(script: Script) -> None:
    a, b = two(script, rebalance_ms=6_000)
    a.join()
    b.join()
    a.sync(a, b)
    script.pause(1)
    b.heartbeat()
    b.sync()
    script.pause(6)
    a.heartbeat()
    b.heartbeat()


@scenario
def never_back_after_join(script: Script) -> None:
    a, b = two(script, rebalance_ms=4_000)
    a.join()
    b.join()
    a.sync(a, b)
    script.pause(5)
    a.heartbeat()
    b.sync()
    b.heartbeat()


@scenario
def a_leader_that_never_assigns(script: Script) -> None:
    a, b = two(script, rebalance_ms=5_000)
    a.join()
    b.join()
    b.sync()
    script.until_answered(b)
    a.heartbeat()
    b.join()
