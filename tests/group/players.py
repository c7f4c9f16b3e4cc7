"""Consumers that follow the protocol by themselves and check what they are told."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.group.simulated import Consumer, Reply, World, commit_error

from ottla.wire.errors import Error

PARTITIONS = 4


@dataclass
class Observed:
    """What all players of a world were told; each of them adds to it, and compares."""

    owners: dict[int, dict[str, set[int]]] = field(default_factory=dict)
    """Partitions by generation and member."""
    last_generation: int = 0
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Offsets by partition."""
    pending: dict[tuple[int, int], tuple[int, int | None]] = field(default_factory=dict)
    """By producer id and partition: when it was acknowledged, and the offset; None where a commit
    that came later stands."""
    ends: list[tuple[object, int, bool]] = field(default_factory=list)
    """Of transactions, on their way to the disk: outcome, producer id, committed or not."""
    acknowledgements: int = 0

    def told_offset(self, partition: int, offset: int) -> None:
        self.acknowledged[partition] = offset
        self._overrule(partition, self.acknowledgements + 1)

    def told_pending(self, producer_id: int, partition: int, offset: int) -> None:
        self.acknowledgements += 1
        self.pending[producer_id, partition] = (self.acknowledgements, offset)

    def told_deleted(self, partition: int) -> None:
        self.acknowledged.pop(partition, None)
        for key in [key for key in self.pending if key[1] == partition]:
            del self.pending[key]

    def ended(self, producer_id: int, committed: bool) -> None:
        for producer, partition in [key for key in self.pending if key[0] == producer_id]:
            order, offset = self.pending.pop((producer, partition))
            if committed and offset is not None:
                self.acknowledged[partition] = offset
                self._overrule(partition, order)

    def _overrule(self, partition: int, order: int) -> None:
        for key, (when, _) in self.pending.items():
            if key[1] == partition and when < order:
                self.pending[key] = (when, None)

    def told_generation(self, generation: int) -> None:
        assert generation >= self.last_generation, "a generation went back"
        self.last_generation = generation

    def told_assignment(self, generation: int, owner: str, partitions: set[int]) -> None:
        owners = self.owners.setdefault(generation, {})
        for other, theirs in owners.items():
            assert other == owner or not theirs & partitions, (
                f"generation {generation}: {owner} and {other} share {theirs & partitions}"
            )
        assert owners.setdefault(owner, partitions) == partitions, "assigned twice"


