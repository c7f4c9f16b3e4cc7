"""Group members on raw sockets, driven by one thread: a group without the clients' own timers.

Real members learn of a rebalance with their next heartbeat, three seconds apart, so a stock client
shows its timer and not the coordinator. These members ask as soon as asking can help.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from enum import Enum, auto

from bench import frames
from bench.frames import ProtocolError
from bench.raw import Address

SESSION_MS = 45_000
REBALANCE_MS = 60_000


class Phase(Enum):
    """What a member waits for."""

    FIRST_JOIN = auto()
    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    LEAVE = auto()
    STABLE = auto()
    GONE = auto()


class Member:
    """One member: a connection, an id, a generation, and the answer it waits for."""

    def __init__(self, address: Address, group_id: str) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1
        self.phase = Phase.GONE
        self._rest = b""

    def join(self) -> None:
        self.phase = Phase.JOIN if self.member_id else Phase.FIRST_JOIN
        self._send(frames.join_group(self.group_id, self.member_id, SESSION_MS, REBALANCE_MS))

    def heartbeat(self) -> None:
        self.phase = Phase.HEARTBEAT
        self._send(frames.heartbeat(self.group_id, self.generation, self.member_id))

    def leave(self) -> None:
        self.phase = Phase.LEAVE
        self._send(frames.leave_group(self.group_id, self.member_id))

    def _send(self, frame: bytes) -> None:
        self.socket.sendall(frame)

    def receive(self) -> None:
        """Read what came; act on a whole answer."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError(f"the broker closed the connection of {self.member_id}")
        data = self._rest + data
        size = int.from_bytes(data[:4], "big") if len(data) >= 4 else -1
        if size < 0 or len(data) < 4 + size:
            self._rest = data
            return
        self._rest = data[4 + size :]
        STEPS[self.phase](self, data[4 : 4 + size])

    def on_first_join(self, payload: bytes) -> None:
        answer = frames.joined(payload)
        if answer.error != frames.MEMBER_ID_REQUIRED:
            raise ProtocolError("JoinGroup without a member id", answer.error)
        self.member_id = answer.member_id
        self.join()

    def on_join(self, payload: bytes) -> None:
        answer = frames.joined(payload)
        if answer.error == frames.REBALANCE_IN_PROGRESS:
            self.join()
            return
        if answer.error:
            raise ProtocolError("JoinGroup", answer.error)
        self.generation = answer.generation
        self.phase = Phase.SYNC
        members = answer.members if answer.leader == self.member_id else []
        self._send(frames.sync_group(self.group_id, self.generation, self.member_id, members))

    def on_sync(self, payload: bytes) -> None:
        self._stable_or_again("SyncGroup", frames.top_error(payload))

    def on_heartbeat(self, payload: bytes) -> None:
        self._stable_or_again("Heartbeat", frames.top_error(payload))

    def _stable_or_again(self, what: str, error: int) -> None:
        if error == frames.REBALANCE_IN_PROGRESS:
            self.join()
        elif error:
            raise ProtocolError(what, error)
        else:
            self.phase = Phase.STABLE

    def on_leave(self, payload: bytes) -> None:
        if error := frames.top_error(payload):
            raise ProtocolError("LeaveGroup", error)
        self.phase = Phase.GONE


STEPS: dict[Phase, Callable[[Member, bytes], None]] = {
    Phase.FIRST_JOIN: Member.on_first_join,
    Phase.JOIN: Member.on_join,
    Phase.SYNC: Member.on_sync,
    Phase.HEARTBEAT: Member.on_heartbeat,
    Phase.LEAVE: Member.on_leave,
}


class Group:
    """Members of one group. `form` and `lose_one` return seconds and raise TimeoutError."""

    def __init__(self, address: Address, group_id: str) -> None:
        self.address = address
        self.group_id = group_id
        self.members: list[Member] = []
        self._poll = select.epoll()
        self._by_handle: dict[int, Member] = {}

    def _add(self, count: int) -> list[Member]:
        added = [Member(self.address, self.group_id) for _ in range(count)]
        for member in added:
            self._by_handle[member.socket.fileno()] = member
            self._poll.register(member.socket.fileno(), select.EPOLLIN)
        self.members += added
        return added

    def form(self, count: int, seconds: float = 120) -> float:
        """`count` members join at once; done when all hold the assignment of one generation."""
        added = self._add(count)
        begin = time.perf_counter()
        for member in added:
            member.join()
        self._settle(begin + seconds)
        return time.perf_counter() - begin

    def lose_one(self, seconds: float = 120) -> float:
        """One member leaves; done when all others hold the assignment of the next generation."""
        leaver = self.members.pop()
        begin = time.perf_counter()
        leaver.leave()
        while leaver.phase is not Phase.GONE:
            self._turn(0.05)
        self._poll.unregister(leaver.socket.fileno())
        del self._by_handle[leaver.socket.fileno()]
        leaver.socket.close()
        for member in self.members:
            member.heartbeat()
        self._settle(begin + seconds)
        return time.perf_counter() - begin

    def _settle(self, end: float) -> None:
        """Run until every member is stable in one generation; the stable ones ask now and then."""
        patience = max(0.02, len(self.members) / 5_000)
        asked = time.perf_counter()
        while not self._together():
            self._turn(patience)
            now = time.perf_counter()
            if now > end:
                raise TimeoutError(f"{self.group_id} did not settle: {self._phases()}")
            if now - asked > patience:
                asked = now
                for member in self.members:
                    if member.phase is Phase.STABLE:
                        member.heartbeat()

    def _together(self) -> bool:
        first = self.members[0].generation
        return all(m.phase is Phase.STABLE and m.generation == first for m in self.members)

    def _phases(self) -> str:
        names = [member.phase.name for member in self.members]
        return ", ".join(f"{name} {names.count(name)}" for name in sorted(set(names)))

    def _turn(self, timeout: float) -> None:
        for handle, _ in self._poll.poll(timeout):
            self._by_handle[handle].receive()

    def close(self) -> None:
        for member in self.members:
            member.socket.close()
        self._poll.close()
