"""Offsets of groups: committed, fetched, refused, deleted; groups described and deleted."""

from __future__ import annotations

import uuid

from compat_tests.groups.scenarios.registry import scenario, two
from compat_tests.groups.script import Script


@scenario
def commits_by_state(script: Script) -> None:
    a, b = two(script)
    a.commit(1)
    a.join()
    b.commit(2)
    b.join()
    b.commit(3)
    a.sync(a, b)
    b.commit(4)
    b.committed()
    b.leave()
    b.commit(5)
    a.leave()
    a.commit(6)
    a.committed()


@scenario
def every_version_of_commit_and_fetch(script: Script) -> None:
    a, _ = two(script)
    for version in range(2, 11):
        a.commit(version, version)
        a.committed(version)
    for version in range(1, 11):
        a.committed(version)
        if version >= 2:
            a.committed(version, everything=True)


@scenario
def standalone_commits(script: Script) -> None:
    alone = script.member("s")
    alone.committed()
    alone.committed(everything=True)
    alone.commit(7)
    alone.committed()
    alone.describe()
    member = script.member("a")
    member.come_in()
    alone.commit(8)
    member.sync(member)
    alone.commit(9)
    alone.commit(9, member_id="stranger")
    alone.committed()


@scenario
def commits_that_are_refused_by_partition(script: Script) -> None:
    alone = script.member("s")

    def parts(*rows: tuple[int, str | None]) -> list[dict[str, object]]:
        return [
            {"partition_index": p, "committed_offset": 5, "committed_metadata": m} for p, m in rows
        ]

    alone.commit(5, topics=[alone.topic(9, parts((0, None), (1, "x" * 4097), (99, "")))])
    alone.commit(5, topics=[{"name": "nowhere", "partitions": parts((0, ""))}])
    alone.commit(5, 10, topics=[{"topic_id": uuid.UUID(int=7), "partitions": parts((0, ""))}])
    alone.commit(5, 10, topics=[alone.topic(10, parts((0, "m"), (99, "")))])
    alone.committed(everything=True)


@scenario
def offsets_are_deleted(script: Script) -> None:
    a, b = two(script)
    a.commit(5)
    a.forget(0, 99)
    b.leave()
    a.leave()
    a.forget(0)
    a.committed()
    a.ask("OffsetDelete", 0, group_id="nobody's", topics=[])
    a.ask("OffsetDelete", 0, group_id="", topics=[])


@scenario
def groups_are_deleted(script: Script) -> None:
    a, b = two(script)
    a.commit(5)
    a.delete()
    b.leave()
    a.delete()
    a.leave()
    for version in range(3):
        a.delete(version)
    a.committed()
    a.describe()


@scenario
def described_in_every_state(script: Script) -> None:
    a = script.member("a")
    for version in range(7):
        a.describe(version)
    a.come_in()
    a.describe()
    a.sync(a)
    for version in range(7):
        a.describe(version)
    b = script.member("b")
    b.come_in()
    a.describe()
    a.join()
    a.describe()
    b.leave()
    a.leave()
    a.describe()
