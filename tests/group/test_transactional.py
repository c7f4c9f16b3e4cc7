"""Offsets that move with a transaction: pending until it ends, then committed, or gone."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.group.simulated import (
    Consumer,
    Reply,
    World,
    commit_error,
    commit_request,
    form,
    txn_request,
)

from ottla.group.outcome import OFFSETS, PENDING_OFFSETS
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.errors import Error

DAY_MS = 86_400_000


@pytest.fixture
def world() -> World:
    return World()


def send(world: World, producer_id: int, offsets: dict[int, int], **where: Any) -> Error:
    """TxnOffsetCommit; the first partition's error."""
    return commit_error(world.send(txn_request(producer_id, offsets, **where)))


def stable(world: World, version: int = 9, topic: str = "t0", group_id: str = "g") -> list[int]:
    """Offsets of partitions 0 to 3 as a reader of stable ones is told; the error, negative, for
    one that is not."""
    partitions = list(_partitions(fetch(world, version, topic, group_id), version))
    return [-p.error_code if p.error_code else p.committed_offset for p in partitions]


def fetch(world: World, version: int, topic: str = "t0", group_id: str = "g") -> Reply:
    named = OffsetFetchRequestTopics(
        name=topic if version < 10 else "",
        topic_id=world.topics.ids[topic] if version >= 10 else bytes(16),
        partition_indexes=[0, 1, 2, 3],
    )
    if version >= 8:
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=[named])]
        return world.send(OffsetFetchRequest(groups=groups, require_stable=True), version)
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1, 2, 3])]
    request = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)
    return world.send(request, version)


def _partitions(reply: Reply, version: int) -> Iterator[Any]:
    answer = reply.response.groups[0] if version >= 8 else reply.response
    for topic in answer.topics:
        yield from topic.partitions


UNSTABLE = -Error.UNSTABLE_OFFSET_COMMIT


class TestTheEnd:
    def test_a_commit_moves_them(self, world: World) -> None:
        assert send(world, 7, {0: 10, 1: 20}, metadata="m") == Error.NONE
        assert world.committed() == {}
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 10, 1: 20}
        assert world.disk.tables[PENDING_OFFSETS] == {}

    def test_an_abort_forgets_them(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        send(world, 7, {0: 10, 1: 20})
        world.end_transaction(7, committed=False)
        assert world.committed() == {0: 5}
        assert world.disk.tables[PENDING_OFFSETS] == {}

    def test_the_last_of_one_transaction_counts(self, world: World) -> None:
        send(world, 7, {0: 10})
        send(world, 7, {0: 9})
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 9}

    def test_others_go_on(self, world: World) -> None:
        send(world, 7, {0: 10})
        send(world, 8, {1: 20})
        world.end_transaction(7, committed=False)
        assert stable(world) == [-1, UNSTABLE, -1, -1]
        world.end_transaction(8, committed=True)
        assert stable(world) == [-1, 20, -1, -1]

    def test_many_groups_at_once(self, world: World) -> None:
        for group_id in "gh":
            send(world, 7, {0: 10}, group_id=group_id)
        world.end_transaction(7, "g", "h", "never heard of", committed=True)
        assert world.committed("g") == world.committed("h") == {0: 10}

    def test_nothing_to_end_is_nothing(self, world: World) -> None:
        assert not world.machine.end_transaction(7, ["g"], True, world.now).records

    def test_the_next_transaction_of_a_producer_starts_with_nothing(self, world: World) -> None:
        send(world, 7, {0: 10})
        world.end_transaction(7, committed=True)
        send(world, 7, {1: 11})
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 10, 1: 11}


class TestCommitsBesideIt:
    """The later one stands, whatever ends first."""

    def test_a_later_plain_commit_stands(self, world: World) -> None:
        send(world, 7, {0: 10, 1: 10})
        world.send(commit_request("g", {0: 5}), 9)
        assert stable(world)[0] == UNSTABLE
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 5, 1: 10}

    def test_also_over_a_restart(self, world: World) -> None:
        send(world, 7, {0: 10})
        world.send(commit_request("g", {0: 5}), 9)
        world.crash()
        assert stable(world)[0] == UNSTABLE
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 5}

    def test_an_earlier_plain_commit_does_not(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        send(world, 7, {0: 3})
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 3}

    def test_the_transaction_speaks_again(self, world: World) -> None:
        send(world, 7, {0: 10})
        world.send(commit_request("g", {0: 5}), 9)
        send(world, 7, {0: 11})
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 11}

    @pytest.mark.parametrize("first", [7, 8])
    def test_of_two_transactions_the_one_that_spoke_last_stands(
        self, world: World, first: int
    ) -> None:
        send(world, 7, {0: 10})
        send(world, 8, {0: 4})
        world.crash()  # the order is on disk
        world.end_transaction(first, committed=True)
        assert stable(world)[0] == UNSTABLE
        world.end_transaction(15 - first, committed=True)
        assert stable(world)[0] == 4

    def test_an_aborted_one_overrules_nobody(self, world: World) -> None:
        send(world, 7, {0: 10})
        send(world, 8, {0: 4})
        world.end_transaction(8, committed=False)
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 10}


