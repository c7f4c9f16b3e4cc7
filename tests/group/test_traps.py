"""What a new broker gets wrong with groups: one test a trap, under its number."""

from typing import Any

import pytest
from tests.group.simulated import Consumer, World, commit_error, commit_request, form, subscription

from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from ottla.wire.errors import Error


@pytest.fixture
def world() -> World:
    return World()


class TestTrap34:
    """JoinGroup v4+ without id is told an id first; a static member joins at once."""

    @pytest.mark.parametrize("version", range(4, 10))
    def test_the_id_comes_before_membership(self, world: World, version: int) -> None:
        consumer = Consumer(world, "a")
        request = consumer.join(version)
        assert consumer.member_id == "a-0001"
        assert request.error == Error.NONE
        assert request.response.member_id == "a-0001"

    @pytest.mark.parametrize("version", range(4))
    def test_old_clients_join_at_once(self, world: World, version: int) -> None:
        consumer = Consumer(world, "a")
        assert consumer.join(version).error == Error.NONE
        assert consumer.member_id == ""

    def test_the_id_is_remembered_until_the_session_timeout(self, world: World) -> None:
        consumer = Consumer(world, "a", session_ms=7_000)
        given = consumer.join(come_back=False)
        assert given.error == Error.MEMBER_ID_REQUIRED
        consumer.member_id = given.response.member_id
        world.advance(6_999)
        assert world.state() == "Empty"
        world.advance(1)
        assert world.state() == "none"
        assert consumer.join().error == Error.UNKNOWN_MEMBER_ID

    def test_a_static_member_joins_at_once(self, world: World) -> None:
        consumer = Consumer(world, "a", instance_id="one")
        reply = consumer.join()
        assert reply.error == Error.NONE
        assert reply.response.member_id == "one-0001"
        assert world.ids == 1


class TestTrap35:
    """A made-up id, or one in a group that does not exist, disturbs nobody."""

    def test_unknown_group(self, world: World) -> None:
        consumer = Consumer(world, "a", member_id="never-heard-of")
        reply = consumer.join()
        assert reply.error == Error.UNKNOWN_MEMBER_ID
        assert reply.response.member_id == "never-heard-of"
        assert world.state() == "none"

    def test_unknown_member_of_a_stable_group(self, world: World) -> None:
        member = Consumer(world, "a")
        form(member)
        stranger = Consumer(world, "b", member_id="never-heard-of")
        assert stranger.join().error == Error.UNKNOWN_MEMBER_ID
        stranger.generation_id = member.generation_id
        assert stranger.sync().error == Error.UNKNOWN_MEMBER_ID
        assert stranger.heartbeat() == Error.UNKNOWN_MEMBER_ID
        assert stranger.leave() == Error.UNKNOWN_MEMBER_ID
        assert commit_error(stranger.commit(1)) == Error.UNKNOWN_MEMBER_ID
        assert world.state() == "Stable"
        assert member.heartbeat() == Error.NONE


class TestTrap36:
    """The first join of an empty group waits, longer while newcomers arrive."""

    def test_the_first_join_waits_for_the_delay(self) -> None:
        world = World(initial_rebalance_delay_ms=3_000)
        reply = Consumer(world, "a").join()
        world.advance(2_999)
        assert not reply.answered
        world.advance(1)
        assert reply.error == Error.NONE
        assert world.generation() == 1

    def test_a_newcomer_prolongs_it(self) -> None:
        world = World(initial_rebalance_delay_ms=3_000)
        first = Consumer(world, "a").join()
        world.advance(2_000)
        second = Consumer(world, "b").join()
        world.advance(3_999)
        assert not first.answered
        world.advance(1)
        assert first.response.generation_id == second.response.generation_id == 1

    def test_at_most_up_to_the_rebalance_timeout(self) -> None:
        world = World(initial_rebalance_delay_ms=3_000)
        start = world.now
        first = Consumer(world, "a", rebalance_ms=10_000).join()
        for n in range(20):
            if first.answered:
                break
            world.advance(1_000)
            Consumer(world, f"c{n}", rebalance_ms=10_000).join()
        assert world.now - start == 10_000

    def test_without_delay_the_first_join_is_answered_at_once(self, world: World) -> None:
        assert Consumer(world, "a").join().answered