class Player:
    """One consumer. `step` does what a client would do next; it may be late with it, or never."""

    def __init__(
        self,
        world: World,
        observed: Observed,
        name: str,
        assign: Callable[[int], int],
        instance_id: str | None = None,
    ) -> None:
        self.world = world
        self.observed = observed
        self.consumer = Consumer(world, name, instance_id=instance_id)
        self.assign = assign
        """Position of the member that gets a partition, given how many there are."""
        self.waiting: Reply | None = None
        self.phase = "out"
        self.commits: list[tuple[Reply, int, int]] = []
        self.partitions: set[int] = set()
        self.next_offset = 0

    @property
    def owner(self) -> str:
        return self.consumer.instance_id or self.consumer.member_id

    def step(self) -> None:
        """Take an answer that has come, or ask for the next thing."""
        self._take_commits()
        if self.waiting is None:
            self._ask()
        elif self.waiting.lost:
            self.waiting = None
            self.phase = "out"  # with its id: it does not know what became of the request
        elif self.waiting.answered:
            reply, self.waiting = self.waiting, None
            self._take(reply)

    def _ask(self) -> None:
        if self.phase == "out":
            self.partitions = set()
            self.waiting = self.consumer.join(come_back=False)
            self.phase = "joining"
        elif self.phase == "joined":
            assignments = None
            if self.consumer.leads and not self.consumer.skip_assignment:
                assignments = self._assignments()
            self.waiting = self.consumer.sync(assignments)
            self.phase = "syncing"

    def _assignments(self) -> dict[str, bytes]:
        members = self.consumer.member_ids
        assigned: dict[str, list[int]] = {member: [] for member in members}
        for partition in range(PARTITIONS):
            assigned[members[self.assign(len(members))]].append(partition)
        return {member: bytes(partitions) for member, partitions in assigned.items()}

    def _take(self, reply: Reply) -> None:
        error = reply.error
        if self.phase == "joining" and error == Error.MEMBER_ID_REQUIRED:
            self.consumer.member_id = reply.response.member_id
            self.phase = "out"
        elif error == Error.NONE:
            if self.phase == "joining":
                self.consumer.joined(reply)
                self.phase = "joined"
            else:
                self.partitions = set(reply.response.assignment)
                self.observed.told_assignment(
                    self.consumer.generation_id, self.owner, self.partitions
                )
                self.phase = "stable"
        else:
            self._refused(error)

    def _refused(self, error: Error) -> None:
        if error == Error.FENCED_INSTANCE_ID:
            self.phase = "fenced"
            return
        assert error in (
            Error.UNKNOWN_MEMBER_ID,
            Error.ILLEGAL_GENERATION,
            Error.REBALANCE_IN_PROGRESS,
        ), error
        if error == Error.UNKNOWN_MEMBER_ID:
            self.consumer.member_id = ""
        self.phase = "out"

    # ------------------------------------------------------------------------------- between steps

    def heartbeat(self) -> None:
        """A live member hears of every rebalance: no error means that its generation is the one
        there is."""
        if self.phase not in ("joined", "stable") or self.waiting is not None:
            return
        error = self.consumer.heartbeat()
        if error == Error.NONE:
            assert self.consumer.generation_id == self.world.generation()
            assert self.world.state() in ("Stable", "CompletingRebalance")
        elif error != Error.REBALANCE_IN_PROGRESS or self.phase == "stable":
            self._refused(error)

    def commit(self) -> None:
        """Commit for a partition of its own, as far as it knows."""
        if self.phase != "stable" or not self.partitions:
            return
        partition = min(self.partitions)
        self.next_offset += 1
        offset = self.consumer.generation_id * 1_000_000 + self.next_offset
        reply = self.consumer.commit(offset, partition)
        self.commits.append((reply, partition, offset))

    def _take_commits(self) -> None:
        open_commits = []
        for reply, partition, offset in self.commits:
            if reply.answered:
                error = commit_error(reply)
                if error == Error.FENCED_INSTANCE_ID:
                    self.phase = "fenced"
            elif not reply.lost:
                open_commits.append((reply, partition, offset))
        self.commits = open_commits

    def leave(self) -> None:
        if self.phase in ("joined", "stable") and self.waiting is None:
            self.consumer.ask_to_leave()
            self.consumer.member_id = ""
            self.phase = "out"


def watch(world: World, observed: Observed) -> None:
    """Look at answers in the order in which they leave, not when players get round to them."""
    release = world._release

    def releasing(outcome: object) -> None:
        release(outcome)  # type: ignore[arg-type]
        for reply, response in outcome.replies:  # type: ignore[attr-defined]
            name = type(response).__name__
            if name == "JoinGroupResponse" and not response.error_code:
                observed.told_generation(response.generation_id)
            elif name == "OffsetCommitResponse" and not commit_error(reply):
                partition = reply.request.topics[0].partitions[0]
                observed.told_offset(partition.partition_index, partition.committed_offset)
            elif name == "TxnOffsetCommitResponse" and not commit_error(reply):
                partition = reply.request.topics[0].partitions[0]
                observed.told_pending(
                    reply.request.producer_id, partition.partition_index, partition.committed_offset
                )
            elif name == "OffsetDeleteResponse" and not response.error_code:
                (answer,) = response.topics[0].partitions
                if not answer.error_code:
                    observed.told_deleted(answer.partition_index)
        for end in [end for end in observed.ends if end[0] is outcome]:
            observed.ends.remove(end)
            observed.ended(*end[1:])

    world._release = releasing  # type: ignore[method-assign]
