"""Leaving: one, the leader, several at once, in old versions."""

from __future__ import annotations

from compat_tests.groups.scenarios.registry import scenario, two
from compat_tests.groups.script import Script


@scenario
def leaving(script: Script) -> None:
    a, b = two(script)
    b.leave()
    b.heartbeat()
    a.heartbeat()
    a.join()
    a.sync(a)
    a.leave()
    a.leave()
    a.describe()


@scenario
def the_leader_leaves(script: Script) -> None:
    a, b = two(script)
    a.leave()
    b.heartbeat()
    b.join()
    b.sync(b)


@scenario
def leaving_one_by_one_and_by_name(script: Script) -> None:
    a, b = two(script)
    c = script.member("c", instance_id="ic")
    c.come_in()
    a.join()
    b.join()
    a.sync(a, b, c)
    members = [
        {"member_id": b.member_id},
        {"member_id": "stranger"},
        {"member_id": "", "group_instance_id": "ic"},
        {"member_id": "", "group_instance_id": "nobody"},
        {"member_id": a.member_id, "group_instance_id": "nobody"},
        {"member_id": "", "group_instance_id": None},
    ]
    a.leave(members=members)
    a.join()


@scenario
def leaving_before_version_3(script: Script) -> None:
    for version in range(3):
        member = script.member(f"v{version}")
        member.come_in()
        member.leave(version, member_id="stranger")
        member.leave(version)
        member.leave(version)