class TestReading:
    @pytest.mark.parametrize("version", [7, 8, 9, 10])
    def test_stable_offsets_only_by_partition(self, world: World, version: int) -> None:
        world.send(commit_request("g", {0: 1, 1: 2}), 9)
        send(world, 7, {1: 10, 2: 10})
        assert stable(world, version) == [1, UNSTABLE, UNSTABLE, -1]
        unstable = list(_partitions(fetch(world, version), version))[1]
        assert unstable.committed_offset == -1
        assert unstable.committed_leader_epoch == -1
        assert unstable.metadata == ""

    @pytest.mark.parametrize("version", [7, 9, 10])
    def test_all_of_a_group_that_are_committed(self, world: World, version: int) -> None:
        world.send(commit_request("g", {0: 1, 1: 2}), 9)
        send(world, 7, {1: 10, 2: 10})
        request = OffsetFetchRequest(require_stable=True)
        if version >= 8:
            request.groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
        else:
            request.group_id, request.topics = "g", None
        answers = list(_partitions(world.send(request, version), version))
        assert [(p.partition_index, p.error_code) for p in answers] == [
            (0, Error.NONE),
            (1, Error.UNSTABLE_OFFSET_COMMIT),
        ]

    def test_who_does_not_ask_for_stable_ones_is_told_the_old(self, world: World) -> None:
        world.send(commit_request("g", {0: 1}), 9)
        send(world, 7, {0: 10})
        assert world.committed() == {0: 1}

    def test_an_end_that_is_not_on_disk_yet_has_not_ended_it(self) -> None:
        """Read just then, the old offset would be taken for stable."""
        world = World(manual=True)
        world.send(commit_request("g", {0: 1}), 9)
        world.send(txn_request(7, {0: 10}))
        world.commit()
        world.end_transaction(7, committed=True)
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(name="t0", partition_indexes=[0])],
                )
            ],
            require_stable=True,
        )
        outcome = world.ask_machine(request, 9)
        (partition,) = outcome.groups[0].topics[0].partitions
        assert partition.error_code == Error.UNSTABLE_OFFSET_COMMIT
        world.commit()
        assert world.committed() == {0: 10}


class TestWhoMayCommit:
    def test_a_member(self, world: World) -> None:
        a = Consumer(world, "a")
        form(a)
        me = {"generation_id": a.generation_id, "member_id": a.member_id}
        assert send(world, 7, {0: 1}, **me) == Error.NONE
        other = me | {"generation_id": a.generation_id + 1}
        assert send(world, 7, {0: 1}, **other) == Error.ILLEGAL_GENERATION
        none = me | {"generation_id": -1}
        assert send(world, 7, {0: 1}, **none) == Error.ILLEGAL_GENERATION
        stranger = me | {"member_id": "stranger"}
        assert send(world, 7, {0: 1}, **stranger) == Error.UNKNOWN_MEMBER_ID

    def test_a_static_member(self, world: World) -> None:
        a = Consumer(world, "a", instance_id="ia")
        form(a)
        me = {
            "generation_id": a.generation_id,
            "member_id": a.member_id,
            "instance_id": "ia",
        }
        assert send(world, 7, {0: 1}, **me) == Error.NONE
        older = me | {"member_id": "ia-older"}
        assert send(world, 7, {0: 1}, **older) == Error.FENCED_INSTANCE_ID
        nobody = me | {"instance_id": "ib"}
        assert send(world, 7, {0: 1}, **nobody) == Error.UNKNOWN_MEMBER_ID

    def test_nobody_in_particular_whatever_the_state(self, world: World) -> None:
        """Producers before KIP-447 know no member."""
        assert send(world, 7, {0: 1}) == Error.NONE
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        assert send(world, 7, {0: 2}) == Error.NONE
        a.join()
        assert world.state() == "PreparingRebalance"
        assert send(world, 7, {0: 3}) == Error.NONE

    def test_a_member_between_join_and_sync(self, world: World) -> None:
        """Where OffsetCommit is told REBALANCE_IN_PROGRESS."""
        a = Consumer(world, "a")
        a.joined(a.join())
        assert world.state() == "CompletingRebalance"
        assert commit_error(a.commit(1)) == Error.REBALANCE_IN_PROGRESS
        me = {"generation_id": a.generation_id, "member_id": a.member_id}
        assert send(world, 7, {0: 1}, **me) == Error.NONE

    def test_it_does_not_keep_the_member_alive(self, world: World) -> None:
        a = Consumer(world, "a")
        form(a)
        world.advance(9_000)
        me = {"generation_id": a.generation_id, "member_id": a.member_id}
        assert send(world, 7, {0: 1}, **me) == Error.NONE
        world.advance(1_000)
        assert world.state() == "Empty"

    def test_a_generation_of_a_group_that_does_not_exist(self, world: World) -> None:
        where = {"generation_id": 1, "member_id": "a"}
        assert send(world, 7, {0: 1}, **where) == Error.ILLEGAL_GENERATION
        assert world.state() == "none"

    def test_a_member_of_an_empty_group(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        where = {"generation_id": 0, "member_id": "a"}
        assert send(world, 7, {0: 1}, **where) == Error.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize("version", range(6))
    def test_partition_by_partition(self, world: World, version: int) -> None:
        reply = world.send(txn_request(7, {0: 1, 99: 1}), version)
        codes = [p.error_code for p in reply.response.topics[0].partitions]
        assert codes == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]
        assert send(world, 7, {0: 1}, topic="nowhere") == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert send(world, 7, {0: 1}, metadata="x" * 4097) == Error.OFFSET_METADATA_TOO_LARGE
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 1}


