"""Groups: facts 34 to 44."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from compat_tests.conftest import MakeBroker
from compat_tests.groups.script import subscription
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire
from compat_tests.traps.groupkit import (
    MakeMember,
    Member,
    described,
    error,
    form,
    wait_for_coordinator,
)

# ---------------------------------------------------------------------------------------------- 34


@pytest.mark.parametrize("version", range(4, 10))
def test_trap_34_the_id_comes_before_membership(member: MakeMember, version: int) -> None:
    one = member()
    first = one.join(version)
    assert error(first) == "MEMBER_ID_REQUIRED"
    assert first.member_id.startswith("raw-")
    assert one.state() in ("Empty", "Dead")  # from 4.0 on an id alone makes a group
    second = one.join(version)
    assert (error(second), second.member_id) == ("NONE", first.member_id)


@pytest.mark.parametrize("version", range(4))
def test_trap_34_before_v4_a_member_joins_at_once(member: MakeMember, version: int) -> None:
    assert error(member().join(version)) == "NONE"


def test_trap_34_an_id_that_was_given_out_is_forgotten_after_the_session(
    member: MakeMember,
) -> None:
    one, late = member(), member(session_ms=1_000)
    form(one)
    assert error(late.join()) == "MEMBER_ID_REQUIRED"
    time.sleep(4)
    assert error(late.join()) == "UNKNOWN_MEMBER_ID"
    assert one.heartbeat() == "NONE", "nobody was disturbed"


def test_trap_34_a_static_member_joins_at_once(member: MakeMember) -> None:
    answer = member(instance_id="one").join()
    assert error(answer) == "NONE"
    assert answer.member_id.startswith("one-")


# ---------------------------------------------------------------------------------------------- 35


def test_trap_35_an_unknown_id_disturbs_nobody(member: MakeMember) -> None:
    one, stranger = member(), member()
    stranger.member_id = "raw-of-whom-nobody-has-heard"
    assert error(stranger.join()) == "UNKNOWN_MEMBER_ID", "no group either"
    form(one)
    assert error(stranger.join()) == "UNKNOWN_MEMBER_ID"
    stranger.generation_id = one.generation_id
    assert error(stranger.sync()) == "UNKNOWN_MEMBER_ID"
    assert stranger.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert stranger.leave() == "UNKNOWN_MEMBER_ID"
    assert stranger.commit(1) == "UNKNOWN_MEMBER_ID"
    assert (one.heartbeat(), one.state()) == ("NONE", "Stable")


# ---------------------------------------------------------------------------------------------- 36


def test_trap_36_the_first_join_waits_for_those_who_come_with_it(
    make_broker: MakeBroker,
) -> None:
    """Each newcomer prolongs the wait, so that all of them are in the first generation."""
    broker = make_broker({"group.initial.rebalance.delay.ms": "4000"})
    wires = [Wire(broker.host, broker.port, timeout=60) for _ in range(3)]
    try:
        calls.create_topic(wires[0], "t")
        wait_for_coordinator(wires[0], "delayed")
        members = [Member(wire, "delayed", "t") for wire in wires]
        begin = time.monotonic()
        for one in members:
            one.ask_to_come_in()
            time.sleep(0.3)
        generations = [one.joined(timeout=60).generation_id for one in members]
        assert generations == [1, 1, 1]
        assert time.monotonic() - begin >= 7.9, "4 s, and once more for those who came meanwhile"
        (leader,) = [one for one in members if one.leads]
        assert error(leader.sync(*members)) == "NONE"
        for one in members:
            assert one.sync().assignment == one.member_id.encode()
        leader.send_join()  # nobody waits like that once the group is there
        others = [one for one in members if one is not leader]
        others[0].sees("PreparingRebalance")
        for one in others:
            one.send_join()
        assert {one.joined(timeout=60).generation_id for one in members} == {2}
    finally:
        for wire in wires:
            wire.close()
        broker.kill()


# ---------------------------------------------------------------------------------------------- 37


def test_trap_37_an_unchanged_follower_gets_its_generation_again(member: MakeMember) -> None:
    leader, follower = member(), member()
    form(leader, follower)
    generation = follower.generation_id
    assert follower.join().generation_id == generation
    assert follower.sync().assignment == follower.member_id.encode()
    assert leader.heartbeat() == "NONE"
    follower.protocols = {"range": subscription(follower.topic, "another")}
    follower.send_join()
    leader.sees("PreparingRebalance")
    assert leader.heartbeat() == "REBALANCE_IN_PROGRESS"


def test_trap_37_a_leader_that_rejoins_starts_a_rebalance(member: MakeMember) -> None:
    leader, follower = member(), member()
    form(leader, follower)
    generation = leader.generation_id
    leader.send_join()
    follower.sees("PreparingRebalance")
    assert follower.heartbeat() == "REBALANCE_IN_PROGRESS"
    assert follower.join().generation_id == generation + 1
    assert len(leader.joined().members) == 2


# ---------------------------------------------------------------------------------------------- 38


def test_trap_38_heartbeats_by_state(member: MakeMember) -> None:
    one, other = member(), member()
    form(one)
    assert (one.state(), one.heartbeat()) == ("Stable", "NONE")
    other.ask_to_come_in()
    one.sees("PreparingRebalance")
    assert (one.state(), one.heartbeat()) == ("PreparingRebalance", "REBALANCE_IN_PROGRESS")
    one.join()
    other.joined()
    assert (one.state(), one.heartbeat()) == ("CompletingRebalance", "NONE")
    assert error(one.sync(one, other)) == "NONE"
    assert (other.leave(), one.leave()) == ("NONE", "NONE")
    assert (one.state(), one.heartbeat()) == ("Empty", "UNKNOWN_MEMBER_ID")


def test_trap_38_a_heartbeat_during_a_rebalance_renews_the_session(member: MakeMember) -> None:
    slow, other = member(session_ms=8_000), member()
    form(slow)
    other.ask_to_come_in()
    slow.sees("PreparingRebalance")
    deadline = time.monotonic() + 11
    while time.monotonic() < deadline:
        assert slow.heartbeat() == "REBALANCE_IN_PROGRESS"
        time.sleep(0.5)
    assert error(slow.join()) == "NONE", "still a member after more than its session"
    assert error(other.joined()) == "NONE"


# ---------------------------------------------------------------------------------------------- 39


def test_trap_39_commits_by_state(member: MakeMember) -> None:
    one, other = member(), member()
    form(one)
    assert one.commit(1) == "NONE"
    other.ask_to_come_in()
    one.sees("PreparingRebalance")
    assert (one.state(), one.commit(2)) == ("PreparingRebalance", "NONE")
    one.join()
    other.joined()
    assert (one.state(), one.commit(3)) == ("CompletingRebalance", "REBALANCE_IN_PROGRESS")
    assert error(one.sync(one, other)) == "NONE"
    for wrong in (one.generation_id - 1, one.generation_id + 1):
        assert one.commit(4, generation_id_or_member_epoch=wrong) == "ILLEGAL_GENERATION"
    assert one.committed() == 2


def test_trap_39_a_generation_below_0_only_into_an_empty_group(member: MakeMember) -> None:
    alone, one = member(), member()
    assert alone.commit(5) == "NONE"
    assert (alone.state(), alone.committed()) == ("Empty", 5)
    form(one)
    assert alone.commit(6) == "UNKNOWN_MEMBER_ID"
    assert alone.committed() == 5
    assert one.leave() == "NONE"
    assert alone.commit(7) == "NONE"
    assert alone.committed() == 7


@pytest.mark.parametrize("version", range(2, 10))
def test_trap_39_a_group_that_does_not_exist(member: MakeMember, version: int) -> None:
    one = member()
    one.member_id, one.generation_id = "raw-one", 3
    expected = "GROUP_ID_NOT_FOUND" if version >= 9 else "ILLEGAL_GENERATION"
    assert one.commit(1, version) == expected


# ---------------------------------------------------------------------------------------------- 40


@pytest.mark.parametrize("version", range(6))
def test_trap_40_sync_in_a_stable_group_is_the_stored_assignment(
    member: MakeMember, version: int
) -> None:
    leader, follower = member(), member()
    form(leader, follower)
    for one in (follower, leader):
        assert one.sync(version=version).assignment == one.member_id.encode()


def test_trap_40_another_protocol_is_inconsistent(member: MakeMember) -> None:
    one = member()
    form(one)
    for name, value in (("protocol_type", "connect"), ("protocol_name", "sticky")):
        changes: dict[str, Any] = {name: value}
        assert error(one.sync(**changes)) == "INCONSISTENT_GROUP_PROTOCOL"
    assert error(one.sync()) == "NONE"


# ---------------------------------------------------------------------------------------------- 41


def test_trap_41_a_static_member_is_back_and_fences_its_former_self(member: MakeMember) -> None:
    other, old, new = member(), member(instance_id="one"), member(instance_id="one")
    form(other, old)
    answer = new.join()
    assert (error(answer), answer.generation_id) == ("NONE", other.generation_id)
    assert new.member_id != old.member_id
    assert new.sync().assignment == old.member_id.encode(), "what its former self had"
    assert other.heartbeat() == "NONE", "no rebalance"
    assert old.heartbeat() == "FENCED_INSTANCE_ID"
    assert error(old.sync()) == "FENCED_INSTANCE_ID"
    assert old.commit(1) == "FENCED_INSTANCE_ID"
    assert old.leave() == "FENCED_INSTANCE_ID"
    assert error(old.join()) == "FENCED_INSTANCE_ID"
    assert new.heartbeat() == "NONE"


def test_trap_41_a_leader_that_is_back_is_told_not_to_assign(member: MakeMember) -> None:
    """skip_assignment from v9 on (KIP-814); before, that its former self leads."""
    old, other = member(instance_id="one"), member()
    form(old, other)
    answer = member(instance_id="one").join(9)
    assert answer.skip_assignment
    assert (answer.leader, len(answer.members)) == (answer.member_id, 2)
    again = member(instance_id="one").join(8)
    assert (again.leader, again.members) == (answer.member_id, [])
    assert other.heartbeat() == "NONE"


# ---------------------------------------------------------------------------------------------- 42


@pytest.mark.parametrize("version", range(1, 8))
def test_trap_42_nothing_committed_is_minus_one(
    wire: Wire, group: str, topic: str, version: int
) -> None:
    wanted = [{"name": topic, "partition_indexes": [0, 7]}]
    answer = wire.call("OffsetFetch", version, group_id=group, topics=wanted)
    for partition in answer.topics[0].partitions:
        assert (error(partition), partition.committed_offset) == ("NONE", -1)
        assert partition.metadata == ""


@pytest.mark.parametrize("version", range(2, 8))
def test_trap_42_topics_null_means_all(
    wire: Wire, member: MakeMember, group: str, version: int
) -> None:
    one = member()
    assert one.commit(5) == "NONE"
    answer = wire.call("OffsetFetch", version, group_id=group, topics=None)
    (found,) = answer.topics
    assert (found.name, found.partitions[0].committed_offset) == (one.topic, 5)
    assert wire.call("OffsetFetch", version, group_id=group, topics=[]).topics == []


@pytest.mark.parametrize("version", [8, 9])
def test_trap_42_errors_are_per_group_from_v8(
    wire: Wire, member: MakeMember, group: str, version: int
) -> None:
    assert member().commit(5) == "NONE"
    asked = [{"group_id": name, "topics": None} for name in (group, "nobody-has-this")]
    groups = wire.call("OffsetFetch", version, groups=asked).groups
    assert [(one.group_id, error(one), len(one.topics)) for one in groups] == [
        (group, "NONE", 1),
        ("nobody-has-this", "NONE", 0),
    ]


def test_trap_42_a_topic_id_that_is_not_known(wire: Wire, group: str) -> None:
    topics = [{"topic_id": uuid.UUID(int=7), "partition_indexes": [0]}]
    groups = [{"group_id": group, "topics": topics}]
    (answer,) = wire.call("OffsetFetch", 10, groups=groups).groups
    assert error(answer.topics[0].partitions[0]) == "UNKNOWN_TOPIC_ID"


def test_trap_42_require_stable_waits_for_an_open_transaction(
    wire: Wire, member: MakeMember, group: str
) -> None:
    one = member()
    assert one.commit(5) == "NONE"
    producer = _open_transaction(wire, group, one.topic, offset=9)
    wanted = [{"name": one.topic, "partition_indexes": [0]}]
    fields: dict[str, Any] = {"group_id": group, "topics": wanted}

    def told(require_stable: bool) -> tuple[str, int]:
        answer = wire.call("OffsetFetch", 7, **fields, require_stable=require_stable)
        (partition,) = answer.topics[0].partitions
        return error(partition), partition.committed_offset

    assert told(require_stable=False) == ("NONE", 5)
    assert told(require_stable=True) == ("UNSTABLE_OFFSET_COMMIT", -1)
    assert error(wire.call("EndTxn", 3, **producer, committed=True)) == "NONE"
    deadline = time.monotonic() + 20
    while told(require_stable=True) != ("NONE", 9):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _open_transaction(wire: Wire, group: str, topic: str, offset: int) -> dict[str, Any]:
    """One that is going to commit `offset` of partition 0; who it is, for EndTxn."""
    name = f"txn-{group}"
    deadline = time.monotonic() + 60
    while True:
        wire.call("FindCoordinator", 4, key_type=1, coordinator_keys=[name])
        made = wire.call(
            "InitProducerId", 4, transactional_id=name, transaction_timeout_ms=60_000,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        if error(made) == "NONE":
            break
        assert time.monotonic() < deadline, error(made)
        time.sleep(0.1)
    who = {
        "transactional_id": name,
        "producer_id": made.producer_id,
        "producer_epoch": made.producer_epoch,
    }
    added = wire.call("AddOffsetsToTxn", 3, **who, group_id=group)
    assert error(added) == "NONE"
    part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    answer = wire.call(
        "TxnOffsetCommit", 3, **who, group_id=group, generation_id=-1, member_id="",
        group_instance_id=None, topics=[{"name": topic, "partitions": [part]}],
    )  # fmt: skip
    assert error(answer.topics[0].partitions[0]) == "NONE"
    return who


# ---------------------------------------------------------------------------------------------- 44


@pytest.mark.parametrize("version", range(7))
def test_trap_44_describe_groups_of_a_missing_group(wire: Wire, group: str, version: int) -> None:
    found = described(wire, group, version)
    assert found.group_state == "Dead"
    assert error(found) == ("GROUP_ID_NOT_FOUND" if version >= 6 else "NONE")


@pytest.mark.parametrize("version", range(3, 6))
def test_trap_44_leave_group_answers_member_by_member(
    wire: Wire, member: MakeMember, group: str, version: int
) -> None:
    one, static = member(), member(instance_id="one")
    form(one, static)
    leaving = [
        {"member_id": one.member_id, "group_instance_id": None},
        {"member_id": "stranger", "group_instance_id": None},
        {"member_id": "", "group_instance_id": "one"},
        {"member_id": "", "group_instance_id": "nobody"},
    ]
    answer = wire.call("LeaveGroup", version, group_id=group, members=leaving)
    assert error(answer) == "NONE"
    assert [error(each) for each in answer.members] == [
        "NONE",
        "UNKNOWN_MEMBER_ID",
        "NONE",
        "UNKNOWN_MEMBER_ID",
    ]
    assert one.state() == "Empty"


# -------------------------------------------------------------------------------- finding it (K1)


@pytest.mark.parametrize("key_type", [0, 1])
def test_coordinators_of_many_keys_at_once(
    wire: Wire, broker: Any, group: str, key_type: int
) -> None:
    """Groups and transactional ids; each key has its answer, whatever it is called."""
    keys = [group, "ключ-é", "x" * 10_000, group]
    deadline = time.monotonic() + 60
    while True:
        answer = wire.call("FindCoordinator", 4, key_type=key_type, coordinator_keys=keys)
        if all(error(one) == "NONE" for one in answer.coordinators):
            break
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)
    assert {one.key for one in answer.coordinators} == set(keys)
    assert {(one.host, one.port) for one in answer.coordinators} == {(broker.host, broker.port)}
