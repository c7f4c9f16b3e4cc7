"""What goes by itself: expired offsets (KIP-211), unused groups, offsets of deleted topics."""

import tracemalloc

import pytest
from tests.group.simulated import Consumer, World, commit_request, form, subscription

from ottla.group.expiry import FEW, PAGE_COST, SLICE
from ottla.group.outcome import GROUPS, OFFSETS
from ottla.wire.api.delete_groups import DeleteGroupsRequest

MINUTE = 60_000
RETENTION = 100 * MINUTE
CHECK = 10 * MINUTE


@pytest.fixture
def world() -> World:
    return World(offsets_retention_ms=RETENTION, offsets_retention_check_interval_ms=CHECK)


def empty(world: World) -> bool:
    return not world.disk.tables[GROUPS] and not world.disk.tables[OFFSETS]


class TestStandalone:
    def test_an_offset_lives_from_its_last_commit(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        world.advance(RETENTION - 1)
        assert world.committed() == {0: 5}
        world.advance(1)
        assert world.state() == "none"
        assert empty(world)

    def test_a_new_commit_prolongs_it(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        for n in range(5):
            world.advance(RETENTION // 2)
            world.send(commit_request("g", {0: 6 + n}), 9)
        assert world.committed() == {0: 10}
        world.advance(RETENTION + CHECK)
        assert empty(world)

    def test_each_offset_for_itself(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        world.advance(RETENTION // 2)
        world.send(commit_request("g", {1: 6}), 9)
        world.advance(RETENTION // 2)
        assert world.committed() == {1: 6}
        world.advance(RETENTION // 2)
        assert empty(world)

    @pytest.mark.parametrize("version", [2, 3, 4])
    def test_old_clients_may_say_how_long(self, world: World, version: int) -> None:
        world.send(commit_request("g", {0: 5}, retention_ms=MINUTE), version)
        world.advance(MINUTE - 1)
        assert world.committed() == {0: 5}
        world.advance(1)
        assert world.committed() == {}

    def test_or_that_it_shall_be_longer(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}, retention_ms=3 * RETENTION), 2)
        world.advance(3 * RETENTION - 1)
        assert world.committed() == {0: 5}
        world.advance(CHECK)
        assert world.committed() == {}

    def test_it_survives_a_restart(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        world.advance(RETENTION // 2)
        world.crash()
        world.advance(RETENTION // 2 - 1)
        assert world.committed() == {0: 5}
        world.advance(CHECK)
        assert empty(world)


class TestGroupsWithMembers:
    def test_all_offsets_live_from_when_the_last_member_left(self, world: World) -> None:
        a = Consumer(world)
        form(a)
        a.commit(5)
        for _ in range(400):
            world.advance(9_000)
            a.heartbeat()
        a.leave()
        world.advance(RETENTION - 1)
        assert world.committed() == {0: 5}
        world.advance(1 + CHECK)
        assert empty(world)

    def test_a_member_that_comes_back_in_time_keeps_them(self, world: World) -> None:
        a = Consumer(world)
        form(a)
        a.commit(5)
        a.leave()
        world.advance(RETENTION - MINUTE)
        a.member_id = ""
        form(a)
        for _ in range(100):
            world.advance(9_000)
            a.heartbeat()
        assert world.committed() == {0: 5}
        world.crash()
        assert world.committed() == {0: 5}

    def test_topics_in_use_never_expire(self, world: World) -> None:
        world.topics.add("t1", 1)
        a = Consumer(world, session_ms=1_800_000)
        form(a)
        a.commit(5), a.commit(6, topic="t1")
        for _ in range(RETENTION // MINUTE + 30):
            world.advance(MINUTE)
            a.heartbeat()
        assert (world.committed(), world.committed(topic="t1")) == ({0: 5}, {})

    def test_a_topic_no_longer_subscribed_expires(self, world: World) -> None:
        world.topics.add("t1", 1)
        a = Consumer(world, session_ms=1_800_000)
        a.protocols = {"range": subscription("t0", "t1")}
        form(a)
        a.commit(5), a.commit(6, topic="t1")
        for _ in range(2 * RETENTION // MINUTE):
            world.advance(MINUTE)
            a.heartbeat()
        assert world.committed(topic="t1") == {0: 6}
        a.protocols = {"range": subscription("t0")}
        form(a)
        for _ in range(2 * CHECK // MINUTE):
            world.advance(MINUTE)
            a.heartbeat()
        assert (world.committed(), world.committed(topic="t1")) == ({0: 5}, {})

    def test_what_cannot_be_read_expires_nothing(self, world: World) -> None:
        a = Consumer(world, session_ms=1_800_000, protocols={"range": b"\x00"})
        form(a)
        a.commit(5)
        for _ in range(2 * RETENTION // MINUTE):
            world.advance(MINUTE)
            a.heartbeat()
        assert world.committed() == {0: 5}

    def test_a_group_of_another_protocol_keeps_all_while_it_has_members(self, world: World) -> None:
        worker = Consumer(world, session_ms=1_800_000, protocol_type="connect")
        form(worker)
        worker.commit(5)
        for _ in range(2 * RETENTION // MINUTE):
            world.advance(MINUTE)
            worker.heartbeat()
        assert world.committed() == {0: 5}

    def test_an_empty_group_without_offsets_goes_at_the_next_look(self, world: World) -> None:
        a = Consumer(world)
        form(a)
        a.leave()
        world.advance(CHECK - 1)
        assert world.state() == "Empty"
        world.advance(1)
        assert world.state() == "none"
        assert empty(world)

    def test_a_group_that_is_joined_at_that_moment_stays(self, world: World) -> None:
        a = Consumer(world)
        form(a)
        a.leave()
        world.advance(CHECK - 1)
        b = Consumer(world, "b")
        b.member_id = b.join(come_back=False).response.member_id
        world.advance(1)
        assert b.join().answered


class TestUnderLoad:
    def test_an_offset_that_is_being_committed_anew_is_not_taken_for_expired(self) -> None:
        world = World(
            manual=True,
            offsets_retention_ms=RETENTION,
            offsets_retention_check_interval_ms=CHECK,
        )
        world.send(commit_request("g", {0: 5}), 9)
        world.commit()
        world.advance(RETENTION - 1)
        world.send(commit_request("g", {0: 6}), 9)
        world.advance(1)
        world.commit()
        world.advance(5_000)
        world.commit()
        assert world.disk.tables[OFFSETS]
        world.manual = False
        assert world.committed() == {0: 6}

    def test_thousands_go_in_slices(self, world: World) -> None:
        world.topics.add("big", 3 * SLICE + 1)
        offsets = {n: n for n in range(3 * SLICE + 1)}
        world.send(commit_request("g", offsets, topic="big"), 9)
        world.now += RETENTION
        sizes = []
        while world.disk.tables[OFFSETS]:
            for outcome in world.machine.on_timer(world.now):
                sizes.append(len(outcome.records))
                world.take(outcome)
        assert max(sizes) <= SLICE + 1
        assert len(sizes) == 4
        world.run()
        assert empty(world)

    def test_what_is_committed_between_two_slices_stays(self, world: World) -> None:
        world.topics.add("big", SLICE + 1)
        world.send(commit_request("g", {n: n for n in range(SLICE + 1)}, topic="big"), 9)
        world.now += RETENTION
        for outcome in world.machine.on_timer(world.now):
            world.take(outcome)
        assert len(world.disk.tables[OFFSETS]) == 1
        world.send(commit_request("g", {0: 7}, topic="big"), 9)
        world.advance(5_000)
        assert world.committed(topic="big") == {0: 7}


class TestDeletedGroups:
    def test_offsets_are_out_of_reach_at_once_and_swept_in_slices(self, world: World) -> None:
        world.topics.add("big", 2 * SLICE)
        world.send(commit_request("g", {n: n for n in range(2 * SLICE)}, topic="big"), 9)
        world.manual = True
        deleting = world.send(DeleteGroupsRequest(groups_names=["g"]))
        world.commit(1)
        assert deleting.answered
        world.manual = False
        assert world.committed(topic="big") == {}
        world.send(commit_request("g", {0: 7}), 9)
        world.advance(5_000)
        assert world.committed() == {0: 7}
        assert len(world.disk.tables[OFFSETS]) == 1
        assert len(world.disk.tables[GROUPS]) == 1

    def test_a_crash_in_between_does_not_bring_them_back(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        world.manual = True
        world.send(DeleteGroupsRequest(groups_names=["g"]))
        world.commit(1)
        world.crash()
        world.manual = False
        assert world.state() == "none"
        world.send(commit_request("g", {1: 6}), 9)
        assert world.committed() == {1: 6}
        world.advance(5_000)
        assert len(world.disk.tables[OFFSETS]) == 1
        assert len(world.disk.tables[GROUPS]) == 1

    def test_a_crash_before_the_deletion_is_committed_undoes_it(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        world.manual = True
        world.send(DeleteGroupsRequest(groups_names=["g"]))
        world.crash()
        world.manual = False
        assert world.committed() == {0: 5}


class TestDeletedTopics:
    def test_their_offsets_go_and_others_stay(self, world: World) -> None:
        world.topics.add("t1", 2)
        for group_id in ("g", "h"):
            world.send(commit_request(group_id, {0: 5}), 9)
            world.send(commit_request(group_id, {0: 6, 1: 7}, topic="t1"), 9)
        world.delete_topic("t1")
        assert len(world.disk.tables[OFFSETS]) == 2
        assert world.committed("g") == world.committed("h") == {0: 5}

    @pytest.mark.parametrize("partitions", [1, FEW, FEW + 1, 100, SLICE + 30])
    def test_many_go_in_slices(self, world: World, partitions: int) -> None:
        for n in range(40):
            world.send(commit_request(f"g{n}", {0: 5, 3: 5}), 9)
        world.topics.add("big", partitions)
        world.topics.next_id += partitions
        world.topics.add("last", 1)
        offsets = dict.fromkeys((0, partitions // 2, partitions - 1), 5)
        for n in range(30):
            world.send(commit_request(f"g{n}", offsets, topic="big"), 9)
            world.send(commit_request(f"g{n}", {0: 5}, topic="last"), 9)
        world.machine.forget_partitions(world.topics.remove("big"), world.now)
        rounds = 0
        while world.machine._expiry._forgotten:
            outcomes = world.machine.on_timer(world.now)
            assert sum(len(outcome.records) for outcome in outcomes) <= SLICE + partitions
            for outcome in outcomes:
                world.take(outcome)
            rounds += 1
        assert rounds >= 40 * min(partitions, PAGE_COST) // SLICE
        assert len(world.disk.tables[OFFSETS]) == 40 * 2 + 30

    def test_a_thousand_partitions_of_ten_thousand_groups_take_no_memory(
        self, world: World
    ) -> None:
        """Nor the loop: they are made group by group, as their slices come."""
        for n in range(10_000):
            world.machine.registry.create(f"g{n}", world.now).number = n + 1
        tracemalloc.start()
        world.machine.forget_partitions(range(1_000), world.now)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1_000_000

    def test_a_restart_in_between_leaves_them_to_the_next_look(self, world: World) -> None:
        world.send(commit_request("g", {0: 5}), 9)
        world.topics.add("t1", 1)
        world.send(commit_request("g", {0: 6}, topic="t1"), 9)
        world.topics.remove("t1")
        world.crash()
        world.advance(CHECK)
        assert len(world.disk.tables[OFFSETS]) == 1
