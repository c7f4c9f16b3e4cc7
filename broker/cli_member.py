"""`ottla consume --group`: a member of a classic group (KIP-62), with Kafka's range assignor.

One thread does everything: the member heartbeats and commits between two fetches, and commits only
what has been printed. A member that stands still longer than its session is removed; it joins
again and continues at the last commit, as any consumer does.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from struct import pack
from typing import Final

from ottla.broker.cli_client import Cluster, patiently
from ottla.broker.cli_errors import problem, raise_for
from ottla.broker.cli_output import say
from ottla.group.subscription import partitions as assigned_partitions
from ottla.group.subscription import topics as subscribed_topics
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.api.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.wire.errors import Error, KafkaError

SESSION_MS: Final = 45_000
REBALANCE_MS: Final = 60_000
HEARTBEAT_S: Final = 3.0
COMMIT_BY_NAME: Final = 9
"""OffsetCommit version, the last that names topics by name."""
_REJOIN: Final = (
    Error.REBALANCE_IN_PROGRESS,
    Error.ILLEGAL_GENERATION,
    Error.UNKNOWN_MEMBER_ID,
    Error.FENCED_INSTANCE_ID,
)


class Member:
    """Membership in a group for the sake of one topic. Methods raise KafkaError and ClientError,
    after `timeout_s` in which the cluster could not be reached."""

    def __init__(self, cluster: Cluster, group: str, topic: str, timeout_s: float) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._timeout_s = timeout_s
        self._id = ""
        self._generation = -1
        self._beat_at = 0.0
        self._committed: dict[int, int] = {}

    def join(self) -> list[int]:
        """Become a member, again if need be; the partitions of the topic that it owns now."""
        while True:
            assignment = patiently(self._joined, self._timeout_s, _on_trouble)
            if assignment is not None:
                self._beat_at = time.monotonic() + HEARTBEAT_S
                self._committed = {}
                return sorted(assigned_partitions(assignment).get(self._topic, ()))

    def must_rejoin(self) -> bool:
        """Heartbeat, when it is time; whether the group begins another generation."""
        if time.monotonic() < self._beat_at:
            return False
        self._beat_at = time.monotonic() + HEARTBEAT_S
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._id
        )

        def beat() -> int:
            answer = self._cluster.call_coordinator(self._group, request, HeartbeatResponse)
            if answer.error_code not in _REJOIN:
                raise_for(answer.error_code, self._group)
            return answer.error_code

        return self._is_out(patiently(beat, self._timeout_s, _on_trouble))

    def commit(self, positions: Mapping[int, int]) -> bool:
        """Commit what has changed; False when the member has to join again first."""
        changed = {at: to for at, to in positions.items() if self._committed.get(at) != to}
        if not changed:
            return True
        topic = OffsetCommitRequestTopic(
            name=self._topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=""
                )
                for index, offset in changed.items()
            ],
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._id,
            topics=[topic],
        )

        def send() -> int:
            answer = self._cluster.call_coordinator(
                self._group, request, OffsetCommitResponse, at_most=COMMIT_BY_NAME
            )
            codes = {part.error_code for one in answer.topics for part in one.partitions}
            code = max(codes, default=0)
            if code not in _REJOIN:
                raise_for(code, self._group)
            return code

        if self._is_out(patiently(send, self._timeout_s, _on_trouble)):
            return False
        self._committed |= changed
        return True

    def leave(self) -> None:
        """Leave the group, so that others need not wait for the session's end."""
        if self._id:
            leaving = [MemberIdentity(member_id=self._id, reason="ottla consume ends")]
            request = LeaveGroupRequest(group_id=self._group, members=leaving)
            self._cluster.call_coordinator(self._group, request, LeaveGroupResponse)
            self._id = ""

    def _is_out(self, code: int) -> bool:
        if code in (Error.UNKNOWN_MEMBER_ID, Error.FENCED_INSTANCE_ID):
            self._id = ""
        return code != Error.NONE

    def _joined(self) -> bytes | None:
        """One round of JoinGroup and SyncGroup: the assignment, None when the round has to be made
        again."""
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_subscription(self._topic))],
        )
        joined = self._cluster.call_coordinator(
            self._group, request, JoinGroupResponse, timeout_s=REBALANCE_MS / 1000 + 10
        )
        if joined.error_code == Error.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            return None
        if joined.error_code in _REJOIN:
            self._is_out(joined.error_code)
            return None
        raise_for(joined.error_code, self._group)
        self._id, self._generation = joined.member_id, joined.generation_id
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=self._assignments(joined) if joined.leader == self._id else [],
        )
        synced = self._cluster.call_coordinator(
            self._group, sync, SyncGroupResponse, timeout_s=REBALANCE_MS / 1000 + 10
        )
        if synced.error_code in _REJOIN:
            self._is_out(synced.error_code)
            return None
        raise_for(synced.error_code, self._group)
        return synced.assignment

    def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """What the leader gives to whom: each topic in ranges over the members that subscribe to
        it. Raises KafkaError for a member that is no consumer."""
        try:
            wishes = {one.member_id: subscribed_topics(one.metadata) for one in joined.members}
        except ValueError:
            raise problem(
                Error.INCONSISTENT_GROUP_PROTOCOL, self._group, "not all members are consumers"
            ) from None
        names = sorted({name for wished in wishes.values() for name in wished})
        counts = {topic.name: len(topic.partitions) for topic in self._cluster.topics(names)}
        owned: dict[str, dict[str, range]] = {member_id: {} for member_id in wishes}
        for name in names:
            members = sorted(member_id for member_id, wished in wishes.items() if name in wished)
            for member_id, part in ranges(members, counts.get(name, 0)).items():
                owned[member_id][name] = part
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(topics))
            for member_id, topics in owned.items()
        ]


def ranges(members: list[str], partitions: int) -> dict[str, range]:
    """Partitions of a topic in a row for each member, the first members one more where they do not
    divide evenly: Kafka's RangeAssignor."""
    each, more = divmod(partitions, len(members))
    found = {}
    start = 0
    for number, member in enumerate(members):
        end = start + each + (number < more)
        found[member] = range(start, end)
        start = end
    return found


def _on_trouble(error: Exception) -> None:
    text = (error.message or str(error)) if isinstance(error, KafkaError) else str(error)
    say(f"{text}; trying again")


def _subscription(topic: str) -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    name = topic.encode()
    return pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)


def _assignment(topics: Mapping[str, Iterable[int]]) -> bytes:
    """ConsumerProtocolAssignment, version 0."""
    parts = [pack(">hi", 0, len(topics))]
    for topic, indexes in topics.items():
        name, listed = topic.encode(), list(indexes)
        head = pack(f">h{len(name)}si", len(name), name, len(listed))
        parts += [head, pack(f">{len(listed)}i", *listed)]
    return b"".join([*parts, pack(">i", -1)])
