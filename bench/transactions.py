"""Producers that do nothing but transactions, on raw sockets in one thread.

They speak the new protocol (KIP-890): a transaction is one Produce v12 and one EndTxn v5, whose
answer brings the epoch for the next. When the broker is still busy with the last transaction
(CONCURRENT_TRANSACTIONS) they ask again after RETRY_SECONDS, sooner than any stock client (20 ms).
"""

from __future__ import annotations

import heapq
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from crc32c import crc32c

from bench import frames, raw
from bench.raw import Address

INIT_PRODUCER_ID, END_TXN = 22, 26
FIND_COORDINATOR_VERSION, INIT_VERSION, PRODUCE_VERSION, END_VERSION = 3, 4, 12, 5
TRANSACTION_COORDINATOR = b"\1"
CONCURRENT_TRANSACTIONS = 51
RETRY_SECONDS = 0.002
TRANSACTIONAL = 0x10


def request(api_key: int, version: int, body: bytes) -> bytes:
    """A whole frame: size, request header v2, body."""
    head = struct.pack(">hhih", api_key, version, 0, len(frames.CLIENT_ID))
    payload = head + frames.CLIENT_ID + frames.NO_TAGS + body
    return frames.int32(len(payload)) + payload


def find_coordinator(transactional_id: str) -> bytes:
    body = frames.string(transactional_id) + TRANSACTION_COORDINATOR + frames.NO_TAGS
    return request(frames.FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body)


def init_producer_id(transactional_id: str) -> bytes:
    body = frames.string(transactional_id) + struct.pack(">iqh", 60_000, -1, -1) + frames.NO_TAGS
    return request(INIT_PRODUCER_ID, INIT_VERSION, body)


def end_txn(transactional_id: str, producer_id: int, epoch: int, commit: bool) -> bytes:
    body = frames.string(transactional_id) + struct.pack(">qh?", producer_id, epoch, commit)
    return request(END_TXN, END_VERSION, body + frames.NO_TAGS)


def identity(payload: bytes) -> tuple[int, int, int]:
    """Error, producer id and epoch: the answers of InitProducerId and EndTxn v5 are alike."""
    reader = frames.answer(payload)
    reader.int32()
    return reader.int16(), reader.int64(), reader.int16()


class _Batch:
    """The same records again and again, under one producer's ids of the time."""

    def __init__(self, values: list[bytes]) -> None:
        plain = frames.batch(values)
        self.size, self.records = plain[8:12], plain[57:]
        self.last, self.times = plain[23:27], plain[27:43]

    def build(self, producer_id: int, epoch: int) -> bytes:
        """Sequences begin at 0: each transaction has an epoch of its own."""
        ids = struct.pack(">qhi", producer_id, epoch, 0)
        flags = struct.pack(">h", TRANSACTIONAL)
        checked = flags + self.last + self.times + ids + self.records
        head = struct.pack(">q", 0) + self.size + struct.pack(">ibI", -1, 2, crc32c(checked))
        return head + checked


