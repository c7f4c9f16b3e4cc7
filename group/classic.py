"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of the classic protocol.

Each handler decides by the state table (states.py) and leaves the phases to rebalance.py. Source:
Kafka's GroupMetadataManager.classicGroup*, GroupCoordinatorService for the checks in front of it.
"""

from ottla.group.members import ClassicGroup, Member, Protocols, size_of
from ottla.group.outcome import Call, Outcome
from ottla.group.rebalance import Rebalance, refused
from ottla.group.registry import Registry
from ottla.group.states import TABLE, Act, State
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest
from ottla.wire.api.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.errors import Error, KafkaError

MEMBER_ID_REQUIRED_FROM = 4
"""JoinGroup version since which an id is given out before membership (KIP-394)."""
SKIP_ASSIGNMENT_FROM = 9
"""JoinGroup version since which a leader may be told not to assign (KIP-814)."""
PROTOCOL_REQUIRED_FROM = 5
"""SyncGroup version since which protocol type and name are compulsory (KIP-559)."""
MEMBERS_FROM = 3
"""LeaveGroup version since which members are answered one by one (KIP-345)."""

MAX_OWNER = 1000
"""So many characters of a client or instance id become part of a member id, which, as any string,
must not be longer than 32767 bytes."""


class Classic:
    """The classic protocol over one registry."""

    def __init__(self, registry: Registry, rebalance: Rebalance) -> None:
        self.registry = registry
        self.rebalance = rebalance
        self.settings = registry.settings

    # ---------------------------------------------------------------------------------- JoinGroup

    def join(self, request: JoinGroupRequest, call: Call, now: int, out: Outcome) -> None:
        """Answers at once, or parks the request until the join phase is over."""
        error = self._join(request, call, now, out)
        if error is not None:
            out.reply(call, refused(call, error, request.member_id))

    def _join(self, request: JoinGroupRequest, call: Call, now: int, out: Outcome) -> Error | None:
        """An error to be answered with the request's own member id, or None: taken care of."""
        if not request.group_id:
            return Error.INVALID_GROUP_ID
        settings = self.settings
        if not (
            settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            return Error.INVALID_SESSION_TIMEOUT
        group = self.registry.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return Error.UNKNOWN_MEMBER_ID
            group = self.registry.create(request.group_id, now)
        try:
            return self._join_group(group, request, call, now, out)
        finally:
            self.registry.drop_if_unused(group)

    def _join_group(
        self, group: ClassicGroup, request: JoinGroupRequest, call: Call, now: int, out: Outcome
    ) -> Error | None:
        # First wins: two entries of one name would count as two members that know it.
        protocols: Protocols = list(
            {p.name: p.metadata for p in reversed(request.protocols)}.items()
        )[::-1]
        if not self._has_room(group, request.member_id):
            # Also the last ones to rejoin, when the limit was lowered below the group's size.
            if request.member_id in group.members:
                group.remove(request.member_id)
                self.registry.end_session(group, request.member_id)
                self.rebalance.complete_if_all_joined(group, now, out)
            out.reply(call, refused(call, Error.GROUP_MAX_SIZE_REACHED))
            return None
        if not group.supports(request.protocol_type, protocols):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        size = size_of(protocols)
        if size > self.settings.max_member_bytes:
            return Error.INVALID_REQUEST
        before = group.members.get(request.member_id)
        grown = size - (size_of(before.protocols) if before is not None else 0)
        if grown > 0 and group.bytes + grown > self.settings.max_group_bytes:
            return Error.GROUP_MAX_SIZE_REACHED
        if not request.member_id:
            self._join_new(group, request, protocols, call, now, out)
            return None
        if request.member_id in group.pending:
            if request.group_instance_id is not None:
                return Error.UNKNOWN_MEMBER_ID  # ids are only given out to dynamic members
            self._add(group, request, request.member_id, protocols, call, now, out)
            return None
        return self._rejoin(group, request, protocols, call, now, out)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether group.max.size admits this JoinGroup; one that is a member already may stay."""
        limit = self.settings.max_size
        member = group.members.get(member_id)
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING_REBALANCE:
            return (member is not None and member.joining is not None) or group.joined < limit
        return member is not None or len(group.members) < limit

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        call: Call,
        now: int,
        out: Outcome,
    ) -> None:
        """A JoinGroup without member id: a static member (back again), or a dynamic one that gets
        its id, and from v4 on has to come back with it."""
        instance_id = request.group_instance_id
        owner = call.client_id if instance_id is None else instance_id
        member_id = f"{owner[:MAX_OWNER]}-{call.unique}"
        if instance_id is not None and instance_id in group.static:
            self._replace_static(group, instance_id, request, member_id, protocols, call, now, out)
        elif instance_id is None and call.version >= MEMBER_ID_REQUIRED_FROM:
            self.registry.add_pending(group, member_id, now + request.session_timeout_ms)
            out.reply(call, refused(call, Error.MEMBER_ID_REQUIRED, member_id))
            self._bound_pending(now, out)
        else:
            self._add(group, request, member_id, protocols, call, now, out)

    def _bound_pending(self, now: int, out: Outcome) -> None:
        """Forget the oldest id that was given out when there are too many. Others of its group may
        have waited for nobody else, so this outcome is about that group too."""
        found = self.registry.pending_over_limit()
        if found is not None:
            group, member_id = found
            if group.group_id not in out.group_ids:
                out.group_ids += (group.group_id,)
            self.rebalance.session_ended(group, member_id, now, out)

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        member_id: str,
        protocols: Protocols,
        call: Call,
        now: int,
        out: Outcome,
    ) -> None:
        """A new member: parked, and a rebalance for it."""
        self.registry.forget_pending(group, member_id)
        member = Member(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=call.client_id,
            client_host=call.client_host,
            rebalance_timeout_ms=_rebalance_timeout_ms(request, call),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols,
            new=True,
        )
        group.newcomer = group.state is State.PREPARING_REBALANCE and group.initial
        group.add(member, request.protocol_type)
        group.park_join(member, call)
        self.registry.await_first_answer(group, member, now)
        reason = _reason(request, f"{member_id} joins")
        self.rebalance.begin_or_complete(group, reason, now, out)

    def _rejoin(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: Protocols,
        call: Call,
        now: int,
        out: Outcome,
    ) -> Error | None:
        """JoinGroup of somebody who says to be a member."""
        try:
            member = group.check(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return error.error
        act = TABLE[group.state].rejoin
        if isinstance(act, Error):
            return act
        leads = group.leader == member.member_id
        if (
            act is Act.PARK
            or member.protocols != protocols
            or (act is Act.REPEAT_FOLLOWER and leads)
        ):
            self._update(group, member, request, protocols, call, out)
            reason = _reason(request, f"{member.member_id} rejoins")
            self.rebalance.begin_or_complete(group, reason, now, out)
        else:
            out.reply(call, self.rebalance.generation_of(group, member))
        return None

    def _update(
        self,
        group: ClassicGroup,
        member: Member,
        request: JoinGroupRequest,
        protocols: Protocols,
        call: Call,
        out: Outcome,
    ) -> None:
        """Take what a member says of itself now, and park its request."""
        group.replace_protocols(member, protocols)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request, call)
        member.session_timeout_ms = request.session_timeout_ms
        self.rebalance.take_over(group.park_join(member, call), out)

    def _replace_static(
        self,
        group: ClassicGroup,
        instance_id: str,
        request: JoinGroupRequest,
        member_id: str,
        protocols: Protocols,
        call: Call,
        now: int,
        out: Outcome,
    ) -> None:
        """A static member has been restarted (KIP-345): it takes the place of its former self,
        with a new id so that the old one is fenced; in a Stable group nobody else notices."""
        old_id = group.static[instance_id]
        old_leader = group.leader
        self._fence(group, group.members[old_id], out)
        self.registry.end_session(group, old_id)
        member = group.rename(instance_id, member_id)
        self.registry.renew(group, member, now)
        self._update(group, member, request, protocols, call, out)
        reason = _reason(request, f"static member {instance_id} is back as {member_id}")
        if group.state is State.STABLE and group.select_protocol() == group.protocol_name:
            self._keep_generation(group, member, old_leader, call, out)
        elif group.state is State.PREPARING_REBALANCE:
            self.rebalance.complete_if_all_joined(group, now, out)
        else:
            # The leader may have been given the old id already and would assign to nobody.
            self.rebalance.begin(group, reason, now, out)

    def _keep_generation(
        self, group: ClassicGroup, member: Member, old_leader: str | None, call: Call, out: Outcome
    ) -> None:
        """Answer a restarted static member with the generation as it is.

        A leader must not assign anew then, because nobody else would come for it. From v9 on it is
        told so; before, it is told that its former self leads.
        """
        group.take_join(member)
        self.registry.write(group, out)
        leads = group.leader == member.member_id
        if call.version >= SKIP_ASSIGNMENT_FROM:
            response = self.rebalance.generation_of(group, member, skip_assignment=leads)
        else:
            response = self.rebalance.generation_of(group, member)
            response.members = []
            response.leader = old_leader or ""
        out.reply(call, response)

    def _fence(self, group: ClassicGroup, member: Member, out: Outcome) -> None:
        """What the former incarnation has parked is answered: there is a younger one."""
        fenced = Error.FENCED_INSTANCE_ID
        call = group.take_join(member)
        if call is not None:
            out.reply(call, refused(call, fenced, member.member_id))
        call, member.syncing = member.syncing, None
        if call is not None:
            out.reply(call, SyncGroupResponse(error_code=fenced))

    # ---------------------------------------------------------------------------------- SyncGroup

    def sync(self, request: SyncGroupRequest, call: Call, now: int, out: Outcome) -> None:
        """Answers at once, or parks the request until the leader has assigned."""
        error = self._sync(request, call, now, out)
        if error is not None:
            out.reply(call, SyncGroupResponse(error_code=error))

    def _sync(self, request: SyncGroupRequest, call: Call, now: int, out: Outcome) -> Error | None:
        named = request.protocol_type is not None and request.protocol_name is not None
        if call.version >= PROTOCOL_REQUIRED_FROM and not named:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if not request.group_id:
            return Error.INVALID_GROUP_ID
        group = self.registry.groups.get(request.group_id)
        if group is None or group.state is State.EMPTY:
            return Error.UNKNOWN_MEMBER_ID
        try:
            member = group.check(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return error.error
        if request.generation_id != group.generation_id:
            return Error.ILLEGAL_GENERATION
        if request.protocol_type not in (None, group.protocol_type):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name not in (None, group.protocol_name):
            return Error.INCONSISTENT_GROUP_PROTOCOL
        act = TABLE[group.state].sync
        if isinstance(act, Error):
            return act
        if sum(len(a.assignment) for a in request.assignments) > self.settings.max_group_bytes:
            return Error.INVALID_REQUEST
        self.rebalance.synced(group, member)
        if act is Act.STORED:
            self.registry.renew(group, member, now)
            out.reply(call, self.rebalance.assignment_of(group, member))
            return None
        before, member.syncing = member.syncing, call
        if before is not None:
            out.reply(before, SyncGroupResponse(error_code=Error.REBALANCE_IN_PROGRESS))
        if group.leader == member.member_id:
            assignments = {a.member_id: a.assignment for a in request.assignments}
            self.rebalance.finish(group, assignments, now, out)
        return None

    # ---------------------------------------------------------------------------------- Heartbeat

    def heartbeat(self, request: HeartbeatRequest, now: int) -> Error:
        """Whether the member is up to date; NONE and REBALANCE_IN_PROGRESS renew its session."""
        if not request.group_id:
            return Error.INVALID_GROUP_ID
        group = self.registry.groups.get(request.group_id)
        if group is None:
            return Error.UNKNOWN_MEMBER_ID
        try:
            member = group.check(request.member_id, request.group_instance_id)
        except KafkaError as error:
            return error.error
        if request.generation_id != group.generation_id:
            return Error.ILLEGAL_GENERATION
        self.registry.renew(group, member, now)
        return TABLE[group.state].heartbeat

    # --------------------------------------------------------------------------------- LeaveGroup

    def leave(self, request: LeaveGroupRequest, call: Call, now: int, out: Outcome) -> None:
        """Members leave, each with an answer of its own; before v3 there is one, its answer is at
        the top."""
        if not request.group_id:
            out.reply(call, LeaveGroupResponse(error_code=Error.INVALID_GROUP_ID))
            return
        identities = request.members
        if call.version < MEMBERS_FROM:
            identities = [MemberIdentity(member_id=request.member_id)]
        group = self.registry.groups.get(request.group_id)
        gone: list[Member] = []
        answers = [self._leave(group, identity, gone) for identity in identities]
        if group is not None:
            self._after_leaving(group, gone, identities, now, out)
        if call.version < MEMBERS_FROM:
            response = LeaveGroupResponse(error_code=answers[0].error_code)
        else:
            response = LeaveGroupResponse(members=answers)
        out.reply(call, response)

    def _after_leaving(
        self,
        group: ClassicGroup,
        gone: list[Member],
        identities: list[MemberIdentity],
        now: int,
        out: Outcome,
    ) -> None:
        """A rebalance without those who left. An id that had not joined was perhaps the last one
        that the others waited for; it disturbs nobody otherwise."""
        if gone:
            names = ", ".join(member.member_id for member in gone)
            words = identities[0].reason
            why = f"{names} left" + (f" ({words})" if words else "")
            self.rebalance.remove(group, gone, why, now, out)
        else:
            self.rebalance.complete_if_all_joined(group, now, out)
        self.registry.drop_if_unused(group)

    def _leave(
        self, group: ClassicGroup | None, identity: MemberIdentity, gone: list[Member]
    ) -> MemberResponse:
        """Who is meant: a member by its id, a static one by its instance id alone (that is how an
        administrator removes it), or an id that has not joined yet."""
        answer = MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id
        )
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if group is not None and member_id in group.pending:
            self.registry.forget_pending(group, member_id)
            return answer
        try:
            if group is None:
                raise KafkaError(Error.UNKNOWN_MEMBER_ID)
            if not member_id and instance_id is not None:
                member_id = group.static.get(instance_id, "")
            member = group.check(member_id, instance_id)
            if member in gone:
                raise KafkaError(Error.UNKNOWN_MEMBER_ID)
            gone.append(member)
        except KafkaError as error:
            answer.error_code = error.error
        return answer


def _rebalance_timeout_ms(request: JoinGroupRequest, call: Call) -> int:
    """Version 0 has one timeout for both."""
    return request.session_timeout_ms if call.version == 0 else request.rebalance_timeout_ms


def _reason(request: JoinGroupRequest, what: str) -> str:
    """Why a rebalance begins, with the client's own words (v8+) where it gives any."""
    return f"{what} ({request.reason})" if request.reason else what
