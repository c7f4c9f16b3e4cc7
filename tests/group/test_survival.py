"""K9: the broker is killed at every step of a rebalance, and after every single commit of one.

Members come back, at most one rebalance follows, no acknowledged commit is lost, no generation
goes back.
"""

from collections.abc import Callable
from itertools import count

import pytest
from tests.group.players import Observed, Player, watch
from tests.group.simulated import Consumer, World, commit_error, form, rejoin

from ottla.group.outcome import GROUPS
from ottla.group.rows import decode_group
from ottla.wire.errors import Error


def generation_on_disk(world: World) -> int:
    (value,) = world.disk.tables[GROUPS].values()
    return decode_group(1, value).generation_id


class TestFiveSteps:
    def two(self) -> tuple[World, Consumer, Consumer]:
        world = World()
        a, b = Consumer(world, "a"), Consumer(world, "b")
        form(a, b)
        a.commit(5)
        return world, a, b

    def test_before_the_rebalance_nobody_notices(self) -> None:
        world, a, b = self.two()
        world.crash()
        assert (world.state(), world.generation()) == ("Stable", a.generation_id)
        assert a.heartbeat() == b.heartbeat() == Error.NONE
        assert commit_error(a.commit(6)) == Error.NONE
        assert a.sync().response.assignment == b"a"

    def test_while_members_join(self) -> None:
        world, a, b = self.two()
        c = Consumer(world, "c")
        joining = c.join()
        waiting = a.join()
        world.crash()
        assert joining.lost
        assert waiting.lost
        assert b.heartbeat() == Error.NONE
        again = b.join()
        assert again.response.generation_id == b.generation_id  # as if nothing had happened
        assert c.join().error == Error.UNKNOWN_MEMBER_ID
        c.member_id = ""
        form(c, a, b)
        assert world.generation() == a.generation_id == 3

    def test_when_joining_is_done_and_nobody_has_heard_of_it(self) -> None:
        world, a, b = self.two()
        world.manual = True
        first, second = a.join(), b.join()
        assert world.state() == "CompletingRebalance"
        assert not first.answered
        assert not second.answered
        world.crash()
        world.manual = False
        assert (world.state(), world.generation()) == ("Stable", a.generation_id)

    def test_after_some_have_their_join_answer(self) -> None:
        world, a, b = self.two()
        rejoin(a, b)
        assert generation_on_disk(world) == a.generation_id
        world.crash()
        assert (world.state(), world.generation()) == ("CompletingRebalance", a.generation_id)
        assert a.heartbeat() == Error.NONE
        waiting = b.sync()  # it had its answer, and goes on
        again = a.join()  # it had not
        assert again.response.generation_id == a.generation_id
        a.joined(again)
        assert a.leads
        assert sorted(a.member_ids) == sorted([a.member_id, b.member_id])
        a.sync({a.member_id: b"x", b.member_id: b"y"})
        assert waiting.response.assignment == b"y"
        assert world.generation() == a.generation_id

    def test_after_the_generation_is_written_before_sync_is_answered(self) -> None:
        world, a, b = self.two()
        rejoin(a, b)
        world.manual = True
        waiting = b.sync()
        leading = a.sync({a.member_id: b"x", b.member_id: b"y"})
        assert not waiting.answered
        assert not leading.answered
        world.crash()
        world.manual = False
        assert world.state() == "CompletingRebalance"
        a.sync({a.member_id: b"other", b.member_id: b"wise"})
        assert b.sync().response.assignment == b"wise"

    def test_after_some_have_their_sync_answer(self) -> None:
        world, a, b = self.two()
        rejoin(a, b)
        a.sync({a.member_id: b"x", b.member_id: b"y"})
        world.crash()
        assert world.state() == "Stable"
        assert a.heartbeat() == Error.NONE
        assert b.sync().response.assignment == b"y"
        assert world.committed() == {0: 5}

    def test_a_leader_that_does_not_come_back_costs_one_rebalance(self) -> None:
        world, a, b = self.two()
        rejoin(a, b)
        world.crash()
        waiting = b.sync()
        world.advance(10_000)
        assert waiting.error == Error.REBALANCE_IN_PROGRESS
        alone = b.join()
        assert alone.response.generation_id == b.generation_id + 1
        assert alone.response.leader == b.member_id

    def test_nobody_comes_back(self) -> None:
        world, a, _ = self.two()
        world.crash()
        world.advance(10_000 + 60_000)
        assert (world.state(), world.generation()) == ("Empty", a.generation_id + 1)
        assert world.committed() == {0: 5}


