"""A broker around the group machine without clock, disk or socket: time is a number, the disk a
dictionary, and a crash forgets what was not committed.

    world = World()
    reply = world.send(HeartbeatRequest(...))     # reply.response once it is answered
    world.advance(5_000)                          # five seconds later, deadlines served
    world.crash()                                 # killed and started again
"""

import sys
from dataclasses import dataclass, field
from typing import Any

from tests.group.memory import Disk, Topics

from ottla.group.machine import Machine, groups_of
from ottla.group.outcome import (
    GROUPS,
    Call,
    Outcome,
    Rebalanced,
)
from ottla.group.settings import GroupSettings
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.compile import decode, encode
from ottla.wire.errors import Error
from ottla.wire.schema import Message

FAILED = Error.COORDINATOR_NOT_AVAILABLE


@dataclass(eq=False)
class Reply:
    """One request and, once it is there, its answer."""

    request: Message
    version: int
    response: Any = None
    lost: bool = False
    """The broker was killed before it answered."""

    @property
    def answered(self) -> bool:
        return self.response is not None

    @property
    def error(self) -> Error:
        assert self.response is not None, f"{type(self.request).__name__} is not answered"
        return Error(self.response.error_code)


class World:
    """Machine, disk, topics and time. `manual`: nothing is committed until `commit` is called."""

    def __init__(self, *, manual: bool = False, **settings: int) -> None:
        self.settings = GroupSettings(**settings)
        self.manual = manual
        self.disk = Disk()
        self.topics = Topics()
        self.topics.add("t0", 4)
        self.now = 1_000_000
        self.open: list[Reply] = []
        self.rebalances: list[Rebalanced] = []
        self.ids = 0
        self.machine = self._load()

    def _load(self) -> Machine:
        machine = Machine(self.disk, self.topics, self.settings)
        for key, value in self.disk.scan(GROUPS):
            machine.load(key, value, self.now)
        return machine

    # ------------------------------------------------------------------------------------ requests

    def send(
        self, request: Message, version: int | None = None, client_id: str = "client"
    ) -> Reply:
        """Send a request, over the bytes it would have on the wire."""
        if version is None:
            version = request.versions[1]
        request = decode(type(request), version, b"".join(encode(request, version)))
        reply = Reply(request, version)
        self.open.append(reply)
        self.ids += 1
        call = Call(reply, version, client_id, "/127.0.0.1", f"{self.ids:04}")
        outcome = self._judged(request, call)
        if isinstance(request, HeartbeatRequest):
            assert not outcome.records
            self._release(outcome)  # a heartbeat waits for nothing
        else:
            self.take(outcome)
        self.run()
        return reply

    def _judged(self, request: Message, call: Call) -> Outcome:
        """A long answer is written in steps: all of them are taken here, and it is read again."""
        steps = self.machine.long_read(request, call)
        if steps is None:
            return self.machine.handle(request, call, self.now)
        outcome = Outcome(groups_of(request, call.version))
        while True:
            try:
                next(steps)
            except StopIteration as end:
                data = b"".join(end.value)
                break
        module = sys.modules[type(request).__module__]
        response = getattr(module, type(request).__name__.replace("Request", "Response"))
        outcome.reply(call, decode(response, call.version, data))
        return outcome

    def ask_machine(self, request: Message, version: int) -> Any:
        """The machine's answer, without waiting for what was admitted before as the shell does."""
        outcome = self._judged(request, Call(object(), version))
        ((_, response),) = outcome.replies
        return response

    def end_transaction(self, producer_id: int, *group_ids: str, committed: bool) -> None:
        """What the transaction coordinator has done when a transaction ends."""
        named = group_ids or ("g",)
        self.take(self.machine.end_transaction(producer_id, named, committed, self.now))
        self.run()

    def take(self, outcome: Outcome) -> None:
        """What the shell does with an outcome."""
        if outcome.records or not all(map(self.disk.settled, outcome.group_ids)):
            self.disk.queue.append(outcome)
            if not self.manual:
                self.commit()
        else:
            self._release(outcome)

    def commit(self, count: int | None = None) -> None:
        """Commit what is admitted, or the first `count` of it, and send the answers."""
        for _ in range(len(self.disk.queue) if count is None else count):
            outcome = self.disk.queue.pop(0)
            self.disk.apply(outcome)
            self._release(outcome)

    def _release(self, outcome: Outcome) -> None:
        self.rebalances += outcome.rebalances
        for reply, response in outcome.replies:
            assert isinstance(reply, Reply)
            assert not reply.answered, f"answered twice: {reply.request}"
            # Whatever is answered must fit the version that was asked in.
            reply.response = decode(
                type(response), reply.version, b"".join(encode(response, reply.version))
            )
            self.open.remove(reply)

    # ---------------------------------------------------------------------------------------- time

    def run(self) -> None:
        """Serve what is due now."""
        while (deadline := self.machine.next_deadline()) is not None and deadline <= self.now:
            for outcome in self.machine.on_timer(self.now):
                self.take(outcome)

    def advance(self, ms: int) -> None:
        """Let time pass, serving each deadline at its time."""
        end = self.now + ms
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.run()
        self.now = end

    # ------------------------------------------------------------------------------------- trouble

    def crash(self) -> None:
        """Kill the broker and start it again: what was not committed has never been."""
        self.disk.queue.clear()
        for reply in self.open:
            reply.lost = True
        self.open.clear()
        self.machine = self._load()

    def fail_commits(self) -> None:
        """The next commit fails, and with it all that are queued: what the shell does then."""
        waiting = [reply for outcome in self.disk.queue for reply, _ in outcome.replies]
        waiting += [reply for reply, _ in self.machine.parked(FAILED)]
        self.disk.queue.clear()
        for reply in waiting:
            assert isinstance(reply, Reply)
            reply.lost = True
            self.open.remove(reply)
        self.machine = self._load()

    def delete_topic(self, name: str) -> None:
        self.machine.forget_partitions(self.topics.remove(name), self.now)
        self.run()

    # -------------------------------------------------------------------------------------- looking

    def state(self, group_id: str = "g") -> str:
        group = self.machine.registry.groups.get(group_id)
        return "none" if group is None else group.state.value

    def generation(self, group_id: str = "g") -> int:
        return self.machine.registry.groups[group_id].generation_id

    def committed(self, group_id: str = "g", topic: str = "t0") -> dict[int, int]:
        """Offsets by partition, as a client is told them."""
        indexes = list(range(len(self.topics.partitions[topic])))
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[wanted])]
        )
        reply = self.send(request, 9)
        partitions = reply.response.groups[0].topics[0].partitions
        return {
            p.partition_index: p.committed_offset for p in partitions if p.committed_offset >= 0
        }


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, version 0."""
    names = b"".join(len(t).to_bytes(2) + t.encode() for t in topics)
    return (0).to_bytes(2) + len(topics).to_bytes(4) + names + (-1).to_bytes(4, signed=True)


@dataclass(eq=False)
class Consumer:
    """A member that says what it is told to; it follows the protocol only where it is asked to."""

    world: World
    client_id: str = "a"
    group_id: str = "g"
    instance_id: str | None = None
    protocols: dict[str, bytes] = field(default_factory=lambda: {"range": subscription("t0")})
    protocol_type: str = "consumer"
    session_ms: int = 10_000
    rebalance_ms: int = 60_000
    member_id: str = ""
    generation_id: int = -1
    leads: bool = False
    skip_assignment: bool = False
    member_ids: list[str] = field(default_factory=list)
    assignment: bytes | None = None

    def join(self, version: int = 9, reason: str | None = None, *, come_back: bool = True) -> Reply:
        """JoinGroup, and again with the id that is given out first, unless told otherwise."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id if version >= 5 else None,
            protocol_type=self.protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self.protocols.items()
            ],
            reason=reason if version >= 8 else None,
        )
        reply = self.world.send(request, version, self.client_id)
        if come_back and reply.answered and reply.error == Error.MEMBER_ID_REQUIRED:
            self.member_id = reply.response.member_id
            return self.join(version, reason)
        return reply

    def joined(self, reply: Reply) -> None:
        """Take what the JoinGroup answer says."""
        assert reply.error == Error.NONE, reply.error
        answer = reply.response
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        self.leads = answer.leader == answer.member_id
        self.skip_assignment = answer.skip_assignment
        self.member_ids = [member.member_id for member in answer.members]

    def sync(
        self, assignments: dict[str, bytes] | None = None, version: int = 5, **changes: Any
    ) -> Reply:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id if version >= 3 else None,
            protocol_type=self.protocol_type if version >= 5 else None,
            protocol_name=next(iter(self.protocols)) if version >= 5 else None,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return self.world.send(request, version, self.client_id)

    def heartbeat(self, version: int = 4) -> Error:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id if version >= 3 else None,
        )
        return self.world.send(request, version, self.client_id).error

    def leave(self, version: int = 5) -> Error:
        """LeaveGroup; the member's own error."""
        reply = self.ask_to_leave(version)
        if version >= 3 and reply.response.members:
            return Error(reply.response.members[0].error_code)
        return reply.error

    def ask_to_leave(self, version: int = 5) -> Reply:
        request = LeaveGroupRequest(group_id=self.group_id)
        if version >= 3:
            request.members = [
                MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
            ]
        else:
            request.member_id = self.member_id
        return self.world.send(request, version, self.client_id)

    def commit(self, offset: int, partition: int = 0, topic: str = "t0", version: int = 9) -> Reply:
        return self.world.send(
            commit_request(
                self.group_id,
                {partition: offset},
                topic=topic,
                generation_id=self.generation_id,
                member_id=self.member_id,
                instance_id=self.instance_id if version >= 7 else None,
            ),
            version,
            self.client_id,
        )


