"""A classic group as data: its members, who leads, which protocols all of them know.

Nothing here answers anybody, looks at a clock or decides about a rebalance. Source: Kafka's
ClassicGroup and ClassicGroupMember.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ottla.group.outcome import Call
from ottla.group.states import TABLE, State
from ottla.wire.errors import Error, KafkaError

CONSUMER: Final = "consumer"
"""Protocol type of ordinary consumers, whose metadata is a subscription that we can read."""

Protocols: TypeAlias = list[tuple[str, bytes]]
"""Names and metadata of a member's assignors, the one it likes best first."""


class PendingOffset(NamedTuple):
    """What an open transaction will commit for one partition."""

    order: int
    """Rises from one pending offset to the next, over all groups: the last one stands."""
    row: bytes
    """The row of OFFSETS that it becomes; nothing when a commit that came later stands."""


def size_of(protocols: Protocols) -> int:
    """What a member says of itself, in bytes or a little less."""
    return sum(len(name) + len(metadata) for name, metadata in protocols)


@dataclass(slots=True, eq=False)
class Member:
    """One member of a generation, or one that is joining the next."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Call | None = None
    """The parked JoinGroup; set through the group, which counts them."""
    syncing: Call | None = None
    """The parked SyncGroup."""
    new: bool = False
    """Has never had a JoinGroup answer, so it cannot send heartbeats."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """What the member says under this protocol; nothing for one that it does not know."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """The candidate that the member likes best."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def parked(self) -> bool:
        """Waiting for others: its session clock does not count."""
        return self.joining is not None or self.syncing is not None


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """One group. `number` stands for its id in keys and is 0 until the first row is written."""

    group_id: str
    number: int = 0
    state: State = State.EMPTY
    initial: bool = False
    """PreparingRebalance was entered from Empty: the join phase ends by the clock only."""
    since_ms: int = 0
    """When the state was entered; for Empty groups the retention counts from here."""
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Member id by instance id."""
    pending: dict[str, None] = field(default_factory=dict)
    """Ids given out by MEMBER_ID_REQUIRED that have not joined yet."""
    not_synced: set[str] = field(default_factory=set)
    """Members of this generation that have not sent SyncGroup."""
    knowing: dict[str, int] = field(default_factory=dict)
    """How many members know each protocol."""
    bytes: int = 0
    """Size of the protocols of all members."""
    joined: int = 0
    """How many members have their JoinGroup parked."""
    newcomer: bool = False
    """Somebody joined during the initial delay: it is prolonged."""
    remaining_ms: int = 0
    """How much longer the initial delay may get."""
    reason: str = ""
    """Why the rebalance under way began."""
    began_ms: int = 0
    """When it began."""
    subscribed: frozenset[str] | None = None
    """Topics of all members' subscriptions; None when not known (not consumers, no generation)."""
    transactions: dict[int, dict[int, PendingOffset]] = field(default_factory=dict)
    """What open transactions will commit, by producer id and partition id (pending_offsets.py)."""

    def enter(self, state: State, now: int) -> None:
        """Go from one state to the next that the table allows."""
        if state not in TABLE[self.state].leads_to:
            raise RuntimeError(f"group {self.group_id}: {self.state} does not lead to {state}")
        self.initial = self.state is State.EMPTY
        self.state = state
        self.since_ms = now

    def add(self, member: Member, protocol_type: str) -> None:
        """Take in a member whose protocols are known to fit (see `supports`)."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Forget a member or a pending id; somebody else leads if it was the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            self.joined -= member.joining is not None
            if member.instance_id is not None:
                del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.not_synced.discard(member_id)
        return member

    def rename(self, instance_id: str, member_id: str) -> Member:
        """Give a static member the id of its new incarnation. Everything else stays, its place in
        the order of members as well."""
        old = self.static[instance_id]
        member = self.members[old]
        member.member_id = member_id
        self.members = {
            member_id if key == old else key: value for key, value in self.members.items()
        }
        self.static[instance_id] = member_id
        if self.leader == old:
            self.leader = member_id
        if old in self.not_synced:
            self.not_synced.remove(old)
            self.not_synced.add(member_id)
        return member

    def check(self, member_id: str, instance_id: str | None) -> Member:
        """The member that a request names.

        Raises KafkaError UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID when the instance id belongs to
        a younger incarnation (KIP-345).
        """
        if instance_id is not None:
            current = self.static.get(instance_id)
            if current is not None and current != member_id:
                raise KafkaError(Error.FENCED_INSTANCE_ID)
            if current is None:
                raise KafkaError(Error.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID)
        return member

    def replace_protocols(self, member: Member, protocols: Protocols) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def park_join(self, member: Member, call: Call) -> Call | None:
        """Keep the member's JoinGroup; gives back the one that was kept before."""
        before, member.joining = member.joining, call
        self.joined += before is None
        return before

    def take_join(self, member: Member) -> Call | None:
        """The parked JoinGroup, to be answered now."""
        call, member.joining = member.joining, None
        self.joined -= call is not None
        return call

    def all_joined(self) -> bool:
        """Nobody is missing, ids that were given out included."""
        return not self.pending and self.joined == len(self.members)

    def elect_leader(self) -> bool:
        """Keep a leader that joined, otherwise choose one who did; False when nobody did."""
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is not None and leader.joining is not None:
            return True
        for member in self.members.values():
            if member.joining is not None:
                self.leader = member.member_id
                return True
        return False

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member may take to come back."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols may join. An Empty group takes any but none."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        everybody = len(self.members)
        return any(self.knowing.get(name, 0) == everybody for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol most members like best, among those that all know. Among equals, the one
        that got its first vote first."""
        everybody = len(self.members)
        candidates = {name for name, count in self.knowing.items() if count == everybody}
        votes: dict[str, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def subscribes(self, topic: str) -> bool:
        """Whether offsets of this topic are in use. A group of consumers whose subscriptions are
        not known yet uses all of them."""
        if self.subscribed is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed

    def _count(self, protocols: Protocols, step: int) -> None:
        self.bytes += step * size_of(protocols)
        for name, _ in protocols:
            count = self.knowing.get(name, 0) + step
            if count:
                self.knowing[name] = count
            else:
                del self.knowing[name]
