"""The sockets. Nothing else in the broker knows that there are any, or what an event loop is.

A turn of the loop is: read whatever clients sent and handle it, then, once, start what had been
waiting, send the answers that are ready, and hand everything that was admitted to the committing
thread. What one turn admits becomes one commit; a little of it waits for more (Server._commit).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import Final, cast

from ottla.broker.connection import Connection
from ottla.broker.context import Broker
from ottla.broker.dispatch import Dispatcher
from ottla.broker.limits import Budget, Limits
from ottla.broker.listeners import Listener, bound_socket
from ottla.broker.machine import descriptors_for_connections
from ottla.log.errors import LogError
from ottla.log.options import Table
from ottla.log.producer_ids import KEY as NEXT_PRODUCER_ID
from ottla.log.store import Committed
from ottla.wire.primitives import Buffer

_logger = logging.getLogger(__name__)

#: One receive buffer for all connections: it is used inside one callback only, so a thousand idle
#: connections need no more than one.
SCRATCH_BYTES: Final = 64 * 1024
#: Answers up to this size are joined before they are sent: copying them is cheaper than handing the
#: system a list.
JOIN_BYTES: Final = 16 * 1024
#: From so many bytes on (fifty small requests) a commit's own cost is little beside theirs.
COMMIT_BYTES: Final = 8 * 1024
#: Less waits for company: the sockets are looked at again while that brings more, at most so often.
COMMIT_LOOKS: Final = 4
#: How long requests are handled in one turn; those that have come and not begun wait for the next.
TURN_MS: Final = 5.0
#: How often the store is told the time.
TICK_MS: Final = 100
#: A large request that has not arrived completely after so long is given up if others wait for
#: room.
STALLED_MS: Final = 30_000
#: How long a stop waits for answers to be sent before it cuts the connections.
STOP_S: Final = 5.0


class Peer(asyncio.BufferedProtocol):
    """One socket and the connection behind it."""

    __slots__ = (
        "_handed",
        "_server",
        "active_ms",
        "connection",
        "counted",
        "get_buffer",
        "large_since_ms",
        "reading",
        "transport",
        "unsent",
    )

    def __init__(self, server: Server, listener: str) -> None:
        self._server = server
        self.connection = Connection(server, listener)
        self.connection.owner = self
        self.get_buffer = self.connection.get_buffer  # type: ignore[method-assign]  # one call less
        self.transport: asyncio.Transport
        self.reading = True
        #: Counted in the server's numbers; a connection over their limits never is.
        self.counted = False
        #: When bytes last moved, by the monotonic clock.
        self.active_ms = 0.0
        #: Since when a large frame has been on its way in.
        self.large_since_ms: float | None = None
        #: Bytes given to the transport since it last had nothing to send.
        self._handed = 0
        #: Of those, what counts as unsent: all, since it became too much; 0 while it is not.
        self.unsent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peername = transport.get_extra_info("peername")
        if peername:
            self.connection.client_host, self.connection.client_port = peername[:2]
        self._server.opened(self)

    def buffer_updated(self, nbytes: int) -> None:
        """The requests in what came are handled now, and committed with this turn."""
        connection = self.connection
        connection.buffer_updated(nbytes)
        server = self._server
        self.active_ms = server.now_ms
        if connection.receiving_large:
            if self.large_since_ms is None:
                self.large_since_ms = server.now_ms
        else:
            self.large_since_ms = None
        if not connection.wants_read:
            self.read(False)
        server.schedule()

    def eof_received(self) -> bool:
        return False  # a client that has said all it has to say does not wait for answers either

    def pause_writing(self) -> None:
        # Not what is left of it: the loop holds on to all of a write until its end is sent.
        self.unsent = self._handed
        self._server.unsent.add(self.unsent)
        self.connection.sending(True)

    def resume_writing(self) -> None:
        self._server.unsent.remove(self.unsent)
        self.unsent = 0
        self.connection.sending(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.unsent.remove(self.unsent)
        self.unsent = 0
        self._server.lost(self)

    def send(self, out: list[Buffer]) -> None:
        transport = self.transport
        size = sum(map(len, out))
        self._handed = self._handed + size if transport.get_write_buffer_size() else size
        if len(out) == 1:
            transport.write(out[0])
        elif size <= JOIN_BYTES:
            transport.write(b"".join(out))
        else:
            # asyncio's writelines in Python 3.12 and 3.13 never calls pause_writing; write does.
            transport.writelines(out[:-1])
            transport.write(out[-1])

    def read(self, wanted: bool) -> None:
        if wanted != self.reading:
            self.reading = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()


class Server:
    """All listeners and connections of one broker; the host of its connections."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        config = broker.config
        self.broker = broker
        self.limits = Limits(
            max_frame_bytes=config.socket_request_max_bytes,
            max_plain_bytes=config.ottla_request_max_bytes,
            max_parked=config.ottla_connection_parked_max_requests,
            send_high_bytes=config.ottla_connection_send_max_bytes,
        )
        queued = config.queued_max_request_bytes
        self.budget = Budget(queued if queued > 0 else sys.maxsize)
        self.unsent = broker.unsent
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        dispatcher = Dispatcher(broker)
        self.ahead = dispatcher.ahead
        self._handle = dispatcher.handle
        self._monotonic_ms = broker.clock.monotonic_ms
        #: When this turn has taken its time; 0 before its first request.
        self._late_ms = 0.0
        self.late = False
        self.complaints = broker.complaints
        #: Every open connection.
        self.peers: set[Peer] = set()
        self.per_host: Counter[str] = Counter()
        self._descriptors = descriptors_for_connections()
        self._loop = loop
        self._servers: list[asyncio.Server] = []
        self._dirty: list[Connection] = []
        self._scheduled = False
        #: Bytes that were admitted when the sockets were last looked at for more, and how often
        #: that was since the last commit.
        self._gathered = 0
        self._looks = 0
        #: The monotonic time of the last tick: near enough for who has been idle.
        self.now_ms = broker.clock.monotonic_ms()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0
        self._ticker: asyncio.TimerHandle | None = None
        self._next_sweep_ms = 0.0
        #: Whoever waits for a condition, asked at the end of every turn (stop).
        self._awaited: tuple[Callable[[], bool], asyncio.Future[None]] | None = None
        broker.timers.on_nearer(self._arm)
        broker.store.listen(self._committed)
        broker.store.on_reset(self._forgotten)
        broker.topics.on_change(self._topics_changed)
        self._topics = len(broker.topics)

    # -- listening --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open every listener; a port of 0 becomes a free one. Raises OSError where that fails."""
        config = self.broker.config
        for listener in config.listeners:
            server = await self._listen(listener, config.socket_listen_backlog_size)
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1]
            self.broker.listeners[listener.name] = listener.opened(port)
        self._tick()

    async def _listen(self, listener: Listener, backlog: int) -> asyncio.Server:
        config = self.broker.config
        try:
            infos = await self._loop.getaddrinfo(
                listener.host or None,
                listener.port,
                type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE,
            )
        except (OSError, UnicodeError) as error:
            words = getattr(error, "strerror", None) or "not the name of a host"
            raise OSError(errno.EADDRNOTAVAIL, f"listeners: {listener}: {words}") from None
        listening = bound_socket(
            listener,
            infos,
            config.socket_receive_buffer_bytes,
            config.socket_send_buffer_bytes,
        )
        return await self._loop.create_server(
            lambda: Peer(self, listener.name), sock=listening, backlog=backlog
        )

    # -- connections ------------------------------------------------------------------------------

    def opened(self, peer: Peer) -> None:
        """A client has connected; it stays unless there are too many."""
        host = peer.connection.client_host
        config = self.broker.config
        reason = None
        if len(self.peers) >= config.max_connections:
            reason = f"max.connections={config.max_connections} are open"
        elif self.per_host[host] >= config.max_connections_per_ip:
            reason = f"max.connections.per.ip={config.max_connections_per_ip} are open"
        elif peer.transport.get_extra_info("socket").fileno() >= self._descriptors:
            reason = (
                f"{self._descriptors} file descriptors are in use, the rest is kept for the log:"
                " raise the limit of open files (ulimit -n, LimitNOFILE) or lower"
                " connections.max.idle.ms"
            )
        if reason is not None:
            peer.connection.closed = reason
            self.complaints.about(host, peer.connection.client, reason)
            peer.transport.abort()
            return
        peer.counted = True
        self.peers.add(peer)
        self.per_host[host] += 1
        peer.active_ms = self.now_ms
        peer.transport.set_write_buffer_limits(high=self.limits.send_high_bytes)

    def lost(self, peer: Peer) -> None:
        """The socket is gone."""
        peer.connection.close("the client has gone")
        if peer.counted:
            self.peers.discard(peer)
            host = peer.connection.client_host
            self.per_host[host] -= 1
            if not self.per_host[host]:
                del self.per_host[host]
        self.schedule()

    # -- the host of connections (connection.py) --------------------------------------------------

    def handle(self, connection: Connection, frame: Buffer) -> None:
        """Handle one request of a connection."""
        if not self._late_ms:
            self._late_ms = self._monotonic_ms() + TURN_MS
        self._handle(connection, frame)
        if self._monotonic_ms() >= self._late_ms:
            self.late = True

    def touched(self, connection: Connection) -> None:
        if not connection.touched:
            connection.touched = True
            self._dirty.append(connection)
            self.schedule()

    # -- the end of a turn ------------------------------------------------------------------------

    def schedule(self) -> None:
        """Something was admitted or answered: end the turn when everything that can be read is."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = self.late = False
        self._late_ms = 0.0
        dirty, self._dirty = self._dirty, []
        waiting: list[Connection] = []
        for connection in dirty:
            if self.late and connection.only_waits:
                waiting.append(connection)
                continue
            try:
                self._settle(connection)
            except Exception:
                # One connection's trouble must not keep the others from their answers.
                _logger.exception("a connection to %s failed", connection.client_host)
                connection.touched = False
                connection.close("it failed")
                connection.owner.transport.abort()
        if waiting:  # they come first in the next turn, before those that had a part of this one
            self._dirty[:0] = waiting
            self.schedule()
        self._commit()
        if self.budget.waited_for and self.budget.wake_some():
            self.schedule()
        if self._awaited is not None:
            condition, future = self._awaited
            if not future.done() and condition():
                future.set_result(None)

    def _commit(self) -> None:
        """Hand over what was admitted, unless more is about to come along.

        A commit costs as much as six small requests, whether it holds one or a hundred. Clients
        that have just been answered are about to ask again, so: answers first, one more look at
        the sockets, and while a commit is on its way the next one gathers.
        """
        store = self.broker.store
        size = store.gathered_bytes
        if not size:
            return
        if size < COMMIT_BYTES:
            if store.committing:
                return  # its end is another turn
            if size != self._gathered and self._looks < COMMIT_LOOKS:
                self._gathered = size
                self._looks += 1
                self.schedule()
                return
        self._gathered = self._looks = 0
        store.flush()

    def _settle(self, connection: Connection) -> None:
        """Start, send, pause and close what this turn has left to do for a connection."""
        connection.run()
        out = connection.take_output()
        peer: Peer = connection.owner
        if out and not peer.transport.is_closing():
            peer.send(out)
            peer.active_ms = self.now_ms
        connection.touched = False
        if connection.closed is not None:
            self._close(peer)
            return
        if connection.backlog and connection.more_to_run:
            self.touched(connection)
        wanted = connection.wants_read and not self.broker.stopping
        if wanted != peer.reading:
            peer.read(wanted)

    def _close(self, peer: Peer) -> None:
        """Close a socket from our side: what has been answered is still sent."""
        transport = peer.transport
        if not transport.is_closing():
            connection = peer.connection
            assert connection.closed is not None
            self.complaints.about(connection.client_host, connection.client, connection.closed)
            transport.close()

    # -- what the log tells ------------------------------------------------------------------------

    def _committed(self, committed: Committed) -> None:
        """A commit is true, and who waited for it has been answered: wake the long polls."""
        if committed.partitions:
            self.broker.waiters.moved(committed.partitions)
        self.schedule()  # whoever was called may have admitted something

    def _forgotten(self, error: LogError) -> None:
        """What was admitted is not true and never will be."""
        broker = self.broker
        broker.producer_ids.reset(broker.store.get(Table.CLUSTER, NEXT_PRODUCER_ID))
        self.schedule()

    def _topics_changed(self) -> None:
        """A fetch that waits for a deleted topic is answered at once."""
        before, self._topics = self._topics, len(self.broker.topics)
        if self._topics < before:
            self.broker.waiters.gone(self._exists)

    def _exists(self, number: int) -> bool:
        try:
            self.broker.store.partition(number)
        except KeyError:
            return False
        return True

    # -- time -------------------------------------------------------------------------------------

    def _arm(self, deadline_ms: float) -> None:
        """The nearest deadline of the broker's timers has come nearer."""
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        delay_ms = deadline_ms - self.broker.clock.monotonic_ms()
        self._timer_ms = deadline_ms
        # Loops count in whole milliseconds: rounded down, it would find nothing due yet.
        self._timer = self._loop.call_later(max(1.0, delay_ms + 1) / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        timers = self.broker.timers
        try:
            if timers.run_due():
                self.schedule()
        except Exception:
            _logger.exception("a timer failed")
            self.schedule()
        deadline_ms = timers.next_deadline_ms
        if deadline_ms is not None:
            self._arm(deadline_ms)

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_MS / 1000, self._tick)
        clock = self.broker.clock
        self.broker.store.tick(clock.wall_ms(), clock.steady_ms())
        self.now_ms = now_ms = clock.monotonic_ms()
        if now_ms >= self._next_sweep_ms:
            idle_ms = self.broker.config.connections_max_idle_ms
            self._next_sweep_ms = now_ms + min(max(idle_ms / 10, TICK_MS), 10_000)
            self._sweep(now_ms, idle_ms)
        self.schedule()

    def _sweep(self, now_ms: float, idle_ms: int) -> None:
        """Close connections that have been silent for too long, or keep others from being read."""
        for peer in list(self.peers):
            connection = peer.connection
            since = peer.large_since_ms
            if 0 <= idle_ms < now_ms - peer.active_ms and not connection.unanswered:
                connection.close("idle")
                peer.transport.abort()  # a client that does not read would never be done
            elif since is not None and self.budget.full and now_ms - since > STALLED_MS:
                connection.close("a large request did not arrive while others waited for room")
                self._close(peer)

    # -- the end ----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop accepting, answer what was accepted, then close every connection. The store is the
        caller's to close."""
        for server in self._servers:
            server.close()
        broker = self.broker
        broker.stopping = True
        for peer in self.peers:
            peer.read(False)
        for fn in broker.on_stop:
            fn()
        broker.waiters.wake_all()
        try:
            await asyncio.wait_for(self._until(lambda: all(map(_answered, self.peers))), STOP_S)
            for peer in list(self.peers):
                peer.connection.close("the broker stops")
                peer.transport.close()
            await asyncio.wait_for(self._until(lambda: not self.peers), STOP_S)
        except TimeoutError:
            _logger.warning("%d connections were cut: their clients do not read", len(self.peers))
        for peer in list(self.peers):
            peer.connection.close("the broker stops")
            peer.transport.abort()
        for handle in (self._ticker, self._timer):
            if handle is not None:
                handle.cancel()
        await asyncio.sleep(0)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is asked at the end of every turn, ten times a second
        at least."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._awaited = (condition, future)
        self.schedule()
        await future


def _answered(peer: Peer) -> bool:
    return peer.connection.idle and not peer.transport.get_write_buffer_size()