Script = Callable[[World, list[Player]], None]


def settle(world: World, players: list[Player]) -> None:
    """Everybody does what is next until there is nothing left to do."""
    for _ in range(30):
        for player in players:
            player.step()
            player.heartbeat()
        world.run()
        if all(player.phase == "stable" for player in players):
            return
    raise AssertionError([player.phase for player in players])


def joined_by_a_third(world: World, players: list[Player]) -> None:
    settle(world, players[:2])
    players[0].commit()
    for player in players[:2]:
        player.commit()
    settle(world, players)
    for player in players:
        player.commit()


def left_by_one(world: World, players: list[Player]) -> None:
    settle(world, players)
    for player in players:
        player.commit()
    players[0].leave()
    settle(world, players)
    players[1].commit()


def leader_assigns_anew(world: World, players: list[Player]) -> None:
    settle(world, players)
    leader = next(player for player in players if player.consumer.leads)
    leader.phase = "out"
    settle(world, players)
    leader.commit()


def changing_mind() -> Callable[[int], int]:
    """An assignor that never assigns the same way twice."""
    numbers = count()
    return lambda members: next(numbers) % members


class Crash(Exception):
    """The broker was killed where the script asked for it."""


@pytest.mark.parametrize("script", [joined_by_a_third, left_by_one, leader_assigns_anew])
@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
def test_a_crash_after_every_commit(script: Script, answered: bool) -> None:
    """`answered`: the answers of the commit left before the crash, or none of them did."""
    crashes = 0
    while True:
        world, observed = World(), Observed()
        watch(world, observed)
        players = [Player(world, observed, name, changing_mind()) for name in "abc"]
        release, left = world._release, crashes + 1

        def releasing(outcome: object, release=release, world=world) -> None:  # type: ignore[no-untyped-def]
            nonlocal left
            if getattr(outcome, "records"):  # noqa: B009
                left -= 1
                if left == 0:
                    if answered:
                        release(outcome)
                    raise Crash
            release(outcome)

        world._release = releasing  # type: ignore[method-assign]
        try:
            script(world, players)
        except Crash:
            crashes += 1
        else:
            break
        world._release = release  # type: ignore[method-assign]
        generation = generation_on_disk(world)
        acknowledged = dict(observed.acknowledged)
        world.crash()
        for player in players:
            if player.phase not in ("out", "stable") and player.waiting is None:
                player.phase = "out" if player.phase == "joining" else player.phase
        settle(world, players)
        assert world.generation() <= generation + 1, "more than one rebalance"
        committed = world.committed()
        for partition, offset in acknowledged.items():
            assert committed.get(partition, -1) >= offset, "an acknowledged commit is lost"
        for player in players:
            player.commit()
        assert world.generation() == max(observed.owners)
    assert crashes >= 4


class TestFailedCommits:
    def test_what_waited_is_told_and_what_was_not_written_never_was(self) -> None:
        world = World(manual=True)
        a = Consumer(world)
        joining = a.join()
        world.fail_commits()
        assert joining.lost
        assert world.state() == "none"

    def test_everything_parked_is_told(self) -> None:
        world = World()
        a, b, c = (Consumer(world, name) for name in "abc")
        form(a, b, c)
        rejoin(a, b, c)
        waiting = [b.sync(), c.sync()]
        other = Consumer(world, "d", group_id="h")
        form(other)
        Consumer(world, "e", group_id="h").join()
        world.manual = True
        last = a.commit(1, version=9)
        assert commit_error(last) == Error.REBALANCE_IN_PROGRESS
        a.sync({a.member_id: b"x"})
        world.fail_commits()
        assert all(reply.lost for reply in waiting)
        assert world.open == []
        assert (world.state("g"), world.state("h")) == ("CompletingRebalance", "Stable")
