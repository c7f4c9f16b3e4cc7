"""Joining and leaving: generations, protocols, leaders; dynamic members of the classic protocol."""

import pytest
from tests.group.simulated import Consumer, World, form, rejoin, subscription

from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest
from ottla.wire.api.sync_group import SyncGroupRequest
from ottla.wire.errors import Error


@pytest.fixture
def world() -> World:
    return World()


class TestChecksInFront:
    def test_a_group_has_a_name(self, world: World) -> None:
        assert Consumer(world, group_id="").join().error == Error.INVALID_GROUP_ID
        assert Consumer(world, group_id="").sync().error == Error.INVALID_GROUP_ID
        assert Consumer(world, group_id="").heartbeat() == Error.INVALID_GROUP_ID
        assert world.send(LeaveGroupRequest()).error == Error.INVALID_GROUP_ID

    @pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
    def test_session_timeouts_have_bounds(self, world: World, session_ms: int) -> None:
        reply = Consumer(world, session_ms=session_ms).join()
        assert reply.error == Error.INVALID_SESSION_TIMEOUT
        assert world.state() == "none"

    @pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
    def test_the_bounds_are_within(self, world: World, session_ms: int) -> None:
        assert Consumer(world, session_ms=session_ms).join().error == Error.NONE

    def test_protocols_are_compulsory(self, world: World) -> None:
        assert Consumer(world, protocols={}).join().error == Error.INCONSISTENT_GROUP_PROTOCOL
        assert Consumer(world, protocol_type="").join().error == Error.INCONSISTENT_GROUP_PROTOCOL
        assert world.state() == "none"

    def test_sync_of_an_empty_group(self, world: World) -> None:
        a = Consumer(world)
        form(a)
        a.leave()
        assert a.sync().error == Error.UNKNOWN_MEMBER_ID

    def test_version_0_has_one_timeout_for_both(self, world: World) -> None:
        a = Consumer(world, "a", session_ms=10_000, rebalance_ms=60_000)
        a.joined(a.join(0))
        a.sync({a.member_id: b""}, version=0)
        waiting = Consumer(world, "b", rebalance_ms=10_000).join()
        world.advance(9_000)
        a.heartbeat(0)
        world.advance(1_000)
        assert waiting.error == Error.NONE


