"""Committing, fetching and deleting offsets."""

import pytest
from tests.group.simulated import Consumer, Reply, World, commit_error, commit_request, form

from ottla.group.members import ClassicGroup
from ottla.group.outcome import OFFSETS
from ottla.group.rows import (
    Offset,
    decode_group,
    decode_offset,
    encode_group,
    encode_offset,
    offset_key,
)
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.errors import Error


@pytest.fixture
def world() -> World:
    return World()


def fetch(world: World, group_id: str = "g", version: int = 9) -> Reply:
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
    return world.send(OffsetFetchRequest(groups=groups), version)


def errors(reply: Reply) -> dict[int, Error]:
    return {
        partition.partition_index: Error(partition.error_code)
        for topic in reply.response.topics
        for partition in topic.partitions
    }


def delete(world: World, partitions: dict[str, list[int]], group_id: str = "g") -> Reply:
    topics = [
        OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in indexes],
        )
        for name, indexes in partitions.items()
    ]
    return world.send(OffsetDeleteRequest(group_id=group_id, topics=topics))


class TestCommit:
    def test_what_is_committed_is_kept_as_it_was(self, world: World) -> None:
        world.send(commit_request("g", {1: 42}, metadata="where I was", leader_epoch=7), 9)
        partition = fetch(world).response.groups[0].topics[0].partitions[0]
        assert partition.committed_offset == 42
        assert partition.committed_leader_epoch == 7
        assert partition.metadata == "where I was"

    def test_before_version_6_there_is_no_leader_epoch(self, world: World) -> None:
        world.send(commit_request("g", {1: 42}, leader_epoch=7), 5)
        partition = fetch(world).response.groups[0].topics[0].partitions[0]
        assert partition.committed_leader_epoch == -1

    def test_metadata_null_is_told_as_empty(self, world: World) -> None:
        world.send(commit_request("g", {1: 42}, metadata=None), 9)
        assert fetch(world).response.groups[0].topics[0].partitions[0].metadata == ""

    def test_metadata_has_a_limit_in_characters(self, world: World) -> None:
        long = world.send(commit_request("g", {0: 1}, metadata="é" * 4096), 9)
        assert commit_error(long) == Error.NONE
        longer = world.send(commit_request("g", {1: 1}, metadata="x" * 4097), 9)
        assert commit_error(longer) == Error.OFFSET_METADATA_TOO_LARGE
        assert world.committed() == {0: 1}

    def test_the_longest_retention_there_is(self, world: World) -> None:
        reply = world.send(commit_request("g", {0: 1}, retention_ms=(1 << 63) - 1), 2)
        assert commit_error(reply) == Error.NONE
        world.send(commit_request("g", {1: 2}), 9)
        world.crash()
        assert world.committed() == {0: 1, 1: 2}

    def test_each_partition_is_judged_by_itself(self, world: World) -> None:
        reply = world.send(commit_request("g", {0: 1, 3: 2, 4: 3}), 9)
        assert errors(reply) == {
            0: Error.NONE,
            3: Error.NONE,
            4: Error.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert world.committed() == {0: 1, 3: 2}

    def test_unknown_topics_are_judged_before_the_group(self, world: World) -> None:
        request = commit_request("g", {0: 1}, topic="nowhere", generation_id=5, member_id="m")
        assert commit_error(world.send(request, 9)) == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert world.state() == "none"

    def test_by_topic_id(self, world: World) -> None:
        topic_id = world.topics.ids["t0"]
        request = commit_request("g", {0: 5, 4: 6}, topic_id=topic_id)
        reply = world.send(request, 10)
        assert errors(reply) == {0: Error.NONE, 4: Error.UNKNOWN_TOPIC_OR_PARTITION}
        assert reply.response.topics[0].topic_id == topic_id
        assert world.committed() == {0: 5}

    def test_an_id_that_was_given_out_may_not_commit(self, world: World) -> None:
        a = Consumer(world)
        form(a)
        b = Consumer(world, "b")
        b.member_id = b.join(come_back=False).response.member_id
        b.generation_id = a.generation_id
        assert commit_error(b.commit(1)) == Error.UNKNOWN_MEMBER_ID

    def test_a_member_without_generation_is_refused_by_a_group_in_use(self, world: World) -> None:
        a = Consumer(world)
        form(a)
        a.generation_id = -1
        assert commit_error(a.commit(1)) == Error.ILLEGAL_GENERATION

    def test_a_member_that_is_joining_its_first_generation(self, world: World) -> None:
        world = World(initial_rebalance_delay_ms=3_000)
        a = Consumer(world)
        joining = a.join()
        a.generation_id = 0
        assert commit_error(a.commit(1)) == Error.NONE
        world.crash()
        assert (world.state(), world.committed()) == ("Empty", {0: 1})
        assert joining.lost


class TestFetch:
    def test_by_topic_id(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        topic_id = world.topics.ids["t0"]
        topics = [
            OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 1]),
            OffsetFetchRequestTopics(topic_id=b"x" * 16, partition_indexes=[0]),
        ]
        groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
        known, unknown = world.send(OffsetFetchRequest(groups=groups), 10).response.groups[0].topics
        assert [p.committed_offset for p in known.partitions] == [5, -1]
        assert [p.error_code for p in known.partitions] == [0, 0]
        assert unknown.partitions[0].error_code == Error.UNKNOWN_TOPIC_ID

    def test_all_of_it_by_topic_id(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        (topic,) = fetch(world, version=10).response.groups[0].topics
        assert topic.topic_id == world.topics.ids["t0"]

    def test_a_topic_made_again_starts_without_offsets(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        world.delete_topic("t0")
        world.topics.add("t0", 4)
        assert world.committed() == {}
        assert fetch(world).response.groups[0].topics == []

    def test_groups_do_not_see_each_other(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        world.send(commit_request("h", {0: 6}), 9)
        assert (world.committed("g"), world.committed("h")) == ({0: 5}, {0: 6})

    def test_the_group_without_a_name_may_have_offsets(self, world: World) -> None:
        assert commit_error(world.send(commit_request("", {0: 5}), 9)) == Error.NONE
        assert world.committed("") == {0: 5}

    def test_very_long_group_ids(self, world: World) -> None:
        one, other = "x" * 30_000, "x" * 30_000 + "y"
        world.send(commit_request(one, {0: 5}), 9)
        world.send(commit_request(other, {0: 6}), 9)
        assert (world.committed(one), world.committed(other)) == ({0: 5}, {0: 6})
        assert all(len(key) < 500 for table in world.disk.tables.values() for key in table)


class TestWaitingForCommits:
    """Requests see what was admitted before them, once it is committed, and nothing else."""

    def test_a_commit_is_answered_when_it_is_committed(self) -> None:
        world = World(manual=True)
        reply = world.send(commit_request("g", {0: 5}), 9)
        assert not reply.answered
        world.commit()
        assert commit_error(reply) == Error.NONE

    def test_it_is_not_there_before(self) -> None:
        world = World(manual=True)
        world.send(commit_request("g", {0: 5}), 9)
        world.crash()
        assert world.committed() == {}
        assert world.state() == "none"

    def test_a_deletion_reaches_a_commit_on_its_way(self) -> None:
        world = World(manual=True)
        world.send(commit_request("g", {0: 5}), 9)
        delete(world, {"t0": [0]})
        world.commit()
        assert world.committed() == {}


class TestDelete:
    def test_offsets_of_topics_in_use_stay(self, world: World) -> None:
        world.topics.add("t1", 1)
        a = Consumer(world)
        form(a)
        a.commit(5), a.commit(6, topic="t1")
        reply = delete(world, {"t0": [0, 9], "t1": [0], "nowhere": [0]})
        answers = {t.name: t.partitions for t in reply.response.topics}
        assert [p.error_code for p in answers["t0"]] == [
            Error.GROUP_SUBSCRIBED_TO_TOPIC,
            Error.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert answers["t1"][0].error_code == Error.NONE
        assert answers["nowhere"][0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert (world.committed(), world.committed(topic="t1")) == ({0: 5}, {})

    def test_while_subscriptions_are_unknown_all_topics_are_in_use(self) -> None:
        world = World(initial_rebalance_delay_ms=3_000)
        Consumer(world).join()
        reply = delete(world, {"t0": [0]})
        code = reply.response.topics[0].partitions[0].error_code
        assert code == Error.GROUP_SUBSCRIBED_TO_TOPIC

    def test_a_group_that_is_not_of_consumers_must_be_empty(self, world: World) -> None:
        worker = Consumer(world, protocol_type="connect")
        form(worker)
        assert delete(world, {"t0": [0]}).error == Error.NON_EMPTY_GROUP
        worker.leave()
        assert delete(world, {"t0": [0]}).error == Error.NONE

    def test_the_group_is_judged_first(self, world: World) -> None:
        assert delete(world, {"nowhere": [0]}).error == Error.GROUP_ID_NOT_FOUND
        assert delete(world, {"t0": [0]}, "").error == Error.INVALID_GROUP_ID


class TestRows:
    def test_an_offset_comes_back_as_it_was(self) -> None:
        row = Offset(2**62, 3, 1_700_000_000_000, -1, "mé")
        assert decode_offset(encode_offset(row)) == row

    def test_a_group_comes_back_as_it_was(self, world: World) -> None:
        a, b = Consumer(world, "a"), Consumer(world, "b", instance_id="ib")
        form(a, b)
        group = world.machine.registry.groups["g"]
        again = decode_group(group.number, encode_group(group, group.since_ms))
        for name in ClassicGroup.__slots__:
            if name not in ("members", "reason", "began_ms", "initial", "newcomer", "remaining_ms"):
                assert getattr(again, name) == getattr(group, name), name
        for member_id, member in group.members.items():
            for name in type(member).__slots__:
                assert getattr(again.members[member_id], name) == getattr(member, name), name

    def test_a_newer_row_is_refused(self, world: World) -> None:
        form(Consumer(world))
        (value,) = world.disk.tables["groups"].values()
        with pytest.raises(ValueError, match="version"):
            decode_group(1, b"\x01" + value[1:])

    def test_keys_sort_by_group(self) -> None:
        keys = [offset_key(1, 2**32 - 1), offset_key(2, 0), offset_key(256, 5)]
        assert keys == sorted(keys)

    def test_numbers_are_not_used_again_while_rows_are_left(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        world.send(commit_request("h", {0: 6}), 9)
        world.crash()
        world.send(commit_request("i", {0: 7}), 9)
        assert (world.committed("g"), world.committed("h")) == ({0: 5}, {0: 6})
        assert world.committed("i") == {0: 7}
        assert len(world.disk.tables[OFFSETS]) == 3