class TestGoing:
    """What deletes offsets deletes what would become of them; what expires does not while they are
    pending."""

    def delete(self, world: World, partition: int = 0) -> Error:
        partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
        topics = [OffsetDeleteRequestTopic(name="t0", partitions=partitions)]
        return world.send(OffsetDeleteRequest(group_id="g", topics=topics)).error

    def test_offset_delete(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        send(world, 7, {0: 10, 1: 11})
        assert self.delete(world) == Error.NONE
        assert stable(world) == [-1, UNSTABLE, -1, -1]
        world.end_transaction(7, committed=True)
        assert world.committed() == {1: 11}

    def test_delete_groups(self, world: World) -> None:
        send(world, 7, {0: 10})
        reply = world.send(DeleteGroupsRequest(groups_names=["g"]))
        assert reply.response.results[0].error_code == Error.NONE
        assert world.disk.tables[PENDING_OFFSETS] == {}
        world.send(commit_request("g", {1: 5}), 9)
        world.end_transaction(7, committed=True)
        assert stable(world) == [-1, 5, -1, -1]

    def test_a_group_that_waits_for_a_transaction_stays(self, world: World) -> None:
        send(world, 7, {0: 10})
        world.advance(30 * DAY_MS)
        assert world.state() == "Empty"
        world.end_transaction(7, committed=False)
        world.advance(DAY_MS)
        assert world.state() == "none"
        assert world.disk.tables[OFFSETS] == {}

    def test_an_offset_that_a_transaction_may_move_does_not_expire(self, world: World) -> None:
        world.send(commit_request("g", {0: 5, 1: 5}), 9)
        world.advance(6 * DAY_MS)
        send(world, 7, {0: 10})
        world.advance(2 * DAY_MS)
        assert world.committed() == {0: 5}
        world.end_transaction(7, committed=False)
        world.advance(DAY_MS)
        assert world.state() == "none"

    def test_a_deleted_topic(self, world: World) -> None:
        world.topics.add("t1", 1)
        send(world, 7, {0: 10}, topic="t1")
        send(world, 7, {0: 11})
        world.delete_topic("t1")
        assert len(world.disk.tables[PENDING_OFFSETS]) == 1
        world.end_transaction(7, committed=True)
        assert len(world.disk.tables[OFFSETS]) == 1
        assert world.committed() == {0: 11}


class TestTrouble:
    def test_a_restart_keeps_them(self, world: World) -> None:
        send(world, 7, {0: 10})
        world.crash()
        assert stable(world)[0] == UNSTABLE
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 10}

    def test_what_was_not_committed_never_was(self) -> None:
        world = World(manual=True)
        world.send(txn_request(7, {0: 10}))
        world.commit()
        world.send(txn_request(7, {1: 10}))
        world.end_transaction(7, committed=True)
        world.crash()
        world.manual = False
        assert stable(world) == [UNSTABLE, -1, -1, -1]

    def test_pending_ones_of_a_restart_are_overruled_by_new_ones(self, world: World) -> None:
        send(world, 7, {0: 10})
        world.crash()
        send(world, 8, {0: 4})
        world.end_transaction(8, committed=True)
        world.end_transaction(7, committed=True)
        assert world.committed() == {0: 4}