class TestTrap37:
    """A follower that rejoins unchanged gets its generation again; a leader starts a rebalance."""

    def test_follower(self, world: World) -> None:
        leader, follower = Consumer(world, "a"), Consumer(world, "b")
        form(leader, follower)
        again = follower.join()
        assert again.response.generation_id == follower.generation_id
        assert again.response.members == []
        assert world.state() == "Stable"
        assert follower.sync().response.assignment == b"b"

    def test_follower_with_other_metadata(self, world: World) -> None:
        leader, follower = Consumer(world, "a"), Consumer(world, "b")
        form(leader, follower)
        follower.protocols = {"range": subscription("t0", "t1")}
        assert not follower.join().answered
        assert world.state() == "PreparingRebalance"

    def test_leader(self, world: World) -> None:
        leader, follower = Consumer(world, "a"), Consumer(world, "b")
        form(leader, follower)
        again = leader.join()
        assert not again.answered
        assert follower.heartbeat() == Error.REBALANCE_IN_PROGRESS
        follower.join()
        assert again.response.generation_id == leader.generation_id + 1
        assert len(again.response.members) == 2


class TestTrap38:
    """Heartbeats by state, and that they keep the session alive during a rebalance."""

    def test_by_state(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a)
        assert a.heartbeat() == Error.NONE
        b.join()
        assert (world.state(), a.heartbeat()) == (
            "PreparingRebalance",
            Error.REBALANCE_IN_PROGRESS,
        )
        a.joined(a.join())
        assert (world.state(), a.heartbeat()) == ("CompletingRebalance", Error.NONE)
        assert a.leave() == Error.NONE
        b.leave()
        world.advance(60_000)
        assert (world.state(), a.heartbeat()) == ("Empty", Error.UNKNOWN_MEMBER_ID)

    def test_a_heartbeat_in_a_rebalance_renews_the_session(self, world: World) -> None:
        a, b = Consumer(world, "a", session_ms=10_000), Consumer(world, "b")
        form(a)
        waiting = b.join()
        for _ in range(5):
            world.advance(9_000)
            assert a.heartbeat() == Error.REBALANCE_IN_PROGRESS
        assert not waiting.answered
        world.advance(10_000)  # silent for its session: gone, nobody else is missing
        assert waiting.error == Error.NONE


class TestTrap39:
    """Which commits are taken, by state and generation."""

    def test_with_the_right_generation(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a)
        assert commit_error(a.commit(1)) == Error.NONE
        b.join()
        assert world.state() == "PreparingRebalance"
        assert commit_error(a.commit(2)) == Error.NONE
        a.joined(a.join())
        assert world.state() == "CompletingRebalance"
        assert commit_error(a.commit(3)) == Error.REBALANCE_IN_PROGRESS
        assert world.committed() == {0: 2}

    @pytest.mark.parametrize("wrong", [-2, 0, 2])
    def test_with_another_generation(self, world: World, wrong: int) -> None:
        a = Consumer(world, "a")
        form(a)
        a.generation_id = wrong
        assert commit_error(a.commit(1)) == Error.ILLEGAL_GENERATION

    def test_a_standalone_consumer_makes_its_group(self, world: World) -> None:
        assert commit_error(world.send(commit_request("g", {1: 7}))) == Error.UNKNOWN_TOPIC_ID
        assert commit_error(world.send(commit_request("g", {1: 7}), 9)) == Error.NONE
        assert world.state() == "Empty"
        assert world.committed() == {1: 7}

    def test_a_standalone_consumer_is_refused_by_a_group_in_use(self, world: World) -> None:
        form(Consumer(world, "a"))
        reply = world.send(commit_request("g", {1: 7}), 9)
        assert commit_error(reply) == Error.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("version", range(2, 10))
    def test_a_group_that_does_not_exist(self, world: World, version: int) -> None:
        reply = world.send(commit_request("g", {1: 7}, generation_id=3, member_id="m"), version)
        expected = Error.GROUP_ID_NOT_FOUND if version >= 9 else Error.ILLEGAL_GENERATION
        assert commit_error(reply) == expected