def commit_request(
    group_id: str,
    offsets: dict[int, int],
    *,
    topic: str = "t0",
    topic_id: bytes = bytes(16),
    generation_id: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    """An OffsetCommit of one topic; without member a standalone consumer's."""
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset in offsets.items()
                ],
            )
        ],
    )


def txn_request(
    producer_id: int,
    offsets: dict[int, int],
    *,
    group_id: str = "g",
    topic: str = "t0",
    generation_id: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
    metadata: str | None = "",
) -> TxnOffsetCommitRequest:
    """A TxnOffsetCommit of one topic; without member as of producers before KIP-447."""
    return TxnOffsetCommitRequest(
        transactional_id=f"txn-{producer_id}",
        group_id=group_id,
        producer_id=producer_id,
        generation_id=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset in offsets.items()
                ],
            )
        ],
    )


def commit_error(reply: Reply) -> Error:
    """The error of the first partition of an OffsetCommit or TxnOffsetCommit answer."""
    return Error(reply.response.topics[0].partitions[0].error_code)


def rejoin(*consumers: Consumer) -> None:
    """All members of a stable group come back, the leader first: it waits for the assignment."""
    replies = [consumer.join() for consumer in consumers]
    for consumer, reply in zip(consumers, replies, strict=True):
        consumer.joined(reply)


def form(*consumers: Consumer) -> None:
    """Bring consumers, new or not, to a stable generation in which each has its client id as
    assignment. All members of the group must be among them."""
    replies = {consumer: consumer.join() for consumer in consumers}
    while not all(reply.answered for reply in replies.values()):
        before = dict(replies)
        for consumer, reply in before.items():
            if reply.answered:  # alone, or before the others came: that generation is past
                consumer.joined(reply)
                replies[consumer] = consumer.join()
        assert replies != before, "nobody is left to come back"
    for consumer, reply in replies.items():
        consumer.joined(reply)
    assignments = {c.member_id: c.client_id.encode() for c in consumers}
    synced = {c: c.sync(assignments if c.leads else None) for c in consumers}
    for consumer, reply in synced.items():
        assert reply.error == Error.NONE, reply.error
        consumer.assignment = reply.response.assignment
