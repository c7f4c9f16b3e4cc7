"""Members join, leave, crash, pause and answer late, the broker is killed and its commits fail, in
any order: the promises hold all the same."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.group.players import PARTITIONS, Observed, Player, watch
from tests.group.simulated import World, txn_request

from ottla.group.outcome import PENDING_OFFSETS
from ottla.group.rows import decode_offset, decode_pending, pending_place
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

LONGEST_WAIT_MS = 300_000 + 60_000 + 60_000
"""A first JoinGroup, a rebalance, a SyncGroup: nothing is parked for longer."""
DAY_MS = 86_400_000
ROUND_MS = 3_000
"""How often a client in peace sends heartbeats: its session is ten seconds."""
ROUNDS_TO_PEACE = LONGEST_WAIT_MS // ROUND_MS


class Group(RuleBasedStateMachine):
    """One group, up to six members at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            manual=True,
            offsets_retention_check_interval_ms=100 * DAY_MS,
            offsets_retention_ms=100 * DAY_MS,
        )
        self.observed = Observed()
        watch(self.world, self.observed)
        self.players: list[Player] = []
        self.born = 0
        self.assigned = 0
        self.sent = 0
        self.asked_at: dict[int, int] = {}

    def assign(self, members: int) -> int:
        """Another choice each time: no assignment is right by accident."""
        self.assigned += 7
        return (self.assigned // 3) % members

    # ------------------------------------------------------------------------------------ members

    @precondition(lambda self: len(self.players) < 6)
    @rule(instance_id=st.sampled_from([None, None, None, "one", "two"]))
    def somebody_starts(self, instance_id: str | None) -> None:
        self.born += 1
        name = f"m{self.born}"
        self.players.append(Player(self.world, self.observed, name, self.assign, instance_id))

    @precondition(lambda self: self.players)
    @rule(data=st.data(), steps=st.integers(1, 4))
    def somebody_goes_on(self, data: st.DataObject, steps: int) -> None:
        player = data.draw(st.sampled_from(self.players))
        for _ in range(steps):
            player.step()

    @precondition(lambda self: self.players)
    @rule(commits=st.booleans())
    def everybody_goes_on(self, commits: bool) -> None:
        for player in list(self.players):
            player.step()
            player.heartbeat()
            if commits:
                player.commit()
        self.world.commit()

    @precondition(lambda self: self.players)
    @rule(data=st.data())
    def somebody_sends_a_heartbeat(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.players)).heartbeat()

    @precondition(lambda self: self.players)
    @rule(data=st.data())
    def somebody_commits(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.players)).commit()

    @precondition(lambda self: self.players)
    @rule(data=st.data())
    def somebody_leaves(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.players)).leave()

    @precondition(lambda self: self.players)
    @rule(data=st.data())
    def somebody_asks_again(self, data: st.DataObject) -> None:
        """Its connection was lost, the request was not."""
        player = data.draw(st.sampled_from(self.players))
        if player.waiting is not None:
            player.waiting = None
            player.phase = "out"

    @precondition(lambda self: self.players)
    @rule(data=st.data())
    def somebody_changes_its_mind_about_topics(self, data: st.DataObject) -> None:
        player = data.draw(st.sampled_from(self.players))
        player.consumer.protocols = {"range": bytes([0, 0, 0, 0, 0, 0, self.born % 256])}
        if player.phase == "stable" and player.waiting is None:
            player.phase = "out"

    @precondition(lambda self: self.players)
    @rule(data=st.data())
    def somebody_dies(self, data: st.DataObject) -> None:
        self.players.remove(data.draw(st.sampled_from(self.players)))

    @precondition(lambda self: self.players)
    @rule()
    def they_are_left_in_peace(self) -> None:
        """Then a client follows the protocol promptly, and all of them find each other: however it
        began, in the end each partition belongs to one live member."""
        for _ in range(ROUNDS_TO_PEACE):
            self.players = [player for player in self.players if player.phase != "fenced"]
            for player in self.players:
                player.step()
                player.heartbeat()
            self.world.commit()
            if self._in_peace():
                break
            self.world.advance(ROUND_MS)
        assert self._in_peace(), [(p.owner, p.phase, p.partitions) for p in self.players]
        owned = [partition for player in self.players for partition in player.partitions]
        assert sorted(owned) == (list(range(PARTITIONS)) if self.players else [])
        for player in self.players:
            player.commit()

    def _in_peace(self) -> bool:
        """Everybody is in the group, nobody else is."""
        group = self.world.machine.registry.groups.get("g")
        members = set(group.members) if group is not None else set()
        return members == {player.consumer.member_id for player in self.players} and all(
            player.phase == "stable" and player.waiting is None for player in self.players
        )

    # ------------------------------------------------------------------------------- transactions

    @rule(producer_id=st.sampled_from([7, 8]), partition=st.sampled_from([0, 1]))
    def a_transaction_moves_an_offset(self, producer_id: int, partition: int) -> None:
        """Sent without a member, which no state of the group refuses."""
        self.sent += 1
        self.world.send(txn_request(producer_id, {partition: self.sent}))

    @rule(producer_id=st.sampled_from([7, 8]), committed=st.booleans())
    def a_transaction_ends(self, producer_id: int, committed: bool) -> None:
        outcome = self.world.machine.end_transaction(producer_id, ["g"], committed, self.world.now)
        self.observed.ends.append((outcome, producer_id, committed))
        self.world.take(outcome)

    @rule(partition=st.sampled_from([0, 1]))
    def an_offset_is_deleted(self, partition: int) -> None:
        """While nobody subscribes to the topic, that is while there are no members."""
        partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
        topics = [OffsetDeleteRequestTopic(name="t0", partitions=partitions)]
        self.world.send(OffsetDeleteRequest(group_id="g", topics=topics))

    # ----------------------------------------------------------------------------- time and broker

    @rule(ms=st.sampled_from([1, 100, 3_000, 9_999, 10_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(share=st.integers(1, 3))
    def commits_are_done(self, share: int) -> None:
        self.world.commit(-(-len(self.world.disk.queue) // share))

    @rule()
    def the_broker_is_killed(self) -> None:
        self.world.crash()
        self.observed.ends.clear()

    @rule()
    def commits_fail(self) -> None:
        self.world.fail_commits()
        self.observed.ends.clear()

    # ------------------------------------------------------------------------------------ promises

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        held = {
            int.from_bytes(key[4:]) - 100: int.from_bytes(value[:8])
            for key, value in self.world.disk.tables["offsets"].items()
        }
        assert held == self.observed.acknowledged

    @invariant()
    def what_transactions_will_move_is_kept(self) -> None:
        held = {}
        for key, value in self.world.disk.tables[PENDING_OFFSETS].items():
            producer_id, partition_id = pending_place(key)
            row = decode_pending(value).row
            held[producer_id, partition_id - 100] = decode_offset(row).offset if row else None
        assert held == {key: offset for key, (_, offset) in self.observed.pending.items()}

    @invariant()
    def the_generation_never_goes_back(self) -> None:
        if self.world.state() != "none":
            assert self.world.generation() >= self.observed.last_generation

    @invariant()
    def members_and_counts_agree(self) -> None:
        group = self.world.machine.registry.groups.get("g")
        if group is None:
            return
        members = group.members.values()
        assert group.joined == sum(m.joining is not None for m in members)
        knowing: dict[str, int] = {}
        for member in members:
            for name, _ in member.protocols:
                knowing[name] = knowing.get(name, 0) + 1
        assert group.knowing == knowing
        assert set(group.static.values()) <= set(group.members)
        assert group.leader in group.members or not group.members
        assert not set(group.pending) & set(group.members)
        assert group.not_synced <= set(group.members)

    @invariant()
    def nobody_waits_for_too_long(self) -> None:
        """A request that is not answered waits for a commit, or for a deadline that will come."""
        now = self.world.now
        committing = {id(reply) for out in self.world.disk.queue for reply, _ in out.replies}
        parked = {id(reply) for reply in self.world.open} - committing
        self.asked_at = {reply: since for reply, since in self.asked_at.items() if reply in parked}
        for reply in parked:
            assert now - self.asked_at.setdefault(reply, now) <= LONGEST_WAIT_MS + 60_000

    def teardown(self) -> None:
        self.world.manual = False
        self.world.commit()
        self.world.advance(LONGEST_WAIT_MS)
        assert self.world.open == [], "not answered"
        self.nothing_acknowledged_is_lost()
        self.what_transactions_will_move_is_kept()


def play(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Group,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_play() -> None:
    play(60, 40)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_random_play_of_a_hundred_thousand_steps() -> None:
    play(1_100, 100)
