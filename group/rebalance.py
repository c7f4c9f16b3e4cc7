"""A rebalance from its beginning to the new generation, and everything that begins or ends one.

    begin -> (members come back) -> complete_join -> (the leader assigns) -> finish

Source: Kafka's GroupMetadataManager: prepareRebalance, completeClassicGroupJoin,
tryCompleteInitialRebalanceElseSchedule, expirePendingSync, removeMemberAndUpdateClassicGroup.
"""

from collections.abc import Iterable

from ottla.group.members import ClassicGroup, Member
from ottla.group.outcome import Call, Outcome, Rebalanced
from ottla.group.registry import Kind, Registry, due_of
from ottla.group.states import TABLE, Act, State
from ottla.group.subscription import subscribed_topics
from ottla.wire.api.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.api.sync_group import SyncGroupResponse
from ottla.wire.errors import Error

NULL_PROTOCOL_FROM = 7
"""JoinGroup version since which an answer without a protocol says null, not ""."""


def refused(call: Call, error: Error, member_id: str = "") -> JoinGroupResponse:
    """A JoinGroup answer that is nothing but an error."""
    null = call.version >= NULL_PROTOCOL_FROM
    return JoinGroupResponse(
        error_code=error, member_id=member_id, protocol_name=None if null else ""
    )


