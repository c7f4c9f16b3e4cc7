"""What bounds a group: ids given out, members, bytes."""

import pytest
from tests.group.simulated import Consumer, World, form

from ottla.group.outcome import Call
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.errors import Error


@pytest.fixture
def world() -> World:
    return World()


class TestPendingIds:
    def test_the_others_wait_for_an_id_that_was_given_out(self, world: World) -> None:
        a, b, c = (Consumer(world, name) for name in "abc")
        form(a, b)
        c.member_id = c.join(come_back=False).response.member_id
        first, second = a.join(), b.join()
        assert not first.answered
        third = c.join()
        assert first.answered
        assert second.answered
        assert third.answered

    def test_but_not_for_longer_than_its_session(self, world: World) -> None:
        a, c = Consumer(world, "a"), Consumer(world, "c", session_ms=6_000)
        form(a)
        c.join(come_back=False)
        waiting = a.join()
        world.advance(6_000)
        assert waiting.error == Error.NONE

    def test_they_are_bounded_the_oldest_go(self) -> None:
        world = World(max_pending_members=3)
        given = [Consumer(world, f"c{n}", group_id=f"g{n}").join(come_back=False) for n in range(5)]
        assert len(world.machine.registry.groups) == 3
        assert len(world.machine.registry.timers) == 3
        for n, expected in enumerate([Error.UNKNOWN_MEMBER_ID] * 2 + [Error.NONE] * 3):
            again = Consumer(world, f"c{n}", group_id=f"g{n}")
            again.member_id = given[n].response.member_id
            assert again.join().error == expected

    def test_also_when_many_ask_before_any_deadline_is_looked_at(self) -> None:
        """A turn of the loop takes hundreds of requests and serves deadlines once."""
        world = World(max_pending_members=3)
        for n in range(50):
            request = JoinGroupRequest(
                group_id=f"g{n % 7}",
                session_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range")],
            )
            outcome = world.machine.handle(request, Call(object(), 9, unique=str(n)), world.now)
            assert len(outcome.replies) == 1
            registry = world.machine.registry
            assert len(registry.pending) <= 3
            assert sum(len(group.pending) for group in registry.groups.values()) <= 3
            assert len(registry.groups) <= 3
            assert len(registry.timers) <= 3

    def test_whoever_waited_for_one_that_is_forgotten_goes_on(self) -> None:
        world = World(max_pending_members=1)
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a)
        b.join(come_back=False)
        waiting = a.join()
        assert not waiting.answered
        Consumer(world, "c", group_id="h").join(come_back=False)
        assert waiting.error == Error.NONE
        assert waiting.response.generation_id == world.generation()

    def test_a_group_of_nobody_is_forgotten(self, world: World) -> None:
        Consumer(world, "a").join(come_back=False)
        assert world.state() == "Empty"
        world.advance(10_000)
        assert world.state() == "none"
        assert world.disk.tables["groups"] == {}
        assert len(world.machine.registry.timers) == 0


class TestMaxSize:
    def test_the_member_after_it_is_refused(self) -> None:
        world = World(max_size=2)
        a, b, c = (Consumer(world, name) for name in "abc")
        form(a, b)
        reply = c.join()
        assert (reply.error, reply.response.member_id) == (Error.GROUP_MAX_SIZE_REACHED, "")
        assert (world.state(), a.heartbeat()) == ("Stable", Error.NONE)
        b.leave()
        a_back, c_new = a.join(), c.join()
        assert not c_new.answered or c_new.error == Error.NONE
        assert a_back.answered

    def test_members_come_back_while_it_is_full(self) -> None:
        world = World(max_size=2)
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        form(a, b)
        assert world.state() == "Stable"

    def test_the_place_is_free_when_a_session_ends(self) -> None:
        world = World(max_size=1)
        a, b = Consumer(world, "a", rebalance_ms=6_000), Consumer(world, "b")
        form(a)
        assert b.join().error == Error.GROUP_MAX_SIZE_REACHED
        world.advance(10_000)
        form(b)

    def test_a_lowered_limit_lets_the_last_ones_out(self) -> None:
        world = World()
        members = [Consumer(world, name) for name in "abc"]
        form(*members)
        settings = type(world.settings)(max_size=2)
        for part in (world.machine._classic, world.machine._rebalance, world.machine.registry):
            part.settings = settings
        replies = [m.join() for m in members]
        assert [r.response.error_code for r in replies] == [0, 0, Error.GROUP_MAX_SIZE_REACHED]


class TestSizes:
    """What one client says must not fill the memory, or make a row that cannot be written."""

    def test_what_a_member_says_of_itself(self, world: World) -> None:
        limit = world.settings.max_member_bytes
        reply = Consumer(world, protocols={"range": bytes(limit)}).join()
        assert reply.error == Error.INVALID_REQUEST
        assert world.state() == "none"
        assert Consumer(world, protocols={"range": bytes(limit - 5)}).join().error == Error.NONE

    def test_what_all_members_say(self) -> None:
        world = World(max_group_bytes=1000)
        form(Consumer(world, "a", protocols={"range": bytes(600)}))
        reply = Consumer(world, "b", protocols={"range": bytes(600)}).join()
        assert reply.error == Error.GROUP_MAX_SIZE_REACHED
        assert world.state() == "Stable"

    def test_what_a_leader_assigns(self) -> None:
        world = World(max_group_bytes=1000)
        a = Consumer(world)
        a.joined(a.join())
        assert a.sync({a.member_id: bytes(1001)}).error == Error.INVALID_REQUEST
        assert a.sync({a.member_id: bytes(1000)}).error == Error.NONE

    @pytest.mark.parametrize("version", [3, 9])
    def test_a_very_long_client_id_makes_no_longer_member_id(
        self, world: World, version: int
    ) -> None:
        a = Consumer(world, "é" * 16_000)
        a.joined(a.join(version))
        assert len(a.member_id.encode()) < 4000
        assert a.sync({a.member_id: b"a"}).error == Error.NONE
