"""Coming back to a group that is there, and what heartbeats say meanwhile."""

from __future__ import annotations

from compat_tests.groups.scenarios.registry import scenario, two
from compat_tests.groups.script import Script, subscription


@scenario
def a_follower_rejoins(script: Script) -> None:
    _, b = two(script)
    b.join()
    b.sync()
    b.join(version=5)


@scenario
def a_leader_rejoins(script: Script) -> None:
    a, b = two(script)
    a.join()
    b.heartbeat()
    b.join()
    a.sync(a, b)
    b.sync()


@scenario
def a_follower_changes_its_subscription(script: Script) -> None:
    a, b = two(script)
    b.protocols = {"range": subscription(script.topic, "another")}
    b.join()
    a.heartbeat()
    a.join()
    a.sync(a, b)
    b.sync()


@scenario
def rejoining_after_the_answer_was_lost(script: Script) -> None:
    a, b = two(script)
    a.join()
    b.join()
    a.join()
    b.join()
    b.protocols = {"range": subscription("another")}
    b.join()
    a.sync(a, b)
    a.join()


@scenario
def sync_of_followers_waits_for_the_leader(script: Script) -> None:
    a, b = two(script)
    c = script.member("c")
    c.come_in()
    a.join()
    b.join()
    b.sync()
    c.sync()
    c.describe()
    a.sync(b)


@scenario
def a_newcomer_interrupts_the_sync(script: Script) -> None:
    a, b = two(script)
    a.join()
    b.join()
    b.sync()
    c = script.member("c")
    c.come_in()
    a.sync(a, b)
    a.heartbeat()
    a.join()
    b.join()


@scenario
def heartbeats_by_state(script: Script) -> None:
    a, b = two(script)
    a.heartbeat()
    a.join()
    a.heartbeat()
    b.heartbeat()
    b.join()
    a.heartbeat()
    b.heartbeat()
    a.sync(a, b)
    a.heartbeat()
