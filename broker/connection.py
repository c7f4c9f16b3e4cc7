"""One client's connection without its socket: bytes in, requests out; answers in, bytes out.

**Order.** Kafka handles one request of a connection at a time, and clients count on it: answers
come in the order of the requests, and a request sees the effects of all before it. Reading ahead
must not be seen. So:

1. Requests start in the order in which they came, and answers leave in that order.
2. A request starts when all before it have been answered; or when it, and all before it that have
   not been answered, are `ahead` requests.
3. `ahead` are the requests that wait for nothing but the commit that holds their own effect, and
   whose answer does not depend on what an unanswered `ahead` request before it will change (Produce
   behind Produce: offsets and sequences are given out on admission). Everything else (a Fetch or
   ListOffsets behind a Produce) waits and then sees what was written; nothing passes a long poll.

**Bounds.** What one client can make us hold: a receive buffer full of small requests that have not
been started, `max_parked` requests that wait for their answers, and one answer more than
`send_high_bytes`. What all of them can: `Budget`. A connection over a bound is not read from, so
its window closes and the client waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, Protocol

from ottla.broker.limits import Budget, LargeFrame, Limits, Unsent
from ottla.wire.errors import FrameError
from ottla.wire.frame import PREFIX, frame_size
from ottla.wire.primitives import Buffer

#: A frame of this many bytes or more is received into a buffer of its own instead of being copied.
OWN_BUFFER_FROM: Final = 32 * 1024

_SIZE: Final = Struct(">i").unpack_from
_PRODUCE: Final = b"\0\0"


class Host(Protocol):
    """What a connection needs of the server it belongs to."""

    limits: Limits
    budget: Budget
    unsent: Unsent
    #: Where small frames are received; shared by all connections, used inside one callback only.
    scratch: memoryview
    #: API keys of the `ahead` requests.
    ahead: frozenset[int]
    #: This turn has taken its time: nothing further starts before the next.
    late: bool

    def handle(self, connection: Connection, frame: Buffer) -> None:
        """Handle one request, its size in front: calls the connection's `answer`, `park` or
        `close`."""

    def touched(self, connection: Connection) -> None:
        """The connection has something to do at the end of this turn: send, start, pause, close."""


class Slot:
    """The place of one unanswered request in its connection's order."""

    __slots__ = ("_buffers", "_closing", "_connection", "on_lost", "size")

    def __init__(self, connection: Connection, size: int) -> None:
        self._connection = connection
        self._buffers: Sequence[Buffer] | None = None
        self._closing: str | None = None
        #: What it counts for in the budget, in bytes.
        self.size = size
        #: Called when the connection goes before the answer came: release what the request holds.
        self.on_lost: Callable[[], None] | None = None

    @property
    def filled(self) -> bool:
        """Answered, or the connection is gone: whatever is given now goes nowhere."""
        return self._buffers is not None

    def fill(self, buffers: Sequence[Buffer]) -> None:
        """Give the answer: whole frames, or nothing for a request that gets none (acks=0)."""
        if self._buffers is None:
            self._buffers = buffers
            self.on_lost = None
            self._connection._filled(self)

    def grow(self, size: int) -> None:
        """It has become so many bytes more than were sent."""
        if self._buffers is None:
            self.size += size
            self._connection._grown(size)

    def close(self, reason: str) -> None:
        """Instead of an answer close the connection, when this request's turn comes."""
        self._closing = reason
        self.fill(())

    def _lost(self) -> None:
        if self._buffers is None:
            self._buffers = ()
            if self.on_lost is not None:
                self.on_lost()