class Rebalance:
    """The phases of a rebalance, over the groups of one registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.timers = registry.timers
        self.settings = registry.settings

    # --------------------------------------------------------------------------------- beginning

    def begin(self, group: ClassicGroup, reason: str, now: int, out: Outcome) -> None:
        """Call all members back. Whoever waits for the assignment of the generation that was being
        made has to join again."""
        for member in group.members.values():
            if group.state is State.COMPLETING_REBALANCE:
                member.assignment = b""
            self._answer_sync(group, member, Error.REBALANCE_IN_PROGRESS, now, out)
        group.not_synced.clear()
        self.timers.cancel(due_of(Kind.SYNC, group.group_id))
        group.reason, group.began_ms = reason, now
        group.enter(State.PREPARING_REBALANCE, now)
        if group.initial:
            self._begin_initial(group, now)
        elif group.all_joined():
            self.complete_join(group, now, out)
        else:
            self._await_joins(group, now)

    def begin_or_complete(self, group: ClassicGroup, reason: str, now: int, out: Outcome) -> None:
        """Somebody has joined: begin a rebalance, or complete the one that is waiting for it."""
        if State.PREPARING_REBALANCE in TABLE[group.state].leads_to:
            self.begin(group, reason, now, out)
        else:
            self.complete_if_all_joined(group, now, out)

    def _begin_initial(self, group: ClassicGroup, now: int) -> None:
        """Give a new group's members time to arrive together."""
        delay = self.settings.initial_rebalance_delay_ms
        group.newcomer = False
        group.remaining_ms = max(group.rebalance_timeout_ms() - delay, 0)
        self.timers.at(due_of(Kind.JOIN, group.group_id), now + delay)

    def _await_joins(self, group: ClassicGroup, now: int) -> None:
        self.timers.at(due_of(Kind.JOIN, group.group_id), now + group.rebalance_timeout_ms())

    # ------------------------------------------------------------------------ end of the join phase

    def join_deadline(self, group: ClassicGroup, now: int, out: Outcome) -> None:
        """The join phase has lasted long enough, unless newcomers prolong its initial delay."""
        if group.state is not State.PREPARING_REBALANCE:
            return
        if group.initial and group.newcomer and group.remaining_ms:
            group.newcomer = False
            delay = self.settings.initial_rebalance_delay_ms
            self.timers.at(due_of(Kind.JOIN, group.group_id), now + min(delay, group.remaining_ms))
            group.remaining_ms = max(group.remaining_ms - delay, 0)
        else:
            self.complete_join(group, now, out)

    def complete_if_all_joined(self, group: ClassicGroup, now: int, out: Outcome) -> None:
        """Nobody is missing any more. An initial join phase waits for its clock all the same."""
        if group.state is State.PREPARING_REBALANCE and not group.initial and group.all_joined():
            self.complete_join(group, now, out)

    def complete_join(self, group: ClassicGroup, now: int, out: Outcome) -> None:
        """Make the next generation of those who joined, and of static members in any case; it is
        written before anybody hears of it."""
        self.timers.cancel(due_of(Kind.JOIN, group.group_id))
        for member in list(group.members.values()):
            if member.joining is None and member.instance_id is None:
                group.remove(member.member_id)
                self.registry.end_session(group, member.member_id)
        if group.members and not group.elect_leader():
            # Only static members, and none of them is back: wait for one, or for the sessions' end.
            self._await_joins(group, now)
            return
        group.generation_id += 1
        group.not_synced.clear()
        if not group.members:
            self._become_empty(group, now, out)
            return
        group.protocol_name = group.select_protocol()
        group.subscribed = subscribed_topics(group)
        group.enter(State.COMPLETING_REBALANCE, now)
        self.registry.write(group, out)
        for member in group.members.values():
            call = group.take_join(member)
            if call is not None:
                out.reply(call, self.generation_of(group, member))
            self.registry.renew(group, member, now)
            member.new = False
            group.not_synced.add(member.member_id)
        self.timers.at(due_of(Kind.SYNC, group.group_id), now + group.rebalance_timeout_ms())

    def _become_empty(self, group: ClassicGroup, now: int, out: Outcome) -> None:
        group.protocol_name = None
        group.leader = None
        group.subscribed = subscribed_topics(group)
        group.enter(State.EMPTY, now)
        self.registry.write(group, out)
        self.registry.look_at_offsets(group, now)
        self._report(group, now, out)

    def generation_of(
        self, group: ClassicGroup, member: Member, *, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """The JoinGroup answer of the current generation; the leader alone gets the members."""
        members: list[JoinGroupResponseMember] = []
        if group.leader == member.member_id:
            members = [
                JoinGroupResponseMember(
                    member_id=other.member_id,
                    group_instance_id=other.instance_id,
                    metadata=other.metadata(group.protocol_name),
                )
                for other in group.members.values()
            ]
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=members,
        )

    # ------------------------------------------------------------------------------- assignment

    def finish(
        self, group: ClassicGroup, assignments: dict[str, bytes], now: int, out: Outcome
    ) -> None:
        """The leader has assigned: the group is stable, all who wait get their part. Members that
        the leader forgot get an empty one."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.enter(State.STABLE, now)
        self.registry.write(group, out)
        for member in group.members.values():
            self._answer_sync(group, member, Error.NONE, now, out)
        self.registry.look_at_offsets(group, now)
        self._report(group, now, out)

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """The member has sent its SyncGroup."""
        group.not_synced.discard(member.member_id)
        if not group.not_synced:
            self.timers.cancel(due_of(Kind.SYNC, group.group_id))

    def sync_deadline(self, group: ClassicGroup, now: int, out: Outcome) -> None:
        """Members that got their JoinGroup answer and did not go on are out."""
        if group.not_synced:
            late = list(group.not_synced)
            for member_id in late:
                group.remove(member_id)
                self.registry.end_session(group, member_id)
            self.begin(group, f"no SyncGroup from {', '.join(late)}", now, out)

    def assignment_of(self, group: ClassicGroup, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=member.assignment,
        )

    def _answer_sync(
        self, group: ClassicGroup, member: Member, error: Error, now: int, out: Outcome
    ) -> None:
        call, member.syncing = member.syncing, None
        if call is None:
            return
        if error:
            out.reply(call, SyncGroupResponse(error_code=error))
        else:
            out.reply(call, self.assignment_of(group, member))
        self.registry.renew(group, member, now)

    # ------------------------------------------------------------------------------ a member less

    def remove(
        self, group: ClassicGroup, members: Iterable[Member], reason: str, now: int, out: Outcome
    ) -> None:
        """Members have left or their sessions ended. One whose JoinGroup is still parked is told to
        join afresh, should it be there after all."""
        for member in list(members):
            self._dismiss(group, member, out)
        match TABLE[group.state].gone:
            case Act.REBALANCE:
                self.begin(group, reason, now, out)
            case Act.COMPLETE:
                self.complete_if_all_joined(group, now, out)

    def _dismiss(self, group: ClassicGroup, member: Member, out: Outcome) -> None:
        call = group.take_join(member)
        if call is not None:
            out.reply(call, refused(call, Error.UNKNOWN_MEMBER_ID))
        call, member.syncing = member.syncing, None
        if call is not None:
            out.reply(call, SyncGroupResponse(error_code=Error.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)
        self.registry.end_session(group, member.member_id)

    def session_ended(self, group: ClassicGroup, member_id: str, now: int, out: Outcome) -> None:
        """Nothing was heard of a member, or of a pending id, for its session timeout. A member
        that is parked waits for others and keeps its place, unless it has no id yet to be heard by.
        """
        if member_id in group.pending:
            self.registry.forget_pending(group, member_id)
            self.complete_if_all_joined(group, now, out)
            self.registry.drop_if_unused(group)
            return
        member = group.members.get(member_id)
        if member is not None and (member.new or not member.parked):
            self.remove(group, [member], f"{member_id} was silent for its session", now, out)

    def take_over(self, before: Call | None, out: Outcome) -> None:
        """The member has asked again, so it no longer listens to the first request; that one is
        answered all the same: an unanswered request would block its connection."""
        if before is not None:
            out.reply(before, refused(before, Error.REBALANCE_IN_PROGRESS))

    def _report(self, group: ClassicGroup, now: int, out: Outcome) -> None:
        out.rebalances.append(
            Rebalanced(
                group.group_id,
                group.generation_id,
                group.reason,
                len(group.members),
                now - group.began_ms,
            )
        )