class TestGenerations:
    def test_every_rebalance_raises_the_generation(self, world: World) -> None:
        a = Consumer(world)
        for generation in range(1, 5):
            form(a)
            assert a.generation_id == generation

    def test_also_the_one_that_leaves_the_group_empty(self, world: World) -> None:
        a = Consumer(world)
        form(a)
        a.leave()
        assert (world.state(), world.generation()) == ("Empty", 2)
        b = Consumer(world, "b")
        form(b)
        assert b.generation_id == 3

    @pytest.mark.parametrize("wrong", [-1, 0, 2])
    def test_a_stale_or_future_generation_is_told_so(self, world: World, wrong: int) -> None:
        a = Consumer(world)
        form(a)
        a.generation_id = wrong
        assert a.heartbeat() == Error.ILLEGAL_GENERATION
        assert a.sync().error == Error.ILLEGAL_GENERATION

    def test_all_answers_carry_it_and_the_leader_alone_the_members(self, world: World) -> None:
        members = [Consumer(world, name) for name in "abcde"]
        form(*members)
        assert {m.generation_id for m in members} == {world.generation()}
        assert [m.leads for m in members] == [True, False, False, False, False]
        assert sorted(members[0].member_ids) == sorted(m.member_id for m in members)
        assert all(m.member_ids == [] for m in members[1:])
        assert [m.assignment for m in members] == [b"a", b"b", b"c", b"d", b"e"]

    def test_members_forgotten_by_the_leader_get_an_empty_assignment(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        rejoin(a, b)
        waiting = b.sync()
        a.sync({a.member_id: b"all", "nobody": b"x"})
        assert (waiting.error, waiting.response.assignment) == (Error.NONE, b"")


class TestProtocols:
    def protocols(self, *names: str) -> dict[str, bytes]:
        return {name: subscription("t0") for name in names}

    def test_without_a_common_one_the_newcomer_is_refused(self, world: World) -> None:
        a = Consumer(world, "a", protocols=self.protocols("range"))
        form(a)
        b = Consumer(world, "b", protocols=self.protocols("sticky"))
        assert b.join().error == Error.INCONSISTENT_GROUP_PROTOCOL
        c = Consumer(world, "c", protocols=self.protocols("range"), protocol_type="connect")
        assert c.join().error == Error.INCONSISTENT_GROUP_PROTOCOL
        assert (world.state(), a.heartbeat()) == ("Stable", Error.NONE)

    def test_most_votes_win_among_those_that_all_know(self, world: World) -> None:
        a = Consumer(world, "a", protocols=self.protocols("x", "range", "sticky"))
        b = Consumer(world, "b", protocols=self.protocols("sticky", "range"))
        c = Consumer(world, "c", protocols=self.protocols("sticky", "range"))
        replies = [m.join() for m in (a, b, c)]
        a.joined(replies[0])
        replies[0] = a.join()
        assert {r.response.protocol_name for r in replies} == {"sticky"}

    def test_a_changed_list_is_counted_anew(self, world: World) -> None:
        a = Consumer(world, "a", protocols=self.protocols("range", "sticky"))
        b = Consumer(world, "b", protocols=self.protocols("range", "sticky"))
        form(a, b)
        a.protocols = self.protocols("sticky")
        b.protocols = self.protocols("sticky", "range")
        reply, other = a.join(), b.join()
        assert reply.response.protocol_name == other.response.protocol_name == "sticky"

    def test_an_empty_group_takes_any(self, world: World) -> None:
        a = Consumer(world, "a")
        form(a)
        a.leave()
        b = Consumer(world, "b", protocols=self.protocols("x"), protocol_type="connect")
        form(b)
        assert world.machine.registry.groups["g"].protocol_type == "connect"


class TestLeader:
    def test_another_one_leads_when_the_leader_leaves(self, world: World) -> None:
        a, b, c = (Consumer(world, name) for name in "abc")
        form(a, b, c)
        a.leave()
        replies = {m: m.join() for m in (b, c)}
        leaders = {r.response.leader for r in replies.values()}
        assert leaders == {b.member_id}
        assert len(replies[b].response.members) == 2

    def test_a_leader_that_does_not_come_back_leads_no_more(self, world: World) -> None:
        a, b = Consumer(world, "a", rebalance_ms=20_000), Consumer(world, "b", rebalance_ms=20_000)
        form(a, b)
        c = Consumer(world, "c", rebalance_ms=20_000).join()
        waiting = b.join()
        world.advance(20_000)
        assert waiting.response.leader == b.member_id
        assert c.response.leader == b.member_id

    def test_a_leader_that_never_assigns_is_replaced(self, world: World) -> None:
        a, b = Consumer(world, "a", rebalance_ms=20_000), Consumer(world, "b", rebalance_ms=20_000)
        form(a, b)
        rejoin(a, b)
        waiting = b.sync()
        for _ in range(2):
            world.advance(9_000)
            assert a.heartbeat() == Error.NONE
            assert not waiting.answered
        world.advance(2_000)
        assert waiting.error == Error.REBALANCE_IN_PROGRESS
        assert a.heartbeat() == Error.UNKNOWN_MEMBER_ID
        assert b.join().response.leader == b.member_id


class TestRepeatedRequests:
    """A client that lost its connection asks again; both requests are answered."""

    def test_join(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        first = a.join()
        second = a.join()
        assert first.error == Error.REBALANCE_IN_PROGRESS
        b.join()
        assert second.error == Error.NONE
        assert len(second.response.members) == 2

    def test_join_after_the_answer_was_lost(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        first, other = a.join(), b.join()
        assert first.answered
        again = a.join()
        assert again.response == first.response
        assert b.join().response == other.response
        assert world.state() == "CompletingRebalance"

    def test_sync(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        rejoin(a, b)
        first, second = b.sync(), b.sync()
        assert first.error == Error.REBALANCE_IN_PROGRESS
        a.sync({b.member_id: b"b"})
        assert second.response.assignment == b"b"

    def test_a_join_in_the_middle_of_it_all_calls_back_who_waits_for_sync(
        self, world: World
    ) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        rejoin(a, b)
        waiting = b.sync()
        Consumer(world, "c").join()
        assert waiting.error == Error.REBALANCE_IN_PROGRESS
        assert waiting.response.assignment == b""
        assert a.sync({a.member_id: b"a"}).error == Error.REBALANCE_IN_PROGRESS


class TestLeaving:
    def test_a_parked_join_is_answered(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a)
        waiting = b.join()
        b.leave()
        assert waiting.error == Error.UNKNOWN_MEMBER_ID
        assert world.state() == "PreparingRebalance"
        assert a.join().error == Error.NONE

    def test_a_parked_sync_is_answered(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        rejoin(a, b)
        waiting = b.sync()
        b.leave()
        assert waiting.error == Error.UNKNOWN_MEMBER_ID
        assert a.heartbeat() == Error.REBALANCE_IN_PROGRESS

    def test_the_last_one_missing_completes_the_others_join(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        waiting = a.join()
        b.leave()
        assert waiting.error == Error.NONE

    def test_an_id_that_has_not_joined_leaves_without_a_rebalance(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a)
        b.member_id = b.join(come_back=False).response.member_id
        assert b.leave() == Error.NONE
        assert (world.state(), a.heartbeat()) == ("Stable", Error.NONE)
        assert b.join().error == Error.UNKNOWN_MEMBER_ID

    def test_reasons_are_reported(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a)
        joining = b.join(reason="too much to do")
        a.joined(a.join())
        b.joined(joining)
        a.sync({})
        last = world.rebalances[-1]
        assert "too much to do" in last.reason
        assert (last.members, last.generation_id) == (2, 2)


def test_two_protocol_entries_of_one_name_count_once(world: World) -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=subscription("t0"))
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol, protocol],
    )
    assert world.send(request, 3).error == Error.NONE
    assert not Consumer(world, "b").join().answered


def test_sync_of_another_generation_does_not_touch_the_one_that_is_made(world: World) -> None:
    a, b = Consumer(world, "a"), Consumer(world, "b")
    form(a, b)
    replies = a.join(), b.join()
    stale = world.send(
        SyncGroupRequest(group_id="g", generation_id=a.generation_id, member_id=a.member_id),
        4,
    )
    assert stale.error == Error.ILLEGAL_GENERATION
    a.joined(replies[0])
    assert world.state() == "CompletingRebalance"
