"""Clients that send nonsense, stop half-way, stop reading or come in thousands hurt themselves.

Ottla's promise, not Kafka's: fifty half frames of 90 MB stop a Kafka with a heap of 512 MB.
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import time
from collections.abc import Iterator

import psutil
import pytest

from compat_tests.conftest import MakeBroker
from compat_tests.harness.brokers import Broker
from compat_tests.raw import batch, calls
from compat_tests.raw.batch import Record
from compat_tests.raw.wire import Closed, Wire

pytestmark = pytest.mark.ottla_only
MIB = 1 << 20


@pytest.fixture(scope="module")
def victim(make_broker: MakeBroker) -> Iterator[Broker]:
    """A broker of its own, with a topic of 20 MB in it."""
    # with Kafka's 50, three thousand in a row wait a second here and there for their turn
    broker = make_broker({"socket.listen.backlog.size": "1024"})
    with Wire(broker.host, broker.port) as wire:
        calls.create_topic(wire, "data")
        big = batch.build([Record(random.randbytes(500_000)) for _ in range(2)])
        for _ in range(20):
            calls.produced(wire, "data", big)
    yield broker
    broker.stop()


@pytest.fixture(autouse=True)
def _others_are_served(victim: Broker) -> Iterator[None]:
    yield
    assert_served(victim)


def assert_served(broker: Broker, within: float = 20) -> None:
    """Another client is served, and in good time."""
    assert broker.alive, broker.log()[-4000:]
    started = time.monotonic()
    with Wire(broker.host, broker.port) as wire:
        assert wire.call("ApiVersions", 0).error_code == 0
        offset = calls.produced(wire, "data", batch.build())
        assert calls.fetched_batches(wire, "data", offset)
    assert time.monotonic() - started < within


def rss(broker: Broker) -> int:
    """Resident bytes of the broker; Linux only, as all of these tests."""
    return int(psutil.Process(broker.pid).memory_info().rss)


def frame(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


GARBAGE = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100fa010000f60303") + bytes(240),
    "size 0": struct.pack(">i", 0),
    "size -1": struct.pack(">i", -1) + b"x" * 100,
    "size 2147483647": struct.pack(">i", 2**31 - 1) + b"x" * 100,
    "one byte": frame(b"x"),
    "no body": frame(struct.pack(">hhih", 3, 12, 1, -1)),
    "an array of 2 billion": frame(
        struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">i", 2**31 - 1)
    ),
    "a negative array": frame(struct.pack(">hhihi", 3, 4, 1, -1, -77)),
    "an endless varint": frame(struct.pack(">hhih", 3, 12, 1, -1) + b"\0" + b"\xff" * 20),
    "a string that is cut": frame(struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">ih", 1, 4)),
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_closes_that_connection(victim: Broker, garbage: str) -> None:
    with Wire(victim.host, victim.port) as wire:
        wire.socket.sendall(GARBAGE[garbage])
        assert wire.is_closed()


def test_random_frames_hurt_nobody(victim: Broker) -> None:
    rng = random.Random(4711)
    printed = len(victim.log())
    for _ in range(400):
        with Wire(victim.host, victim.port) as wire:
            key, version = rng.randrange(0, 76), rng.randrange(0, 14)
            header = wire.header(key, version, 1, flexible=rng.random() < 0.5)
            wire.socket.sendall(frame(header + rng.randbytes(rng.randrange(200))))
            wire.socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(Closed):
                wire.receive_frame()
    said = victim.log()[printed:]
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 400, "one line a connection, at most"


def test_half_frames_take_no_memory(victim: Broker) -> None:
    before = rss(victim)
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            wire = stack.enter_context(Wire(victim.host, victim.port))
            wire.socket.sendall(struct.pack(">i", 90 * MIB) + b"\0\0\0\7" + b"x" * 1000)
        time.sleep(0.3)
        assert_served(victim)
        assert rss(victim) - before < 100 * MIB, "4.4 GB were announced"


def test_half_a_frame_and_then_the_rest(victim: Broker) -> None:
    """A slow client is not a broken one."""
    with Wire(victim.host, victim.port) as wire:
        data = frame(wire.encode("Metadata", 12, 5, topics=[]))
        for i in range(len(data)):
            wire.socket.sendall(data[i : i + 1])
            time.sleep(0.002)
        assert wire.receive("Metadata", 12)[0] == 5


def test_thousands_of_connections(victim: Broker) -> None:
    wanted = 3000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted + 500:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted + 500), hard))
        wanted = min(hard, wanted + 500) - 500
    before = rss(victim)
    with contextlib.ExitStack() as stack:
        wires = [
            stack.enter_context(Wire(victim.host, victim.port, timeout=30)) for _ in range(wanted)
        ]
        for wire in wires:
            wire.send("ApiVersions", 0)
        for wire in wires:
            assert wire.receive("ApiVersions", 0)[1].error_code == 0
        assert_served(victim)
        assert (rss(victim) - before) / wanted < 40_000, "bytes a connection"
    calls_left = time.monotonic() + 60
    while len(psutil.Process(victim.pid).net_connections("tcp")) > 50:
        assert time.monotonic() < calls_left, "closed connections are let go"
        time.sleep(0.1)


def test_a_client_that_stops_reading_fetches(victim: Broker) -> None:
    before = rss(victim)
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            wire = stack.enter_context(Wire(victim.host, victim.port))
            part = calls.fetch_partition(0, partition_max_bytes=5 * MIB)
            with contextlib.suppress(TimeoutError):
                wire.socket.settimeout(0.5)
                for _ in range(300):
                    wire.send("Fetch", 12, **calls.fetch_fields({"data": [part]}))
        for _ in range(5):
            assert_served(victim)
            assert rss(victim) - before < 200 * MIB, "15 GB were asked for"
            time.sleep(0.2)


def test_a_producer_that_reads_no_answers(victim: Broker) -> None:
    before = rss(victim)
    small = batch.build([Record(b"x" * 100)])
    with Wire(victim.host, victim.port) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = frame(wire.encode("Produce", 9, 1, **calls.produce_fields("data", small)))
        # answers with a client's own name in them: every one is bigger than its question
        asked = frame(wire.encode("Metadata", 12, 1, topics=None))
        wire.socket.settimeout(1)
        with contextlib.suppress(TimeoutError):
            for _ in range(2000):
                wire.socket.sendall((request + asked * 20) * 10)
        assert_served(victim)
        assert rss(victim) - before < 100 * MIB


def test_large_batches_from_many_producers_are_bounded(victim: Broker) -> None:
    """Reading stops while too much waits for its commit."""
    before = rss(victim)
    big = batch.build([Record(random.randbytes(900_000))])
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(victim.host, victim.port)) for _ in range(20)]
        data = frame(wires[0].encode("Produce", 9, 1, **calls.produce_fields("data", big)))
        for wire in wires:
            wire.socket.sendall(data)
            wire.socket.settimeout(0.05)
        for _ in range(9):
            for wire in list(wires):
                try:
                    wire.socket.sendall(data)
                except TimeoutError:
                    wires.remove(wire)  # a part of it went: this one sends no more
        assert rss(victim) - before < 400 * MIB
        assert_served(victim, within=60)


def test_clients_that_vanish_in_the_middle(victim: Broker) -> None:
    big = batch.build([Record(random.randbytes(200_000))])
    for i in range(60):
        wire = Wire(victim.host, victim.port)
        data = frame(wire.encode("Produce", 9, 1, **calls.produce_fields("data", big)))
        wire.socket.sendall(data[: len(data) * i // 60])
        # a reset instead of a goodbye
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.close()
