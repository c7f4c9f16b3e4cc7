"""The shell around the group machine: commits what it decides, then sends what it answers.

    request or deadline -> Machine -> Outcome -> store.change -> (committed) -> replies

Whatever an answer tells is on disk before it leaves. A JoinGroup or SyncGroup answer waits for all
that was admitted for its group, also when the request itself changed nothing: it may repeat what
an earlier one decided. So do OffsetFetch and DescribeGroups, which then see it. Heartbeats wait for
nothing: a member asks about a generation that it has been told of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

from ottla.broker.answers import Encoded
from ottla.broker.complaints import Allowance
from ottla.broker.loggers import shown
from ottla.broker.operations import GROUP_OPERATIONS
from ottla.broker.slices import answer_in_slices
from ottla.group.long_reads import Reading
from ottla.group.machine import Machine, groups_of
from ottla.group.outcome import GROUPS, OFFSETS, PENDING_OFFSETS, Call, Outcome, Place
from ottla.group.settings import GroupSettings
from ottla.log.errors import LogError
from ottla.log.options import Change, Table
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.api.offset_fetch import OffsetFetchRequest
from ottla.wire.api.sync_group import SyncGroupRequest
from ottla.wire.errors import Error, KafkaError
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.broker.config import ServerConfig
    from ottla.broker.context import Broker, Context
    from ottla.broker.metadata import Topics
    from ottla.broker.timers import Timer
    from ottla.log.store import Store
    from ottla.log.tickets import Ticket

_logger = logging.getLogger(__name__)

#: Lines in the log about generations, of one group and of all: at once, and the ms until one more.
_GROUP_LINES: Final = (20, 10_000)
_ALL_LINES: Final = (1000, 1000)

TABLES: Final = {
    GROUPS: Table.GROUPS,
    OFFSETS: Table.OFFSETS,
    PENDING_OFFSETS: Table.PENDING_OFFSETS,
}
LOAD_PAGE: Final = 500
"""Groups read in one go at start. The first page is read before the broker listens, so only a
broker with more of them ever answers COORDINATOR_LOAD_IN_PROGRESS."""
REFUSED_MS: Final = 1000
"""While the log refuses writes (a full disk) deadlines wait and are tried again after so long."""

_READS: Final = (OffsetFetchRequest, DescribeGroupsRequest)
_HARMLESS: Final = (ListGroupsRequest, *_READS)
"""What is answered while the log refuses writes."""
_PARKING: Final = (JoinGroupRequest, SyncGroupRequest)
_FAILED: Final = KafkaError(Error.COORDINATOR_NOT_AVAILABLE)
"""What a request is told whose commit failed, or that waits while another's fails: clients look
for the coordinator again and ask again."""
_FETCH_FAILED: Final = KafkaError(Error.NOT_COORDINATOR)
"""The same for OffsetFetch: Kafka's own consumers before 3.9 take the other for fatal there."""


