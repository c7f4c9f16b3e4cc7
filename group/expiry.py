"""Offsets that go by themselves: expired ones (KIP-211), those of dead groups, of deleted topics.

Everything in slices of a thousand rows, one slice a turn of the loop: a scan of a million offsets
at once would hold up every other client for a second. Source of the conditions: Kafka's
ClassicGroup.offsetExpirationCondition, OffsetMetadataManager.cleanupExpiredOffsets.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from ottla.group import pending_offsets
from ottla.group.members import ClassicGroup
from ottla.group.outcome import GROUPS, OFFSETS, Outcome
from ottla.group.registry import Kind, Registry, due_of
from ottla.group.rows import Offset, decode_offset, group_key, offset_key, offset_partition
from ottla.group.states import State

SLICE: Final = 1000
"""Rows looked at in one go."""
FEW: Final = 16
"""Up to so many partitions are looked up one by one, more of them with a page of rows."""
PAGE_COST: Final = 200
"""What a page costs in lookups: it goes through all rows that are not in the state file yet."""
BUSY_MS: Final = 1000
"""When something of the group is on its way to the disk, look again after this long: a row that
looks expired may be about to be replaced."""


@dataclass(slots=True)
class _Look:
    """How far the look at one group's offsets has come."""

    after: bytes = b""
    nearest: int | None = None
    """The next deadline among the offsets that stay."""
    kept: bool = False


class Expiry:
    """Removal of offsets, over the groups of one registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.rows = registry.rows
        self.timers = registry.timers
        self.settings = registry.settings
        self._looks: dict[str, _Look] = {}
        self._sweeps: dict[int, bytes] = {}
        """Last key swept of each dead group."""
        self._forgotten: deque[Iterator[tuple[ClassicGroup, range]]] = deque()
        """Groups, each with partition ids whose offsets are to be removed. Not made before it is
        their turn: a thousand partitions times ten thousand groups would fill the memory."""

    # ------------------------------------------------------------------------------------ expiry

    def look(self, group: ClassicGroup, now: int, out: Outcome) -> None:
        """Remove a slice of the group's expired offsets, and the group with the last of them."""
        due = due_of(Kind.EXPIRY, group.group_id)
        if not self.rows.settled(group.group_id):
            self.timers.at(due, now + BUSY_MS)
            return
        look = self._looks.setdefault(group.group_id, _Look())
        rows, after = self._page(group.number, look.after)
        unstable = pending_offsets.partitions(group)
        for key, value in rows:
            if offset_partition(key) in unstable:
                look.kept = True  # the end of the transaction makes us look again
            else:
                self._judge(group, key, decode_offset(value), look, now, out)
        if after is not None:
            look.after = after
            self.timers.at(due, now)
            return
        del self._looks[group.group_id]
        unused = group.state is State.EMPTY and not group.pending and not group.transactions
        if not look.kept and unused:
            if look.after:
                # Something may have been committed since, before where this slice began.
                self.timers.at(due, now)
            else:
                self.registry.delete(group, now, out)
        elif look.nearest is not None:
            soonest = now + self.settings.offsets_retention_check_interval_ms
            self.registry.look_at_offsets(group, now, max(look.nearest, soonest))

    def _judge(
        self, group: ClassicGroup, key: bytes, row: Offset, look: _Look, now: int, out: Outcome
    ) -> None:
        place = self.registry.catalog.place(offset_partition(key))
        if place is None:
            out.records.append((OFFSETS, key, None))
            return
        deadline = self._deadline(group, place.topic, row)
        if deadline is not None and deadline <= self.registry.judging(now):
            out.records.append((OFFSETS, key, None))
            return
        look.kept = True
        if deadline is not None and (look.nearest is None or deadline < look.nearest):
            look.nearest = deadline

    def _deadline(self, group: ClassicGroup, topic: str, row: Offset) -> int | None:
        """When an offset expires as things are now; None: not before they change."""
        if group.subscribes(topic):
            return None
        if group.protocol_type is None:
            since = row.commit_ms
        elif group.state is State.EMPTY:
            since = group.since_ms
        elif group.state is State.STABLE and group.subscribed is not None:
            since = row.commit_ms
        else:
            return None
        return row.expire_ms if row.expire_ms >= 0 else since + self.settings.offsets_retention_ms

    # ---------------------------------------------------------------------------- dead groups

    def sweep(self, number: int, now: int, out: Outcome) -> None:
        """Remove a slice of a dead group's offsets, with the last one its row."""
        due = due_of(Kind.SWEEP, str(number))
        group_id = self.registry.dead[number]
        if not self.rows.settled(group_id):
            self.timers.at(due, now + BUSY_MS)
            return
        rows, after = self._page(number, self._sweeps.get(number, b""))
        out.records.extend((OFFSETS, key, None) for key, _ in rows)
        if after is not None:
            self._sweeps[number] = after
            self.timers.at(due, now)
        else:
            self._sweeps.pop(number, None)
            del self.registry.dead[number]
            out.records.append((GROUPS, group_key(number), None))

    def _page(self, number: int, after: bytes) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        if not number:
            return [], None
        return self.rows.page(OFFSETS, group_key(number), after, SLICE)

    # ----------------------------------------------------------------------- deleted partitions

    def forget(self, partition_ids: Iterable[int], now: int) -> None:
        """These partitions are gone for ever; their offsets, already out of reach, may go too."""
        groups = [group for group in self.registry.groups.values() if group.number]
        runs = list(_runs(sorted(partition_ids)))
        if groups and runs:
            self._forgotten.append(iter(product(groups, runs)))
            self.timers.at(due_of(Kind.FORGET, ""), now)

    def forget_slice(self, now: int, out: Outcome) -> None:
        """Remove what is committed for a slice of them. A commit still on its way is missed here
        and found by the group's next look."""
        left = SLICE
        while left > 0 and self._forgotten:
            place = next(self._forgotten[0], None)
            if place is None:
                self._forgotten.popleft()
            else:
                left -= self._forget_run(*place, out)
        if self._forgotten:
            self.timers.at(due_of(Kind.FORGET, ""), now)

    def _forget_run(self, group: ClassicGroup, run: range, out: Outcome) -> int:
        """Remove a group's offsets of these partition ids; what that cost, in rows looked at."""
        if group.transactions:
            pending_offsets.drop(group, run, out)
        if len(run) <= FEW:
            keys = [offset_key(group.number, partition_id) for partition_id in run]
            keys = [key for key in keys if self.rows.get(OFFSETS, key) is not None]
            cost = len(run)
        else:
            before = _key_before(group.number, run.start)
            rows, _ = self.rows.page(OFFSETS, group_key(group.number), before, len(run))
            last = offset_key(group.number, run[-1])
            keys = [key for key, _ in rows if key <= last]
            cost = PAGE_COST + len(rows)
        out.records.extend((OFFSETS, key, None) for key in keys)
        return cost


def _runs(partition_ids: Sequence[int]) -> Iterator[range]:
    """Ascending ids as ranges of at most SLICE: a topic's partitions mostly follow each other."""
    begin = 0
    for end in range(1, len(partition_ids) + 1):
        full = end - begin == SLICE
        if full or end == len(partition_ids) or partition_ids[end] != partition_ids[end - 1] + 1:
            yield range(partition_ids[begin], partition_ids[end - 1] + 1)
            begin = end


def _key_before(number: int, partition_id: int) -> bytes:
    """The key behind which a page begins that shall begin with this partition."""
    return offset_key(number, partition_id - 1) if partition_id else b""
