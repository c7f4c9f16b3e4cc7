"""The group machine: everything that consumer groups are, behind five functions.

    load(key, value, now)            one row of the groups table, at start
    handle(request, call, now)       a request -> what it did
    end_transaction(producer, ...)   the offsets that it was to move are moved, or not
    on_timer(now)                    deadlines that are due -> what they did
    next_deadline()                  when on_timer is next worth calling

The caller commits the records of each outcome, in the order it got them, and then sends the
replies. When a commit fails the machine is of no use any more: answer `parked()`, make a new one.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from ottla.group import long_reads
from ottla.group.admin import Admin
from ottla.group.classic import Classic
from ottla.group.expiry import Expiry
from ottla.group.members import ClassicGroup
from ottla.group.offsets import FETCH_GROUPS_FROM, Offsets
from ottla.group.outcome import Call, Catalog, Outcome, Rows, Ticket
from ottla.group.rebalance import Rebalance, refused
from ottla.group.registry import Due, Kind, Registry, due_of
from ottla.group.settings import GroupSettings
from ottla.group.states import State
from ottla.group.transactional import Transactional
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest
from ottla.wire.api.leave_group import LeaveGroupRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.api.offset_delete import OffsetDeleteRequest
from ottla.wire.api.offset_fetch import OffsetFetchRequest
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.api.txn_offset_commit import TxnOffsetCommitRequest
from ottla.wire.errors import Error
from ottla.wire.schema import Message

DEADLINES_A_TURN: Final = 100
"""At most this many deadlines are served in one call, and one slice of offsets: with a hundred
thousand sessions that end together, other clients must get their turn in between."""

_SLICED: Final = (Kind.EXPIRY, Kind.SWEEP, Kind.FORGET)


class Machine:
    """All groups of one coordinator."""

    def __init__(self, rows: Rows, catalog: Catalog, settings: GroupSettings) -> None:
        self.registry = Registry(rows, catalog, settings)
        self._rebalance = Rebalance(self.registry)
        self._expiry = Expiry(self.registry)
        self._classic = Classic(self.registry, self._rebalance)
        self._offsets = Offsets(self.registry)
        self._transactional = Transactional(self.registry)
        self._admin = Admin(self.registry)
        classic, offsets, admin = self._classic, self._offsets, self._admin
        # One argument is Any because each function takes the one request that its key names.
        self._handlers: dict[type[Message], Callable[[Any, Call, int, Outcome], None]] = {
            JoinGroupRequest: classic.join,
            SyncGroupRequest: classic.sync,
            HeartbeatRequest: lambda r, call, now, out: out.reply(
                call, HeartbeatResponse(error_code=classic.heartbeat(r, now))
            ),
            LeaveGroupRequest: classic.leave,
            OffsetCommitRequest: lambda r, call, now, out: out.reply(
                call, offsets.commit(r, call.version, now, out)
            ),
            OffsetFetchRequest: lambda r, call, _, out: out.reply(call, offsets.fetch(r, call)),
            TxnOffsetCommitRequest: self._transactional.commit,
            OffsetDeleteRequest: lambda r, call, _, out: offsets.delete(r, call, out),
            DeleteGroupsRequest: admin.delete,
        }

    # --------------------------------------------------------------------------------------- load

    def load(self, key: bytes, value: bytes, now: int) -> None:
        """Take in a row. Sessions start anew: nobody could be heard while the broker was away."""
        group = self.registry.load(key, value)
        timers = self.registry.timers
        if group is None:
            timers.at(due_of(Kind.SWEEP, str(int.from_bytes(key))), now)
            return
        group.since_ms = min(group.since_ms, now)  # else a clock was ahead
        for member in group.members.values():
            self.registry.renew(group, member, now)
        if group.state is State.COMPLETING_REBALANCE:
            group.reason, group.began_ms = "the broker was restarted", now
            timers.at(due_of(Kind.SYNC, group.group_id), now + group.rebalance_timeout_ms())
        self.registry.look_at_offsets(group, now)

    # ------------------------------------------------------------------------------------- handle

    def handle(self, request: Message, call: Call, now: int) -> Outcome:
        """Judge one request. It is answered in this outcome, or later in another one's."""
        out = Outcome(groups_of(request, call.version))
        self._handlers[type(request)](request, call, now, out)
        return out

    def long_read(self, request: Message, call: Call) -> long_reads.Reading | None:
        """The steps that answer a question whose answer may be long, see long_reads.py; None for
        any other request. Nothing changes, so what has begun may be left."""
        if isinstance(request, OffsetFetchRequest):
            if long_reads.is_long(request, call.version):
                return long_reads.fetch(self._offsets, request, call)
        elif isinstance(request, DescribeGroupsRequest):
            return long_reads.describe(self._admin, request, call)
        elif isinstance(request, ListGroupsRequest):
            return long_reads.list_groups(self._admin, request, call)
        return None

    def heartbeat(self, request: HeartbeatRequest, now: int) -> Error:
        """The answer to a heartbeat: it changes no row and answers nobody else, so there is no
        outcome to make. It is what a broker with many members does most."""
        return self._classic.heartbeat(request, now)

    def commit_offsets(
        self, request: OffsetCommitRequest, version: int, now: int
    ) -> tuple[OffsetCommitResponse, Outcome]:
        """The answer to an OffsetCommit, and an outcome with its records: it answers nobody else.
        It is what a broker with many consumers commits most."""
        out = Outcome((request.group_id,))
        return self._offsets.commit(request, version, now, out), out

    def end_transaction(
        self, producer_id: int, group_ids: Iterable[str], committed: bool, now: int
    ) -> Outcome:
        """The transaction of this producer has ended: the offsets that TxnOffsetCommit kept for it
        in these groups are committed, or go. Records only; nothing to do gives none."""
        out = Outcome(tuple(group_ids))
        self._transactional.end(producer_id, out.group_ids, committed, now, out)
        return out

    def forget_partitions(self, partition_ids: Iterable[int], now: int) -> None:
        """A topic was deleted; its partition ids are never used again."""
        self._expiry.forget(partition_ids, now)

    # ------------------------------------------------------------------------------------- timers

    def next_deadline(self) -> int | None:
        """When to call `on_timer`, at the latest; None: not before the next `handle`."""
        return self.registry.timers.next()

    def on_timer(self, now: int) -> list[Outcome]:
        """Serve deadlines up to `now`, some of them: call again while `next_deadline` is past."""
        outcomes = []
        for _ in range(DEADLINES_A_TURN):
            due = self.registry.timers.due(now)
            if due is None:
                break
            out = self._serve(due, now)
            if out.records or out.replies or out.rebalances:
                outcomes.append(out)
            if due[0] in _SLICED:
                break
        return outcomes

    def _serve(self, due: Due, now: int) -> Outcome:
        kind, group_id, member_id = due
        if kind is Kind.SWEEP:
            out = Outcome(())
            self._expiry.sweep(int(group_id), now, out)
            return out
        if kind is Kind.FORGET:
            out = Outcome(())
            self._expiry.forget_slice(now, out)
            return out
        out = Outcome((group_id,))
        group = self.registry.groups.get(group_id)
        if group is not None:
            self._serve_group(group, kind, member_id, now, out)
        return out

    def _serve_group(
        self, group: ClassicGroup, kind: Kind, member_id: str, now: int, out: Outcome
    ) -> None:
        match kind:
            case Kind.SESSION:
                self._rebalance.session_ended(group, member_id, now, out)
            case Kind.JOIN:
                self._rebalance.join_deadline(group, now, out)
            case Kind.SYNC:
                self._rebalance.sync_deadline(group, now, out)
            case Kind.EXPIRY:
                self._expiry.look(group, now, out)

    # ----------------------------------------------------------------------------------- the end

    def parked(self, error: Error) -> list[tuple[Ticket, Message]]:
        """Answers with `error` for every JoinGroup and SyncGroup that waits; nothing changes."""
        replies: list[tuple[Ticket, Message]] = []
        for group in self.registry.groups.values():
            for member in group.members.values():
                if member.joining is not None:
                    join = refused(member.joining, error, member.member_id)
                    replies.append((member.joining.ticket, join))
                if member.syncing is not None:
                    replies.append((member.syncing.ticket, SyncGroupResponse(error_code=error)))
        return replies


def groups_of(request: Message, version: int) -> tuple[str, ...]:
    """The groups that a request is about; () for one about all."""
    special = _GROUPS_OF.get(type(request))
    if special is not None:
        return special(request, version)
    return (request.group_id,)  # type: ignore[attr-defined]  # all others are about one group


def _fetched(request: OffsetFetchRequest, version: int) -> tuple[str, ...]:
    if version >= FETCH_GROUPS_FROM:
        return tuple(group.group_id for group in request.groups)
    return (request.group_id,)


_GROUPS_OF: Final[dict[type[Message], Callable[[Any, int], tuple[str, ...]]]] = {
    OffsetFetchRequest: _fetched,
    DescribeGroupsRequest: lambda request, _: tuple(request.groups),
    DeleteGroupsRequest: lambda request, _: tuple(request.groups_names),
    ListGroupsRequest: lambda request, _: (),
}