class Coordinator:
    """All groups of this node."""

    def __init__(self, broker: Broker) -> None:
        """Reads the groups, or the first of them: the rest follows in the turns to come."""
        self._store = broker.store
        self._timers = broker.timers
        self._clock = broker.clock
        self._broker = broker
        self._lines = Allowance(broker.clock, _GROUP_LINES, _ALL_LINES)
        self._settings = settings_of(broker.config)
        self._rows = CommittedRows(broker.store)
        self._catalog = TopicCatalog(broker.topics)
        self._timer: Timer | None = None
        self._armed_ms = 0
        self._begin_anew()
        self._load_page()
        broker.store.on_reset(self._reset)
        broker.topics.on_delete(self._forget_partitions)
        broker.on_stop.append(self._stop)

    # -- requests ---------------------------------------------------------------------------------

    def handle(self, ctx: Context, request: Message) -> Message | Context:
        """What any group API's handler gives back. Raises KafkaError while groups are loaded or
        cannot be changed."""
        self._check_ready(request)
        if isinstance(request, _HARMLESS):
            return self._read(ctx, request)
        call = Call(
            ctx,
            ctx.header.api_version,
            ctx.header.client_id or "",
            f"/{ctx.client_host}",
            str(uuid4()) if isinstance(request, JoinGroupRequest) else "",
            GROUP_OPERATIONS,
        )
        out = self._judge(request, call)
        at_once = not out.records and not self._unsettled(out.group_ids)
        self._arm()
        if at_once and len(out.replies) == 1 and out.replies[0][0] is ctx:
            return out.replies[0][1]
        ctx.park()
        if at_once:
            self._release(out)
        else:
            self._commit(out)
        return ctx

    def commit_offsets(
        self, ctx: Context, request: OffsetCommitRequest
    ) -> OffsetCommitResponse | Context:
        """The same for an OffsetCommit, which answers nobody else: half as much to go through."""
        self._check_ready(request)
        try:
            response, out = self._machine.commit_offsets(
                request, ctx.header.api_version, self._now()
            )
        except Exception:
            self._reset(None)  # as in `_judge`
            raise
        self._arm()
        if not out.records and self._rows.settled(request.group_id):
            return response
        ctx.park()
        out.replies.append((ctx, response))
        self._commit(out)
        return ctx

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """A heartbeat waits for nothing and is answered while the log refuses writes too. Raises
        KafkaError while groups are loaded."""
        if self._after is not None:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        error = self._machine.heartbeat(request, self._now())
        self._arm()
        return HeartbeatResponse(error_code=error)

    def end_transaction(
        self, producer_id: int, group_ids: Iterable[str], committed: bool
    ) -> tuple[list[Change], Callable[[Ticket | None], None]]:
        """What a producer's transaction was to move in these groups is moved, or forgotten.

        Gives the changes, for the commit that holds the transaction's markers, and a function to
        be called in the same turn with that commit's ticket: reads of these groups wait for it.
        With None when the changes could not be admitted: the groups are then read anew. Raises
        KafkaError COORDINATOR_LOAD_IN_PROGRESS while groups are loaded.
        """
        if self._loading:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        out = self._machine.end_transaction(producer_id, group_ids, committed, self._now())
        self._arm()

        def admitted(ticket: Ticket | None) -> None:
            if ticket is None:
                self._reset(None)
            elif out.records:
                self._rows.admitted(out.group_ids, ticket)
                ticket.then(partial(self._committed, out))

        return _changes(out), admitted

    def _judge(self, request: Message, call: Call) -> Outcome:
        try:
            return self._machine.handle(request, call, self._now())
        except Exception:
            if not isinstance(request, _HARMLESS):
                self._reset(None)  # a bug: what it left half done must not be built upon
            raise

    def _check_ready(self, request: Message) -> None:
        if self._after is not None:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        if self._store.refusing is not None and not isinstance(request, _HARMLESS):
            raise _FAILED
        if self._broker.stopping and isinstance(request, _PARKING):
            raise _FAILED

    # -- questions --------------------------------------------------------------------------------

    def _read(self, ctx: Context, request: Message) -> Message | Context:
        """Answer what changes nothing, behind what was admitted before it (read your writes)."""
        named = groups_of(request, ctx.header.api_version)
        if isinstance(request, _READS) and self._unsettled(named):
            ctx.park()
            self._store.settled().then(partial(self._read_later, ctx, request))
            return ctx
        return self._read_now(ctx, request)

    def _read_later(self, ctx: Context, request: Message, ticket: Ticket) -> None:
        """What was admitted before a read is committed, or never will be."""
        if ticket.error is not None or self._loading:
            ctx.fail(_read_failed(request))
            return
        try:
            response = self._read_now(ctx, request)
        except Exception as error:
            ctx.fail(error)
        else:
            if response is not ctx:
                ctx.reply(cast(Message, response))

    def _read_now(self, ctx: Context, request: Message) -> Message | Context:
        """Where the answer is long, others get a turn in between (slices.py)."""
        call = Call(ctx, ctx.header.api_version, group_operations=GROUP_OPERATIONS)
        long = self._machine.long_read(request, call)
        if long is None:
            return self._judge(request, call).replies[0][1]
        answer: list[Encoded] = []
        steps = self._steps(request, long, answer)
        return answer_in_slices(ctx, steps, lambda: self._told(ctx, request, answer[0]))

    def _steps(self, request: Message, long: Reading, answer: list[Encoded]) -> Iterator[None]:
        """The steps of a long answer, as long as its machine is the one that counts."""
        machine = self._machine
        while machine is self._machine:
            try:
                yield next(long)
            except StopIteration as end:
                answer.append(Encoded(end.value))
                return
        raise _read_failed(request)

    def _told(self, ctx: Context, request: Message, response: Message) -> Message | Context:
        """A long answer is complete. What it tells of members may have been decided since it was
        asked for, and is not on disk then."""
        named = groups_of(request, ctx.header.api_version)
        if not isinstance(request, DescribeGroupsRequest) or not self._unsettled(named):
            return response

        def settled(ticket: Ticket) -> None:
            if ticket.error is not None:
                ctx.fail(_read_failed(request))
            else:
                ctx.reply(response)

        self._store.settled().then(settled)
        return ctx.park()

    def _unsettled(self, group_ids: Sequence[str]) -> bool:
        return not all(map(self._rows.settled, group_ids))

    # -- outcomes ---------------------------------------------------------------------------------

    def _commit(self, out: Outcome) -> None:
        """Put the outcome's rows into the next commit, its replies behind it."""
        if not out.records:
            self._store.settled().then(partial(self._committed, out))
            return
        try:
            ticket = self._store.change(_changes(out))
        except KafkaError as error:
            # Too late for `_check_ready`: the machine has moved on, the log has not.
            _logger.error("groups could not be written: %s", error)
            self._fail(out)
            self._reset(None)
            return
        self._rows.admitted(out.group_ids, ticket)
        ticket.then(partial(self._committed, out))

    def _committed(self, out: Outcome, ticket: Ticket) -> None:
        self._rows.committed(out.group_ids, ticket)
        if ticket.error is not None:
            self._fail(out)
        else:
            self._release(out)

    def _release(self, out: Outcome) -> None:
        _reply(out.replies)
        for done in out.rebalances:
            more = self._lines.take(done.group_id)
            if more is not None:
                _logger.info(
                    "group %s is at generation %d with %d member%s after %d ms: %s%s",
                    shown(done.group_id),
                    done.generation_id,
                    done.members,
                    "" if done.members == 1 else "s",
                    done.took_ms,
                    shown(done.reason),
                    more,
                )

    def _fail(self, out: Outcome) -> None:
        replies: Sequence[tuple[Any, Message]] = out.replies
        for ctx, _ in replies:
            ctx.fail(_FAILED)

    # -- time -------------------------------------------------------------------------------------

    def _now(self) -> int:
        """What deadlines go by: a clock that is corrected must not end sessions. The machine is
        told how far the time of day is ahead, for what it writes to the disk."""
        now = self._clock.steady_ms()
        self._machine.registry.ahead_ms = self._clock.wall_ms() - now
        return now

    def _arm(self) -> None:
        """One timer, for the machine's nearest deadline."""
        deadline = self._machine.next_deadline()
        if deadline is None or self._loading:
            return
        if self._timer is not None:
            if self._armed_ms <= deadline:
                return
            self._timer.cancel()
        self._set_timer(deadline)

    def _set_timer(self, deadline: int) -> None:
        self._armed_ms = deadline
        self._timer = self._timers.after(max(0, deadline - self._now()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._loading:
            return
        if self._store.refusing is not None:
            self._set_timer(self._now() + REFUSED_MS)
            return
        try:
            outcomes = self._machine.on_timer(self._now())
        except Exception:
            # Damaged rows, or a bug: what it left half done must not be built upon.
            _logger.exception("a deadline of a group could not be served")
            self._reset(None)
            return
        for out in outcomes:
            if out.records or self._unsettled(out.group_ids):
                self._commit(out)
            else:
                self._release(out)
        self._arm()

    # -- topics -----------------------------------------------------------------------------------

    def _forget_partitions(self, partition_ids: Sequence[int]) -> None:
        """A topic has been deleted: its offsets, which nobody is shown any more, go in slices.

        Should the broker stop before they are gone, each group's next look at its offsets finds
        the rest.
        """
        if not self._loading:
            self._machine.forget_partitions(partition_ids, self._now())
            self._arm()

    # -- start and failure ------------------------------------------------------------------------

    def _begin_anew(self) -> None:
        """A machine that has yet to be loaded."""
        self._machine = Machine(self._rows, self._catalog, self._settings)
        self._after: bytes | None = b""

    @property
    def _loading(self) -> bool:
        return self._after is not None

    def _load_page(self) -> None:
        """Take in the next of what is committed. Raises LogError."""
        if self._after is None:
            return
        rows, self._after = self._store.page(Table.GROUPS, b"", self._after, LOAD_PAGE)
        now = self._now()
        for key, value in rows:
            self._machine.load(key, value, now)
        if self._after is not None:
            self._timers.after(0, partial(self._go_on_loading, self._machine))
        else:
            self._arm()

    def _go_on_loading(self, machine: Machine) -> None:
        if machine is not self._machine:
            return  # begun anew meanwhile
        try:
            self._load_page()
        except LogError:
            _logger.exception("the groups cannot be read; trying again")
            self._timers.after(REFUSED_MS, partial(self._go_on_loading, machine))

    def _reset(self, error: LogError | None) -> None:
        """What was decided and not committed never was: a commit failed, or (None) something went
        wrong in here. Then commits are perhaps on their way that will be true, and a machine that
        knew nothing of them would give their generations out once more: they are waited for."""
        parked = self._machine.parked(Error.COORDINATOR_NOT_AVAILABLE)
        self._rows.reset()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._begin_anew()
        machine = self._machine
        if error is None:
            self._store.settled().then(lambda _: self._go_on_loading(machine))
        else:
            self._go_on_loading(machine)
        _reply(parked)

    def _stop(self) -> None:
        """The broker stops: nobody else is going to join, so nobody is kept waiting."""
        _reply(self._machine.parked(Error.COORDINATOR_NOT_AVAILABLE))


def _read_failed(request: Message) -> KafkaError:
    return _FETCH_FAILED if isinstance(request, OffsetFetchRequest) else _FAILED


def _changes(out: Outcome) -> list[Change]:
    return [Change(TABLES[table], key, value) for table, key, value in out.records]


def _reply(replies: Sequence[tuple[Any, Message]]) -> None:
    """The machine hands back the tickets that it was given: contexts."""
    for ctx, response in replies:
        ctx.reply(response)


class CommittedRows:
    """The machine's view of the log: committed rows, and which groups have others under way."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: dict[str, Ticket] = {}

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._store.get(TABLES[table], key)

    def scan(self, table: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._store.scan(TABLES[table], prefix)

    def page(
        self, table: str, prefix: bytes, after: bytes, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        return self._store.page(TABLES[table], prefix, after, limit)

    def settled(self, group_id: str) -> bool:
        return group_id not in self._pending

    def admitted(self, group_ids: Sequence[str], ticket: Ticket) -> None:
        for group_id in group_ids:
            self._pending[group_id] = ticket

    def committed(self, group_ids: Sequence[str], ticket: Ticket) -> None:
        for group_id in group_ids:
            if self._pending.get(group_id) is ticket:
                del self._pending[group_id]

    def reset(self) -> None:
        self._pending.clear()


class TopicCatalog:
    """The machine's view of topics: the committed ones."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def by_name(self, topic: str) -> tuple[bytes, Sequence[int]] | None:
        found = self._topics.get(topic)
        return None if found is None else (found.topic_id, found.partitions)

    def by_id(self, topic_id: bytes) -> tuple[str, Sequence[int]] | None:
        found = self._topics.by_id(topic_id)
        return None if found is None else (found.name, found.partitions)

    def place(self, partition_id: int) -> Place | None:
        return self._topics.place(partition_id)


def settings_of(config: ServerConfig) -> GroupSettings:
    """What the broker's settings say about groups."""
    return GroupSettings(
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        max_size=config.group_max_size,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
    )
