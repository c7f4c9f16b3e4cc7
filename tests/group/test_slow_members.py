"""Members that fail or are slow: sessions, the seven cases of being late."""

import pytest
from tests.group.simulated import Consumer, World, commit_error, form, rejoin

from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.errors import Error


@pytest.fixture
def world() -> World:
    return World()


class TestSessions:
    def test_a_silent_member_is_removed(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b", session_ms=6_000)
        form(a, b)
        world.advance(5_999)
        assert a.heartbeat() == Error.NONE
        world.advance(1)
        assert a.heartbeat() == Error.REBALANCE_IN_PROGRESS
        assert b.heartbeat() == Error.UNKNOWN_MEMBER_ID
        reply = a.join()
        assert reply.response.generation_id == 3
        assert len(reply.response.members) == 1

    def test_heartbeats_and_commits_keep_it(self, world: World) -> None:
        a = Consumer(world, "a", session_ms=6_000)
        form(a)
        for offset in range(5):
            world.advance(5_999)
            assert a.heartbeat() == Error.NONE
            world.advance(5_999)
            assert commit_error(a.commit(offset)) == Error.NONE

    def test_it_stands_still_while_join_is_parked(self, world: World) -> None:
        a, b = Consumer(world, "a", session_ms=6_000), Consumer(world, "b", session_ms=6_000)
        form(a, b)
        waiting = a.join()
        for _ in range(10):
            world.advance(5_000)
            b.heartbeat()
        assert not waiting.answered
        b.join()
        a.joined(waiting)
        assert len(a.member_ids) == 2

    def test_it_stands_still_while_sync_is_parked(self, world: World) -> None:
        a, b = Consumer(world, "a", session_ms=6_000), Consumer(world, "b", session_ms=6_000)
        form(a, b)
        rejoin(a, b)
        waiting = b.sync()
        for _ in range(8):
            world.advance(5_000)
            a.heartbeat()
        assert not waiting.answered
        a.sync({a.member_id: b"a", b.member_id: b"b"})
        assert waiting.response.assignment == b"b"
        world.advance(5_999)
        assert b.heartbeat() == Error.NONE  # it started again with the answer

    def test_a_new_member_waits_five_minutes_at_most(self, world: World) -> None:
        a = Consumer(world, "a", rebalance_ms=1_000_000)
        form(a)
        waiting = Consumer(world, "b", rebalance_ms=1_000_000).join()
        for _ in range(60):
            world.advance(4_999)
            a.heartbeat()
        assert not waiting.answered
        world.advance(60)
        assert waiting.error == Error.UNKNOWN_MEMBER_ID
        assert waiting.response.member_id == ""

    def test_all_silent_leaves_the_group_empty(self, world: World) -> None:
        form(*[Consumer(world, name) for name in "abc"])
        world.advance(10_000 + 60_000)
        assert world.state() == "Empty"


class TestSlowMembers:
    """K5, its seven cases: late before, during and after the join phase."""

    def start(self, world: World) -> tuple[Consumer, Consumer]:
        a, b = Consumer(world, "a", rebalance_ms=20_000), Consumer(world, "b", rebalance_ms=20_000)
        form(a, b)
        return a, b

    def test_slow_but_within_its_session_is_kept(self, world: World) -> None:
        a, b = self.start(world)
        world.advance(9_999)
        assert b.heartbeat() == Error.NONE
        assert a.heartbeat() in (Error.NONE, Error.REBALANCE_IN_PROGRESS)

    def test_slow_beyond_its_session_is_out_before_any_rebalance(self, world: World) -> None:
        a, b = self.start(world)
        world.advance(9_000)
        a.heartbeat()
        world.advance(1_000)
        assert b.heartbeat() == Error.UNKNOWN_MEMBER_ID
        assert b.join().error == Error.UNKNOWN_MEMBER_ID
        b.member_id = ""
        assert not b.join().answered  # joins the next generation

    def test_back_during_the_join_phase_is_kept(self, world: World) -> None:
        a, b = self.start(world)
        a_waits = a.join()
        world.advance(8_000)
        b.heartbeat()
        world.advance(8_000)
        b_back = b.join()
        assert a_waits.response.generation_id == b_back.response.generation_id == 3
        assert len(a_waits.response.members) == 2

    def test_back_after_the_join_phase_is_told_so(self, world: World) -> None:
        a, b = self.start(world)
        a_waits = a.join()
        for _ in range(4):
            world.advance(5_000)
            b.heartbeat()
        assert a_waits.error == Error.NONE  # not held up longer than the rebalance timeout
        assert b.heartbeat() == Error.UNKNOWN_MEMBER_ID
        assert b.join().error == Error.UNKNOWN_MEMBER_ID

    def test_back_after_the_join_phase_does_not_call_it_off(self, world: World) -> None:
        a, b = self.start(world)
        a_waits = a.join()
        for _ in range(4):
            world.advance(5_000)
            b.heartbeat()
        a.joined(a_waits)
        b.member_id = ""
        b_waits = b.join()
        assert a.sync({a.member_id: b"a"}).error == Error.REBALANCE_IN_PROGRESS
        a_back = a.join()
        assert a_back.response.generation_id == b_waits.response.generation_id == 4

    def test_slow_to_sync_gets_its_assignment_late(self, world: World) -> None:
        a, b = self.start(world)
        rejoin(a, b)
        a.sync({a.member_id: b"a", b.member_id: b"b"})
        world.advance(8_000)
        assert b.heartbeat() == Error.NONE
        a.heartbeat()
        world.advance(8_000)
        assert b.sync().response.assignment == b"b"
        a.heartbeat()
        world.advance(9_000)
        assert (world.state(), b.heartbeat()) == ("Stable", Error.NONE)

    def test_never_to_sync_is_out_after_the_rebalance_timeout(self, world: World) -> None:
        a, b = self.start(world)
        rejoin(a, b)
        a.sync({a.member_id: b"a", b.member_id: b"b"})
        for _ in range(4):
            world.advance(5_000)
            a.heartbeat(), b.heartbeat()
        assert a.heartbeat() == Error.REBALANCE_IN_PROGRESS
        assert b.heartbeat() == Error.UNKNOWN_MEMBER_ID


def test_heartbeats_leave_nothing_behind(world: World) -> None:
    a = Consumer(world)
    form(a)
    rows = dict(world.disk.tables["groups"])
    timers = len(world.machine.registry.timers)
    for _ in range(100):
        world.send(
            HeartbeatRequest(group_id="g", generation_id=a.generation_id, member_id=a.member_id)
        )
        world.advance(100)
    assert world.disk.tables["groups"] == rows
    assert len(world.machine.registry.timers) == timers
