"""All groups of a coordinator, their numbers, their deadlines and their rows."""

from collections import OrderedDict
from enum import IntEnum, auto
from typing import Final, TypeAlias

from ottla.group import pending_offsets
from ottla.group.members import ClassicGroup, Member
from ottla.group.outcome import GROUPS, Catalog, Outcome, Rows
from ottla.group.rows import decode_group, encode_group, group_key
from ottla.group.settings import GroupSettings
from ottla.group.states import State
from ottla.group.timers import Timers


class Kind(IntEnum):
    """What a deadline is about."""

    SESSION = auto()
    """A member or a pending id has not been heard of."""
    JOIN = auto()
    """The join phase is over, or its initial delay."""
    SYNC = auto()
    """Members that got their JoinGroup answer should have sent SyncGroup."""
    EXPIRY = auto()
    """Offsets of a group may have expired."""
    SWEEP = auto()
    """Offsets of a dead group can go (`group_id` is its number), a slice at a time."""
    FORGET = auto()
    """Offsets of deleted partitions can go, a slice at a time."""


Due: TypeAlias = tuple[Kind, str, str]
"""Key of a deadline: what it is about, group id (or number), member id (or nothing). A plain tuple,
because each heartbeat makes one."""


# For the two that each heartbeat and each commit make: looking up an enum's member is not for free.
_SESSION: Final = Kind.SESSION
_EXPIRY: Final = Kind.EXPIRY


def due_of(kind: Kind, group_id: str, member_id: str = "") -> Due:
    return kind, group_id, member_id


class Registry:
    """Groups by id. A group that has never been written (`number` 0) is gone with its last pending
    id or member; one with a row lives until it is deleted or expires."""

    def __init__(self, rows: Rows, catalog: Catalog, settings: GroupSettings) -> None:
        self.rows = rows
        self.catalog = catalog
        self.settings = settings
        self.groups: dict[str, ClassicGroup] = {}
        self.timers: Timers[Due] = Timers()
        self.pending: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Group and member id of all pending ids, the oldest first. A plain dictionary would look
        for its first entry among all that have been deleted."""
        self.dead: dict[int, str] = {}
        """Number and id of deleted groups whose offsets are still being swept."""
        self.last_number = 0
        self.last_order = 0
        """Of the youngest pending offset (members.PendingOffset)."""
        self.ahead_ms = 0
        """How far the time of day is ahead of `now` (negative: behind it), as the caller says."""

    def create(self, group_id: str, now: int) -> ClassicGroup:
        group = self.groups[group_id] = ClassicGroup(group_id, since_ms=now)
        return group

    def stamp(self, now: int) -> int:
        """`now` for the disk. What is judged by it expires by the time of day, after another start
        perhaps: it bears the later of both times and is judged by the earlier (`judging`), so that
        a clock that was wrong for a while makes nothing old."""
        return now + self.ahead_ms if self.ahead_ms > 0 else now

    def judging(self, now: int) -> int:
        """`now` for what bears a `stamp`."""
        return now + min(self.ahead_ms, 0)

    def load(self, key: bytes, value: bytes) -> ClassicGroup | None:
        """Take in one row of the groups table; gives the group unless it is dead."""
        number = int.from_bytes(key)
        group = decode_group(number, value)
        self.last_number = max(self.last_number, number)
        if group.state is State.DEAD:
            self.dead[number] = group.group_id
            return None
        self.groups[group.group_id] = group
        self.last_order = max(self.last_order, pending_offsets.load(group, self.rows))
        return group

    def write(self, group: ClassicGroup, out: Outcome) -> None:
        """The group's row, as it is now."""
        out.records.append(
            (GROUPS, group_key(self.number(group)), encode_group(group, self.stamp(group.since_ms)))
        )

    def number(self, group: ClassicGroup) -> int:
        """The number that stands for the group's id in keys, given out with its first row."""
        if not group.number:
            self.last_number += 1
            group.number = self.last_number
        return group.number

    def delete(self, group: ClassicGroup, now: int, out: Outcome) -> None:
        """End a group that has no members. Its offsets are out of reach at once, with its row, and
        swept in slices later. What open transactions would have committed goes now."""
        self._forget(group)
        pending_offsets.drop(group, pending_offsets.partitions(group), out)
        if group.number:
            group.enter(State.DEAD, now)
            self.write(group, out)
            self.dead[group.number] = group.group_id
            self.timers.at(due_of(Kind.SWEEP, str(group.number)), now)

    def drop_if_unused(self, group: ClassicGroup) -> None:
        """Forget a group that nobody has joined and nobody is about to."""
        if not (group.number or group.members or group.pending):
            self._forget(group)

    def _forget(self, group: ClassicGroup) -> None:
        for member_id in list(group.pending):
            self.forget_pending(group, member_id)
        for kind in (Kind.JOIN, Kind.SYNC, Kind.EXPIRY):
            self.timers.cancel(due_of(kind, group.group_id))
        self.groups.pop(group.group_id, None)

    # ------------------------------------------------------------------------------ pending ids

    def add_pending(self, group: ClassicGroup, member_id: str, deadline: int) -> None:
        """Remember an id that was given out."""
        group.pending[member_id] = None
        self.pending[group.group_id, member_id] = None
        self.timers.at(due_of(Kind.SESSION, group.group_id, member_id), deadline)

    def pending_over_limit(self) -> tuple[ClassicGroup, str] | None:
        """The oldest id that was given out, with its group, when too many are remembered.

        Its owner is told UNKNOWN_MEMBER_ID when it comes, and asks for another one. Without the
        bound, asking for ids and never joining would fill the memory.
        """
        if len(self.pending) <= self.settings.max_pending_members:
            return None
        group_id, member_id = next(iter(self.pending))
        return self.groups[group_id], member_id

    def forget_pending(self, group: ClassicGroup, member_id: str) -> None:
        group.pending.pop(member_id, None)
        self.pending.pop((group.group_id, member_id), None)
        self.timers.cancel(due_of(Kind.SESSION, group.group_id, member_id))

    # ------------------------------------------------------------------------------ expiry

    def look_at_offsets(self, group: ClassicGroup, now: int, deadline: int | None = None) -> None:
        """Look for expired offsets at `deadline` (default: when the check interval has passed),
        unless that is going to happen earlier anyway."""
        due = (_EXPIRY, group.group_id, "")
        if deadline is None:
            deadline = now + self.settings.offsets_retention_check_interval_ms
        planned = self.timers.deadline(due)
        if planned is None or deadline < planned:
            self.timers.at(due, deadline)

    # ---------------------------------------------------------------------------------- sessions

    def renew(self, group: ClassicGroup, member: Member, now: int) -> None:
        """The member has been heard of: its session starts again."""
        due = (_SESSION, group.group_id, member.member_id)
        self.timers.at(due, now + member.session_timeout_ms)

    def await_first_answer(self, group: ClassicGroup, member: Member, now: int) -> None:
        """A new member waits for its first JoinGroup answer, without an id to be heard with."""
        due = due_of(Kind.SESSION, group.group_id, member.member_id)
        self.timers.at(due, now + self.settings.new_member_join_timeout_ms)

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        self.timers.cancel(due_of(Kind.SESSION, group.group_id, member_id))
