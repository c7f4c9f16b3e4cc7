"""What a handler gets: the broker, the request it answers, and the ways to answer.

A handler file holds one API:

    API = Api(request=XRequest, response=XResponse, handle=handle, on_error=on_error)

`handle(ctx, request)` gives the response, or parks (`ctx.park()`, later `ctx.reply(response)`), or
raises KafkaError to have `on_error(request, error)` build the response. It runs on the event loop,
so it takes under a millisecond. What may take longer, because a request may name thousands of
things, is a generator: `handle` yields after each small step and returns what it would have
returned (slices.py). What waits for a disk goes to a thread and is parked meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.broker.answers import Kept
from ottla.broker.api_names import api_name
from ottla.broker.complaints import Complaints
from ottla.broker.connection import Connection, Slot
from ottla.broker.coordinator import Coordinator
from ottla.broker.deeds import Deeds
from ottla.broker.features import Features
from ottla.broker.limits import Unsent
from ottla.broker.loggers import shown
from ottla.broker.slices import Slices
from ottla.broker.transactions import Transactions
from ottla.log.tickets import Ticket
from ottla.wire.errors import KafkaError
from ottla.wire.header import RequestHeader
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.broker.clock import Clock
    from ottla.broker.config import ServerConfig
    from ottla.broker.dispatch import Route
    from ottla.broker.listeners import Listener
    from ottla.broker.metadata import Topics
    from ottla.broker.sessions import FetchSessions
    from ottla.broker.timers import Timers
    from ottla.broker.waiters import Waiters
    from ottla.log.producer_ids import ProducerIds
    from ottla.log.store import Store


class CloseConnection(Exception):
    """Raised by a handler whose request can only be answered by closing its connection."""


@dataclass(slots=True, kw_only=True)
class Api:
    """One API: its messages and what answers them."""

    request: type[Message]
    response: type[Message]
    #: handle(ctx, request) -> response | Parked, or a generator that returns one of them. Any: each
    #: handler takes its own request type.
    handle: Callable[[Context, Any], Any]
    #: on_error(request, error) -> a response whose error fields, wherever they are, say `error`.
    on_error: Callable[[Any, KafkaError], Message]
    #: The first version announced, where that is not the first one served (see produce).
    announced_from: int | None = None
    #: It may be handled before earlier such requests of its connection have been answered: it waits
    #: for nothing but its own commit, and its answer does not depend on theirs (connection.py).
    ahead: bool = False


@dataclass(slots=True, kw_only=True)
class Broker:
    """Everything a handler may need, put together once at start (server.py)."""

    node_id: int
    cluster_id: str
    config: ServerConfig
    store: Store
    topics: Topics
    clock: Clock
    timers: Timers
    waiters: Waiters
    sessions: FetchSessions
    producer_ids: ProducerIds
    #: By name, as they were opened (a port of 0 has become the real one).
    listeners: dict[str, Listener] = field(default_factory=dict)
    #: The APIs served, by key (dispatch.py); ApiVersions is derived from it.
    apis: dict[int, Api] = field(default_factory=dict)
    #: Work that takes long, in slices.
    slices: Slices = field(init=False)
    #: What clients are slow to take (server.py).
    unsent: Unsent = field(init=False)
    #: Large answers about topics and settings.
    kept: Kept = field(init=False)
    #: Lines about what clients do wrong, and about what they change.
    complaints: Complaints = field(init=False)
    deeds: Deeds = field(init=False)
    #: Levels in force of the cluster's features; made of the rest.
    features: Features = field(init=False)
    #: Consumer groups; made of the rest.
    coordinator: Coordinator = field(init=False)
    #: Transactional ids; made of the rest.
    transactions: Transactions = field(init=False)
    #: The broker is stopping: nothing is parked for long any more, what is there is answered.
    stopping: bool = False
    #: Called when the broker begins to stop: answer what is parked.
    on_stop: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unsent = Unsent(self.config.ottla_send_max_bytes)
        self.slices = Slices(self.clock, self.timers, self.unsent)
        self.kept = Kept(self.slices)
        self.topics.on_change(self.kept.clear)
        self.complaints = Complaints(self.clock)
        self.deeds = Deeds(self.clock)
        self.features = Features(self.store)
        self.coordinator = Coordinator(self)
        self.transactions = Transactions(self)


class Context:
    """One request: what it came with, and the place of its answer."""

    __slots__ = ("_held", "_route", "_slot", "broker", "connection", "header", "request")

    def __init__(
        self,
        route: Route,
        broker: Broker,
        connection: Connection,
        header: RequestHeader,
        request: Message,
    ) -> None:
        self._route = route
        self._slot: Slot | None = None
        #: The place of the answer while a long request is read or handled, step by step.
        self._held: Slot | None = None
        self.broker = broker
        self.connection = connection
        self.header = header
        self.request = request

    @property
    def listener(self) -> Listener:
        """The listener the request came in by: its advertised address is what the client is
        told."""
        return self.broker.listeners[self.connection.listener]

    @property
    def client_host(self) -> str:
        """The client's address, as DescribeGroups shows it."""
        return self.connection.client_host

    @property
    def client(self) -> str:
        """The client as the log names it."""
        name = self.header.client_id
        return f"{self.connection.client} (client id {'none' if name is None else shown(name)})"

    @property
    def api(self) -> str:
        """The API's name."""
        return api_name(self.header.api_key)

    @property
    def now_ms(self) -> int:
        """The time of day in milliseconds."""
        return self.broker.clock.wall_ms()

    # -- answering later --------------------------------------------------------------------------

    def park(self) -> Parked:
        """Answer later: the handler returns what this gives, and somebody calls `reply`, `fail`,
        `no_reply` or `close` on it. The first call counts, further ones are ignored."""
        if self._slot is None:
            self._slot = self._held or self.connection.park(ahead=self._route.ahead)
        return self

    @property
    def is_long(self) -> bool:
        """It takes more than one turn of the loop to read or to handle."""
        return self._held is not None

    def hold(self) -> Slot:
        """Keep the place of the answer while the handler's steps are taken. Unlike behind a parked
        `ahead` request nothing starts behind it: it has not admitted all of its effects."""
        if self._held is None:
            self._held = self._slot or self.connection.park(ahead=False)
        return self._held

    @property
    def parked(self) -> bool:
        return self._slot is not None

    @property
    def over(self) -> bool:
        """Answered, or the connection is gone: there is nobody to answer any more."""
        return self._slot is not None and self._slot.filled

    def reply(self, response: Message) -> None:
        slot = self._slot
        assert slot is not None, "park() comes before the answer"
        if not slot.filled:
            self._route.reply(self, slot, response)

    def fail(self, error: Exception) -> None:
        """Answer as if the handler had raised `error`."""
        slot = self._parked_slot()
        if not slot.filled:
            self._route.fail(self, slot, error)

    def no_reply(self) -> None:
        """The request is done and gets no answer (Produce with acks=0)."""
        self._parked_slot().fill(())

    def close(self, reason: str) -> None:
        """Close the connection instead of answering, once all before it is answered."""
        self._parked_slot().close(reason)

    def on_lost(self, fn: Callable[[], None]) -> None:
        """Call `fn` if the connection goes before the answer comes."""
        slot = self._parked_slot()
        if slot.filled:
            fn()
        else:
            slot.on_lost = fn

    def after(self, ticket: Ticket, make_response: Callable[[Ticket], Message]) -> Parked:
        """Answer with `make_response(ticket)` when what was admitted is true. A failed commit is
        answered KAFKA_STORAGE_ERROR through on_error."""
        self.park()

        def settled(ticket: Ticket) -> None:
            if ticket.error is not None:
                self.fail(ticket.error)
                return
            try:
                response = make_response(ticket)
            except Exception as error:
                self.fail(error)
            else:
                self.reply(response)

        ticket.then(settled)
        return self

    def _parked_slot(self) -> Slot:
        assert self._slot is not None, "park() comes before the answer"
        return self._slot


#: A context whose request is to be answered later: what `park` gives and a handler returns.
Parked: TypeAlias = Context