class TestTrap40:
    """SyncGroup of a stable group; protocol checks."""

    def test_stable_answers_the_stored_assignment(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        assert a.sync().response.assignment == b"a"
        assert b.sync().response.assignment == b"b"

    @pytest.mark.parametrize(
        "changes",
        [
            {"protocol_type": "connect"},
            {"protocol_name": "sticky"},
            {"protocol_type": None},
            {"protocol_name": None},
        ],
    )
    def test_another_protocol_or_none(self, world: World, changes: dict[str, Any]) -> None:
        a = Consumer(world, "a")
        form(a)
        assert a.sync(**changes).error == Error.INCONSISTENT_GROUP_PROTOCOL

    @pytest.mark.parametrize("version", range(5))
    def test_before_version_5_there_is_none(self, world: World, version: int) -> None:
        a = Consumer(world, "a")
        form(a)
        assert a.sync(version=version).response.assignment == b"a"


class TestTrap41:
    """A restarted static member: new id, same assignment, no rebalance; the old one is fenced."""

    def test_back_with_an_empty_id(self, world: World) -> None:
        a = Consumer(world, "a")
        old = Consumer(world, "b", instance_id="one")
        form(a, old)
        generation = world.generation()
        new = Consumer(world, "b2", instance_id="one")
        new.joined(new.join())
        assert new.member_id != old.member_id
        assert new.generation_id == generation
        assert new.sync().response.assignment == b"b"
        assert (world.state(), a.heartbeat()) == ("Stable", Error.NONE)
        assert old.heartbeat() == Error.FENCED_INSTANCE_ID
        assert old.sync().error == Error.FENCED_INSTANCE_ID
        assert old.join().error == Error.FENCED_INSTANCE_ID
        assert commit_error(old.commit(1)) == Error.FENCED_INSTANCE_ID
        assert old.leave() == Error.FENCED_INSTANCE_ID
        assert new.heartbeat() == Error.NONE


class TestTrap42:
    """OffsetFetch: nothing is not an error, null is everything, errors are per group."""

    def test_nothing_committed_is_minus_one(self, world: World) -> None:
        request = OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic(name="t0", partition_indexes=[0, 99])]
        )
        for version in range(1, 8):
            reply = world.send(request, version)
            assert reply.response.error_code == Error.NONE
            for partition in reply.response.topics[0].partitions:
                assert partition.committed_offset == -1
                assert partition.error_code == Error.NONE
                assert partition.metadata == ""

    @pytest.mark.parametrize("version", range(2, 8))
    def test_null_topics_are_all(self, world: World, version: int) -> None:
        world.topics.add("t1", 2)
        world.send(commit_request("g", {0: 5, 3: 6}), 9)
        world.send(commit_request("g", {1: 7}, topic="t1"), 9)
        reply = world.send(OffsetFetchRequest(group_id="g", topics=None), version)
        assert {
            (topic.name, p.partition_index, p.committed_offset)
            for topic in reply.response.topics
            for p in topic.partitions
        } == {("t0", 0, 5), ("t0", 3, 6), ("t1", 1, 7)}

    @pytest.mark.parametrize("version", range(8, 11))
    def test_many_groups(self, world: World, version: int) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        world.send(commit_request("h", {0: 6}), 9)
        groups = [
            OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ("h", "g", "i")
        ]
        reply = world.send(OffsetFetchRequest(groups=groups), version)
        assert [
            (g.group_id, g.error_code, [p.committed_offset for t in g.topics for p in t.partitions])
            for g in reply.response.groups
        ] == [("h", 0, [6]), ("g", 0, [5]), ("i", 0, [])]


class TestTrap44:
    """DescribeGroups of a missing group by version; LeaveGroup answers member by member."""

    @pytest.mark.parametrize("version", range(7))
    def test_a_missing_group(self, world: World, version: int) -> None:
        reply = world.send(DescribeGroupsRequest(groups=["g"]), version)
        (group,) = reply.response.groups
        assert group.group_state == "Dead"
        expected = Error.GROUP_ID_NOT_FOUND if version >= 6 else Error.NONE
        assert group.error_code == expected

    def test_leave_of_several(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b", instance_id="one")
        form(a, b)
        reply = world.send(
            LeaveGroupRequest(
                group_id="g",
                members=[
                    MemberIdentity(member_id=a.member_id),
                    MemberIdentity(member_id="stranger"),
                    MemberIdentity(member_id="", group_instance_id="one"),
                    MemberIdentity(member_id="", group_instance_id="two"),
                    MemberIdentity(member_id=a.member_id),
                ],
            )
        )
        assert reply.error == Error.NONE
        assert [member.error_code for member in reply.response.members] == [
            Error.NONE,
            Error.UNKNOWN_MEMBER_ID,
            Error.NONE,
            Error.UNKNOWN_MEMBER_ID,
            Error.UNKNOWN_MEMBER_ID,
        ]
        assert world.state() == "Empty"

    @pytest.mark.parametrize("version", range(3))
    def test_before_version_3_the_answer_is_at_the_top(self, world: World, version: int) -> None:
        a = Consumer(world, "a")
        form(a)
        stranger = Consumer(world, "b", member_id="stranger")
        assert stranger.leave(version) == Error.UNKNOWN_MEMBER_ID
        assert a.leave(version) == Error.NONE
        assert a.leave(version) == Error.UNKNOWN_MEMBER_ID