class Connection:
    """The owner of the socket calls `get_buffer`, `buffer_updated`, `run`, `take_output`, `sending`
    and `close`; whoever handles requests calls `answer`, `park` and `close`."""

    __slots__ = (
        "_blocked",
        "_deferred",
        "_frame_size",
        "_held",
        "_host",
        "_large",
        "_out",
        "_out_bytes",
        "_partial",
        "_sending",
        "_slots",
        "_turn_left",
        "_waiting",
        "backlog",
        "client_host",
        "client_port",
        "closed",
        "listener",
        "owner",
        "touched",
    )

    def __init__(self, host: Host, listener: str = "", client_host: str = "") -> None:
        self._host = host
        self.listener = listener
        self.client_host = client_host
        self.client_port = 0
        #: Why the connection is to be closed; None while it is open.
        self.closed: str | None = None
        #: Whoever owns the socket keeps itself here, to be found by `touched`.
        self.owner: Any = None
        #: The host's mark that this connection is in its list for the end of the turn.
        self.touched = False
        self._partial = bytearray()
        self._deferred = False  # _partial begins a large frame for which there is no room yet
        self._large: LargeFrame | None = None
        #: Requests that have been read and not been started.
        self.backlog: list[Buffer] = []
        self._slots: list[Slot] = []
        self._held = 0  # bytes of the budget that the slots have taken
        self._blocked = False  # one of the slots is not `ahead`: nothing may start
        self._frame_size = 0  # of the request being handled
        self._turn_left = host.limits.max_turn
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._sending = False  # the socket has more to send than it likes
        self._waiting = False  # in the budget's list of those who wait for room

    @property
    def client(self) -> str:
        """Address and port, for people."""
        host = f"[{self.client_host}]" if ":" in self.client_host else self.client_host
        return f"{host}:{self.client_port}"

    # -- bytes in ---------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Where the next bytes go: the shared scratch, or the rest of a large frame's own
        buffer."""
        large = self._large
        return self._host.scratch if large is None else large.room()

    def buffer_updated(self, count: int) -> None:
        """`count` bytes have arrived in what `get_buffer` gave: starts what may start."""
        if self.closed is not None:
            return
        large = self._large
        if large is not None:
            if large.received(count):
                self._large_received(large)
            return
        data = self._partial  # writable: the log patches offsets into the batches it is given
        data += self._host.scratch[:count]
        self._partial = bytearray()
        self._split(data)

    def feed(self, data: Buffer) -> None:
        """All of `data` has arrived: for tests and for whoever has no buffers to lend."""
        view = memoryview(data)
        while view and self.closed is None:
            with memoryview(self.get_buffer()) as room:
                count = min(len(room), len(view))
                room[:count] = view[:count]
            self.buffer_updated(count)
            view = view[count:]

    def _split(self, data: bytearray) -> None:
        """Take the whole frames out of `data` and start what may start; keep the rest."""
        pos, end = 0, len(data)
        view = memoryview(data)
        host = self._host
        max_frame = host.limits.max_frame_bytes
        while end - pos >= PREFIX:
            (size,) = _SIZE(data, pos)
            after = pos + PREFIX + size
            if not 0 <= size <= max_frame:
                self._refuse_size(data, pos)
                return
            if after > end:
                if size >= OWN_BUFFER_FROM and end - pos >= PREFIX + len(_PRODUCE):
                    if size > host.limits.max_plain_bytes and not data.startswith(
                        _PRODUCE, pos + PREFIX
                    ):
                        self._refuse_plain(size)
                        return
                    if self._begin_large(size + PREFIX, view[pos:]):
                        return
                break
            frame = view[pos:after] if pos or after < end else data
            if self.backlog or not self._may_start(frame):
                self._put_back(frame)
            else:
                self._turn_left -= 1
                self._frame_size = size + PREFIX
                host.handle(self, frame)
            pos = after
        if pos < end:
            self._partial = data[pos:] if pos else data

    def _refuse_size(self, data: bytearray, pos: int) -> None:
        try:
            frame_size(data, pos, self._host.limits.max_frame_bytes)
        except FrameError as error:
            self.close_in_turn(str(error))

    def _refuse_plain(self, size: int) -> None:
        limit = self._host.limits.max_plain_bytes
        self.close_in_turn(
            f"a request of {size} bytes that is not a Produce; ottla.request.max.bytes is {limit}"
        )

    def _begin_large(self, size: int, start: memoryview) -> bool:
        """Give a frame a buffer of its own; False while there is no room in the budget."""
        self._deferred = self._host.budget.full
        if not self._deferred:
            self._large = LargeFrame(self._host.budget, size, start, self._touch)
        return not self._deferred

    def _large_received(self, large: LargeFrame) -> None:
        self._large = None
        large.end()
        frame = large.data
        if self.backlog or not self._may_start(frame):
            self._put_back(frame)
        else:
            self._start(frame)

    @property
    def receiving_large(self) -> bool:
        """A large frame has begun and is not complete: part of the budget is set aside for it."""
        return self._large is not None

    @property
    def wants_read(self) -> bool:
        """Whether more bytes are wanted. False closes the window: the client has to wait."""
        if self.closed is not None or self.backlog:
            return False
        budget = self._host.budget
        if not budget.full:
            return not self._deferred
        large = self._large
        if self._deferred or self._held or (large is not None and large.held_up):
            if not self._waiting:
                self._waiting = True
                budget.when_room(self._room)
            return False
        return True

    def _room(self) -> None:
        self._waiting = False
        self._host.touched(self)

    def _touch(self) -> None:
        self._host.touched(self)

    # -- requests, in order -----------------------------------------------------------------------

    def _put_back(self, frame: Buffer) -> None:
        if self.closed is None:
            self.backlog.append(frame)
            self._host.budget.take(len(frame))
            if self._turn_left <= 0 or self._host.late:
                # The last turn used all of its share and left nothing behind: nobody else would
                # bring this connection its next one.
                self._host.touched(self)

    def _may_start(self, frame: Buffer) -> bool:
        if self._turn_left <= 0 or self._host.late or self._sending or self.closed is not None:
            return False
        if self._out_bytes >= self._host.limits.send_high_bytes:
            return False
        slots = self._slots
        if not slots:
            return True
        if self._blocked or len(slots) >= self._host.limits.max_parked or len(frame) < 6:
            return False
        return frame[4] << 8 | frame[5] in self._host.ahead

    def _start(self, frame: Buffer) -> None:
        self._turn_left -= 1
        self._frame_size = len(frame)
        self._host.handle(self, frame)

    def run(self) -> None:
        """A turn of the loop is over: start what has been waiting and now may start."""
        self._turn_left = self._host.limits.max_turn
        backlog = self.backlog
        while backlog and self._may_start(backlog[0]):
            frame = backlog.pop(0)
            self._host.budget.give(len(frame))
            self._start(frame)
            backlog = self.backlog  # another one where the connection was closed
        if self._deferred and self.closed is None:
            data, self._partial = self._partial, bytearray()
            self._split(data)

    @property
    def more_to_run(self) -> bool:
        """Something is waiting that may start in the next turn."""
        if not self.backlog:
            return False
        return self._turn_left <= 0 or self._host.late or self._may_start(self.backlog[0])

    @property
    def only_waits(self) -> bool:
        """It has requests to start and nothing to send."""
        return bool(self.backlog) and not self._out

    # -- answers, in order ------------------------------------------------------------------------

    def answer(self, buffers: Sequence[Buffer]) -> None:
        """The answer to the request being handled: whole frames, or nothing where it gets none."""
        if self.closed is not None:
            return
        if self._slots:
            slot = Slot(self, 0)
            slot._buffers = buffers
            self._slots.append(slot)
        else:
            self._send(buffers)

    def park(self, *, ahead: bool) -> Slot:
        """The request being handled is answered later. Its bytes count until then; unless it is an
        `ahead` request nothing may start before its answer."""
        slot = Slot(self, self._frame_size)
        if self.closed is not None:
            slot._lost()
            return slot
        self._slots.append(slot)
        if not ahead:
            self._blocked = True
        self._held += slot.size
        self._host.budget.take(slot.size)
        return slot

    def _grown(self, size: int) -> None:
        self._held += size
        self._host.budget.take(size)

    def _filled(self, filled: Slot) -> None:
        self._held -= filled.size
        self._host.budget.give(filled.size)
        slots = self._slots
        if slots[0] is not filled:
            return
        done = 0
        for slot in slots:
            buffers = slot._buffers
            if buffers is None:
                break
            done += 1
            if buffers:
                self._send(buffers)
            if slot._closing is not None:
                self.close(slot._closing)
                return
        del slots[:done]
        if not slots:
            self._blocked = False
        self._host.touched(self)

    def _send(self, buffers: Sequence[Buffer]) -> None:
        self._out += buffers
        size = sum(map(len, buffers))
        self._out_bytes += size
        self._host.unsent.add(size)
        self._host.touched(self)

    @property
    def unanswered(self) -> int:
        """How many requests have been started and not been answered."""
        return len(self._slots)

    @property
    def idle(self) -> bool:
        """Nothing has been asked that is not answered."""
        return not self._slots and not self.backlog

    # -- bytes out, end ---------------------------------------------------------------------------

    def take_output(self) -> list[Buffer]:
        """What is to be sent now, in order."""
        out, self._out = self._out, []
        self._host.unsent.remove(self._out_bytes)
        self._out_bytes = 0
        return out

    def sending(self, much: bool) -> None:
        """The socket has more to send than it likes (True), or has caught up (False)."""
        self._sending = much
        if not much:
            self._host.touched(self)

    def close_in_turn(self, reason: str) -> None:
        """Close once everything asked before has been answered: what came last makes no sense."""
        if self._slots:
            self._frame_size = 0
            self.park(ahead=False).close(reason)
        else:
            self.close(reason)

    def close(self, reason: str) -> None:
        """Take nothing more in, forget what was not answered. What was, may still be sent."""
        if self.closed is not None:
            return
        self.closed = reason
        budget = self._host.budget
        slots, self._slots = self._slots, []
        for slot in slots:
            slot._lost()
        budget.give(self._held)
        self._held = 0
        for frame in self.backlog:
            budget.give(len(frame))
        self.backlog = []
        if self._large is not None:
            self._large.end()
            self._large = None
        self._partial = bytearray()
        self._host.touched(self)
