"""What is said in each trace, one function a trace. traces/NAME.txt is what Kafka answers."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from compat_tests.groups.script import Script, Speaker, subscription

Scenario = Callable[[Script], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def two(script: Script, **options: object) -> tuple[Speaker, Speaker]:
    """Two members of a stable group; `a` leads."""
    a, b = script.member("a", **options), script.member("b", **options)
    a.come_in()
    a.sync(a)
    b.come_in()
    a.join()
    b.sync()
    a.sync(a, b)
    return a, b


@scenario
def every_version_of_the_first_join(script: Script) -> None:
    for version in range(10):
        member = script.member(f"v{version}")
        member.come_in(version)
        member.sync(member, version=min(version, 5))
        member.heartbeat(min(version, 4))
        member.leave(min(version, 5))


@scenario
def join_of_a_second_and_a_third(script: Script) -> None:
    a, b = two(script)
    c = script.member("c")
    c.come_in()
    b.heartbeat()
    b.join()
    a.join()
    c.sync()
    b.sync()
    a.sync(a, b, c)
    a.heartbeat()
    c.heartbeat()


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


@scenario
def strangers(script: Script) -> None:
    stranger = script.member("s")
    stranger.member_id = "stranger"
    stranger.join()
    stranger.sync()
    stranger.heartbeat()
    stranger.leave()
    stranger.generation_id = 3
    stranger.commit(1)
    stranger.commit(1, version=8)
    two(script)
    stranger.join()
    stranger.sync()
    stranger.heartbeat()
    stranger.leave()
    stranger.commit(1)


@scenario
def requests_without_a_group(script: Script) -> None:
    a = script.member("a")
    a.join(group_id="")
    a.sync(group_id="")
    a.heartbeat(group_id="")
    a.leave(group_id="")


@scenario
def sessions_out_of_bounds(script: Script) -> None:
    for ms in (0, 999, 1_800_001):
        script.member(f"s{ms}", session_ms=ms).join()


@scenario
def protocols_that_do_not_fit(script: Script) -> None:
    script.member("n").join(protocols=[])
    script.member("t").join(protocol_type="")
    two(script)
    script.member("x", protocols={"sticky": b""}).join()
    script.member("y", protocol_type="connect").join()
    script.member("z").join(version=3, protocols=[])


@scenario
def an_assignor_that_all_know(script: Script) -> None:
    topic = subscription(script.topic)
    a = script.member("a", protocols={"roundrobin": topic, "range": topic})
    b = script.member("b", protocols={"range": topic})
    a.come_in()
    a.sync(a)
    b.come_in()
    a.join()
    a.sync(a, b, protocol_name="range")
    b.sync()


@scenario
def sync_with_another_protocol(script: Script) -> None:
    a, _ = two(script)
    a.sync(protocol_type="connect")
    a.sync(protocol_name="sticky")
    a.sync(protocol_type=None)
    a.sync(protocol_name=None)
    a.sync(version=4)


@scenario
def stale_and_future_generations(script: Script) -> None:
    a, _ = two(script)
    for generation in (-1, 0, a.generation_id - 1, a.generation_id + 1):
        a.heartbeat(generation_id=generation)
        a.sync(generation_id=generation)
        a.commit(1, generation_id_or_member_epoch=generation)


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


@scenario
def an_id_that_was_given_out(script: Script) -> None:
    a, _ = two(script)
    c = script.member("c", session_ms=1_000)
    c.join()
    c.generation_id = a.generation_id
    c.heartbeat()
    c.sync()
    c.commit(1)
    d = script.member("d", session_ms=1_000)
    d.join()
    script.pause(2)
    d.join()
    a.heartbeat()


@scenario
def others_wait_for_an_id_that_was_given_out(script: Script) -> None:
    a, b = two(script)
    c = script.member("c")
    c.join()
    a.join()
    b.join()
    c.join()


@scenario
def a_silent_member(script: Script) -> None:
    a = script.member("a")
    b = script.member("b", session_ms=1_000)
    a.come_in()
    a.sync(a)
    b.come_in()
    a.join()
    a.sync(a, b)
    b.sync()
    script.pause(2)
    a.heartbeat()
    b.heartbeat()
    b.join()
    a.join()


@scenario
def slow_within_the_session(script: Script) -> None:
    a, b = two(script, session_ms=3_000)
    script.pause(1.5)
    a.heartbeat()
    script.pause(1)
    b.heartbeat()
    a.heartbeat()


@scenario
def slow_and_back_while_others_join(script: Script) -> None:
    a, b = two(script, rebalance_ms=4_000)
    a.join()
    script.pause(2)
    b.join()
    a.sync(a, b)
    b.sync()


@scenario
def slow_and_back_when_others_have_joined(script: Script) -> None:
    a, b = two(script, rebalance_ms=1_500)
    a.join()
    b.heartbeat()
    script.pause(2.5)
    b.heartbeat()
    b.join()
    a.sync(a, b)
    b.member_id, b.generation_id = "", -1
    b.come_in()
    a.heartbeat()
    a.join()


@scenario
def slow_and_back_between_join_and_sync(script: Script) -> None:
    a, b = two(script, rebalance_ms=4_000)
    a.join()
    b.heartbeat()
    script.pause(3.5)
    b.heartbeat()
    b.member_id, b.generation_id = "", -1
    b.come_in()
    a.sync(a, b)
    a.join()
    b.sync()
    a.sync(a, b)


@scenario
def slow_to_sync(script: Script) -> None:
    a, b = two(script, rebalance_ms=3_000)
    a.join()
    b.join()
    a.sync(a, b)
    script.pause(1)
    b.heartbeat()
    b.sync()
    script.pause(3)
    a.heartbeat()
    b.heartbeat()


@scenario
def never_back_after_join(script: Script) -> None:
    a, b = two(script, rebalance_ms=1_500)
    a.join()
    b.join()
    a.sync(a, b)
    script.pause(2.5)
    a.heartbeat()
    b.sync()
    b.heartbeat()


@scenario
def a_leader_that_never_assigns(script: Script) -> None:
    a, b = two(script, rebalance_ms=1_500)
    a.join()
    b.join()
    b.sync()
    script.pause(2.5)
    a.heartbeat()
    b.join()


@scenario
def static_member_restarts_in_time(script: Script) -> None:
    a = script.member("a")
    b = script.member("b", instance_id="ib")
    a.come_in()
    a.sync(a)
    b.come_in()
    a.join()
    a.sync(a, b)
    b.sync()
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
    a.come_in()
    a.sync(a)
    b.come_in()
    a.join()
    a.sync(a, b)
    b.sync()
    for version in (9, 8, 5):
        again = script.member("a", instance_id="ia")
        again.join(version)
        again.sync()
        b.heartbeat()


@scenario
def static_member_restarts_too_late(script: Script) -> None:
    a = script.member("a")
    b = script.member("b", instance_id="ib", session_ms=1_000)
    a.come_in()
    a.sync(a)
    b.come_in()
    a.join()
    a.sync(a, b)
    b.sync()
    script.pause(2)
    a.heartbeat()
    again = script.member("b", instance_id="ib")
    again.join()
    a.join()
    b.heartbeat()


@scenario
def static_member_restarts_in_a_rebalance(script: Script) -> None:
    a = script.member("a")
    b = script.member("b", instance_id="ib")
    a.come_in()
    a.sync(a)
    b.come_in()
    a.join()
    a.sync(a, b)
    b.sync()
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
    a.come_in()
    a.sync(a)
    b.come_in()
    a.join()
    a.sync(a, b)
    b.sync()
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
