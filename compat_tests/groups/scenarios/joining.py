"""Joining, and what is refused: ids, protocols, generations."""

from __future__ import annotations

from compat_tests.groups.scenarios.registry import scenario, two
from compat_tests.groups.script import Script, subscription


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
def an_id_that_was_given_out(script: Script) -> None:
    a, _ = two(script)
    c = script.member("c", session_ms=5_000)
    c.join()
    c.generation_id = a.generation_id
    c.heartbeat()
    c.sync()
    c.commit(1)
    d = script.member("d", session_ms=5_000)
    d.join()
    script.pause(6)
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
