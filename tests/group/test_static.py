"""Static membership: KIP-345, and KIP-814 for a leader that is restarted."""

import pytest
from tests.group.simulated import Consumer, World, commit_error, form, rejoin, subscription

from ottla.wire.errors import Error


@pytest.fixture
def world() -> World:
    return World()


def pair(world: World) -> tuple[Consumer, Consumer]:
    """Two static members, `a` leads."""
    a = Consumer(world, "a", instance_id="ia")
    b = Consumer(world, "b", instance_id="ib")
    form(a, b)
    assert a.leads
    return a, b


def restarted(consumer: Consumer) -> Consumer:
    return Consumer(
        consumer.world,
        consumer.client_id,
        instance_id=consumer.instance_id,
        protocols=dict(consumer.protocols),
    )


def test_restart_inside_the_session_keeps_assignment_and_generation(world: World) -> None:
    a, b = pair(world)
    world.advance(9_000)
    a.heartbeat()
    new = restarted(b)
    new.joined(new.join())
    assert new.generation_id == b.generation_id
    assert new.sync().response.assignment == b"b"
    assert a.heartbeat() == Error.NONE


def test_restart_past_the_session_is_a_rebalance(world: World) -> None:
    a, b = pair(world)
    world.advance(9_000)
    a.heartbeat()
    world.advance(1_000)
    assert a.heartbeat() == Error.REBALANCE_IN_PROGRESS
    new = restarted(b)
    waiting = new.join()
    again = a.join()
    assert again.response.generation_id == waiting.response.generation_id == a.generation_id + 1


def test_the_new_id_survives_a_crash(world: World) -> None:
    a, b = pair(world)
    new = restarted(b)
    new.joined(new.join())
    world.crash()
    assert new.heartbeat() == Error.NONE
    assert b.heartbeat() == Error.FENCED_INSTANCE_ID
    assert a.heartbeat() == Error.NONE


def test_a_restarted_leader_is_told_not_to_assign(world: World) -> None:
    a, b = pair(world)
    new = restarted(a)
    new.joined(new.join(9))
    assert new.leads
    assert new.skip_assignment
    assert len(new.member_ids) == 2
    assert new.sync().response.assignment == b"a"
    assert b.heartbeat() == Error.NONE


@pytest.mark.parametrize("version", range(5, 9))
def test_before_version_9_it_is_told_that_its_former_self_leads(world: World, version: int) -> None:
    a, _ = pair(world)
    new = restarted(a)
    reply = new.join(version)
    assert reply.response.leader == a.member_id
    assert reply.response.members == []
    new.joined(reply)
    assert not new.leads
    assert new.sync().response.assignment == b"a"


def test_restart_with_other_protocols_is_a_rebalance_when_the_choice_changes(world: World) -> None:
    both = {"range": subscription("t0"), "sticky": subscription("t0")}
    a = Consumer(world, "a", instance_id="ia", protocols=both)
    b = Consumer(world, "b", instance_id="ib", protocols=both)
    form(a, b)
    same = restarted(b)
    same.protocols = {"sticky": subscription("t0"), "range": subscription("t0")}
    assert same.join().answered  # two votes each way, the first vote wins: still range
    other = restarted(b)
    other.protocols = {"sticky": subscription("t0")}
    waiting = other.join()
    assert not waiting.answered
    assert a.heartbeat() == Error.REBALANCE_IN_PROGRESS


def test_restart_while_the_leader_assigns_is_a_rebalance(world: World) -> None:
    a, b = pair(world)
    rejoin(a, b)
    assert world.state() == "CompletingRebalance"
    waiting = b.sync()
    new = restarted(b)
    joining = new.join()
    assert waiting.error == Error.FENCED_INSTANCE_ID
    assert not joining.answered
    assert a.sync({a.member_id: b"a"}).error == Error.REBALANCE_IN_PROGRESS
    a.joined(a.join())
    assert joining.response.member_id in a.member_ids


def test_restart_while_members_join_fences_the_parked_one(world: World) -> None:
    a, b = pair(world)
    first = b.join()
    assert first.answered  # a follower, nothing has changed
    leading = a.join()
    parked = b.join()
    assert parked.answered
    a.joined(leading)
    b.joined(parked)
    a.sync({a.member_id: b"a"})
    a.join()
    Consumer(world, "c").join(come_back=False)  # keeps the join phase open
    parked = b.join()
    new = restarted(b)
    joining = new.join()
    assert parked.error == Error.FENCED_INSTANCE_ID
    assert parked.response.member_id == b.member_id
    world.advance(10_000)
    assert joining.error == Error.NONE


def test_static_members_stay_when_they_miss_the_join_phase(world: World) -> None:
    a = Consumer(world, "a", rebalance_ms=20_000, session_ms=60_000)
    b = Consumer(world, "b", instance_id="ib", rebalance_ms=20_000, session_ms=60_000)
    form(a, b)
    waiting = a.join()
    world.advance(20_000)
    a.joined(waiting)
    assert b.member_id in a.member_ids


def test_nobody_back_but_static_members_that_are_away(world: World) -> None:
    a = Consumer(world, "a", instance_id="ia", rebalance_ms=20_000, session_ms=60_000)
    b = Consumer(world, "b", rebalance_ms=20_000, session_ms=60_000)
    form(a, b)
    b.leave()
    generation = world.generation()
    world.advance(45_000)
    assert (world.state(), world.generation()) == ("PreparingRebalance", generation)
    world.advance(60_000)
    assert (world.state(), world.generation()) == ("Empty", generation + 1)


def test_an_instance_id_that_nobody_has(world: World) -> None:
    a, _ = pair(world)
    stranger = Consumer(world, "x", instance_id="ix", member_id=a.member_id)
    stranger.generation_id = a.generation_id
    assert stranger.heartbeat() == Error.UNKNOWN_MEMBER_ID
    assert stranger.join().error == Error.UNKNOWN_MEMBER_ID
    assert commit_error(stranger.commit(1)) == Error.UNKNOWN_MEMBER_ID
    assert stranger.leave() == Error.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_out_does_not_join_as_a_static_member(world: World) -> None:
    a = Consumer(world, "a")
    a.member_id = a.join(come_back=False).response.member_id
    a.instance_id = "ia"
    assert a.join().error == Error.UNKNOWN_MEMBER_ID


def test_a_static_member_leaves_only_when_it_is_told_to(world: World) -> None:
    a, b = pair(world)
    by_hand = Consumer(world, "admin", instance_id="ib")
    assert by_hand.leave() == Error.NONE
    assert b.heartbeat() == Error.UNKNOWN_MEMBER_ID
    assert a.heartbeat() == Error.REBALANCE_IN_PROGRESS
