"""Static members: they restart in time, too late, in the middle of a rebalance."""

from __future__ import annotations

from compat_tests.groups.scenarios.registry import scenario, settle, two
from compat_tests.groups.script import Script, subscription


@scenario
def static_member_restarts_in_time(script: Script) -> None:
    a = script.member("a")
    b = script.member("b", instance_id="ib")
    settle(a, b)
    again = script.member("b", instance_id="ib")
    again.join()
    again.sync()
    again.heartbeat()
    a.heartbeat()
    b.heartbeat()
    b.sync()
    b.join()
    b.commit(1)
    b.leave()
    again.commit(2)
    again.describe()


@scenario
def static_leader_restarts(script: Script) -> None:
    a = script.member("a", instance_id="ia")
    b = script.member("b", instance_id="ib")
    settle(a, b)
    for version in (9, 8, 5):
        again = script.member("a", instance_id="ia")
        again.join(version)
        again.sync()
        b.heartbeat()


@scenario
def static_member_restarts_too_late(script: Script) -> None:
    a = script.member("a")
    b = script.member("b", instance_id="ib", session_ms=5_000)
    settle(a, b)
    script.pause(6)
    a.heartbeat()
    again = script.member("b", instance_id="ib")
    again.join()
    a.join()
    b.heartbeat()


@scenario
def static_member_restarts_in_a_rebalance(script: Script) -> None:
    a = script.member("a")
    b = script.member("b", instance_id="ib")
    settle(a, b)
    a.join()
    again = script.member("b", instance_id="ib")
    again.join()
    again.sync()
    third = script.member("b", instance_id="ib")
    third.join()
    a.sync(a, again)
    a.join()


@scenario
def static_member_with_other_topics(script: Script) -> None:
    a = script.member("a", instance_id="ia")
    b = script.member("b", instance_id="ib")
    settle(a, b)
    again = script.member("b", instance_id="ib")
    again.protocols = {"range": subscription("another")}
    again.join()
    a.heartbeat()


@scenario
def an_instance_id_that_nobody_has(script: Script) -> None:
    a, _ = two(script)
    a.instance_id = "ix"
    a.heartbeat()
    a.join()
    a.sync()
    a.commit(1)
    a.leave()