class _Producer:
    """One transactional id on a connection of its own, a transaction after the other."""

    def __init__(
        self, address: Address, name: str, topic: str, partition: int, values: list[bytes],
        commit: bool,
    ) -> None:  # fmt: skip
        self.name, self.topic, self.partition, self.commit = name, topic, partition, commit
        self.batch = _Batch(values)
        with raw.connect(address) as connection:
            raw.until_good(connection, find_coordinator(name), frames.top_error)
            raw.until_good(connection, init_producer_id(name), self._named)
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.ends = False
        self.frame = b""
        self.began = 0.0

    def _named(self, payload: bytes) -> int:
        error, producer_id, epoch = identity(payload)
        if not error:
            self.producer_id, self.epoch = producer_id, epoch
        return error

    def begin(self) -> None:
        self.began = time.perf_counter()
        self.ends = False
        partition = frames.int32(self.partition) + frames.blob(
            self.batch.build(self.producer_id, self.epoch)
        )
        topics = frames.array(
            [frames.string(self.topic) + frames.array([partition + b"\0"]) + frames.NO_TAGS]
        )
        body = frames.string(self.name) + struct.pack(">hi", -1, 30_000) + topics + frames.NO_TAGS
        self.send(request(frames.PRODUCE, PRODUCE_VERSION, body))

    def send(self, frame: bytes) -> None:
        self.frame = frame
        self.socket.sendall(frame)

    def receive(self) -> bytes | None:
        """The next whole answer."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the broker closed a connection under load")
        data = self.rest + data
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            self.rest = data
            return None
        self.rest = b""
        return data[4:]

    def advance(self, payload: bytes) -> int:
        """Take an answer and go on; the error code, of which only the busy broker's is left."""
        error = self._named(payload) if self.ends else max(frames.produce_errors(payload))
        if error == CONCURRENT_TRANSACTIONS:
            return error
        if error:
            raise frames.ProtocolError("EndTxn" if self.ends else "transactional Produce", error)
        if not self.ends:
            self.ends = True
            self.send(end_txn(self.name, self.producer_id, self.epoch, self.commit))
        else:
            self.ends = False
        return error


@dataclass
class Result:
    """Whole transactions between the end of the warm-up and the end of the run."""

    seconds: float = 0.0
    cpu: float = 0.0
    latencies: list[float] = field(default_factory=list)


class Load:
    """`producers` of them, to partition `n % partitions` each; one transaction at a time each."""

    def __init__(
        self,
        address: Address,
        topic: str,
        producers: int,
        partitions: int,
        values: list[bytes],
        *,
        commit: bool = True,
    ) -> None:
        self.poll = select.epoll()
        self.producers: dict[int, _Producer] = {}
        for number in range(producers):
            one = _Producer(
                address, f"{topic}-{number}", topic, number % partitions, values, commit
            )
            self.producers[one.socket.fileno()] = one
            self.poll.register(one.socket.fileno(), select.EPOLLIN)
        self._later: list[tuple[float, int]] = []
        self._idle = set(self.producers)

    def run(self, seconds: float, cpu: Callable[[], float], *, at_most: int = 1 << 60) -> Result:
        """Until the time is over or `at_most` transactions are done; all are ended then."""
        before, begin = cpu(), time.perf_counter()
        result = Result()
        started = 0
        end = begin + seconds

        def start(handle: int) -> None:
            nonlocal started
            if started < at_most and time.perf_counter() < end:
                started += 1
                self._idle.discard(handle)
                self.producers[handle].begin()
            else:
                self._idle.add(handle)

        for handle in list(self._idle):
            start(handle)
        while len(self._idle) < len(self.producers):
            for handle in self._ready():
                one = self.producers[handle]
                payload = one.receive()
                if payload is None:
                    continue
                ended = one.ends
                if one.advance(payload):
                    heapq.heappush(self._later, (time.perf_counter() + RETRY_SECONDS, handle))
                elif ended:
                    result.latencies.append(time.perf_counter() - one.began)
                    start(handle)
        result.seconds = time.perf_counter() - begin
        result.cpu = cpu() - before
        return result

    def _ready(self) -> list[int]:
        """Producers with an answer; sends what had to wait on the way. Raises ConnectionError."""
        silent_until = time.perf_counter() + 60
        while True:
            now = time.perf_counter()
            while self._later and self._later[0][0] <= now:
                _, handle = heapq.heappop(self._later)
                self.producers[handle].send(self.producers[handle].frame)
            events = self.poll.poll(self._later[0][0] - now if self._later else 1.0)
            if events:
                return [handle for handle, _ in events]
            if now > silent_until:
                raise ConnectionError("no answer for a minute under load")

    def close(self) -> None:
        self.poll.close()
        for one in self.producers.values():
            one.socket.close()
