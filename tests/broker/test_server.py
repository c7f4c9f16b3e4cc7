"""The server on loopback: sockets, limits, stopping. Everything else is tested without sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.broker.harness import Client, Harness, make_batch

from ottla.broker.connection import Connection
from ottla.broker.server import COMMIT_BYTES, TURN_MS, Peer, Server
from ottla.log.store import Store
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.primitives import Buffer
from ottla.wire.schema import Message

T = TypeVar("T")

uvloop = pytest.importorskip("uvloop")


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine on either event loop, for a minute at most."""

    def runner(main: Coroutine[Any, Any, T]) -> T:
        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as made:
            return made.run(asyncio.wait_for(main, 60))

    return runner


class Remote:
    """A client on a socket; messages are made and read by the harness's client."""

    def __init__(
        self, harness: Harness, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.messages = Client(harness)
        self.reader = reader
        self.writer = writer

    async def ask(self, request: Message, version: int) -> None:
        self.writer.write(self.messages.frame(request, version))
        await self.writer.drain()

    async def answer(self) -> Any:
        size = await self.reader.readexactly(4)
        body = await self.reader.readexactly(*struct.unpack(">i", size))
        self.messages.take([size + body])
        return self.messages.receive()

    async def call(self, request: Message, version: int) -> Any:
        await self.ask(request, version)
        return await self.answer()

    async def ended(self) -> bool:
        """The server has closed the connection."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True


class Running:
    def __init__(self, harness: Harness, server: Server) -> None:
        self.harness = harness
        self.server = server

    def port(self, listener: str = "PLAINTEXT") -> int:
        return self.harness.broker.listeners[listener].port

    async def connect(self, listener: str = "PLAINTEXT", **options: Any) -> Remote:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port(listener), **options)
        return Remote(self.harness, reader, writer)

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.server._until(condition)


@asynccontextmanager
async def running(path: Path, **settings: str) -> AsyncIterator[Running]:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0"} | settings
    harness = Harness(path / "data", **settings)
    server = Server(harness.broker, asyncio.get_running_loop())
    await server.start()
    try:
        yield Running(harness, server)
    finally:
        await server.stop()
        harness.store.close()


def produce(count: int = 1, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=make_batch(count))
    return ProduceRequest(acks=acks, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def poll(max_wait_ms: int = 60_000) -> FetchRequest:
    asked = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 30,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[asked])],
    )


Run = Callable[[Awaitable[None]], None]


def test_requests_sent_in_one_go_are_answered_in_order(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            broker.harness.topic("t")
            client = await broker.connect()
            frames = [client.messages.frame(produce(), 9) for _ in range(300)]
            frames.append(client.messages.frame(poll(), 12))
            client.writer.write(b"".join(frames))
            for offset in range(300):
                answer = (await client.answer()).responses[0].partition_responses[0]
                assert (answer.error_code, answer.base_offset) == (0, offset)
            assert (await client.answer()).responses[0].partitions[0].high_watermark == 300

    run(main())


def test_a_turn_ends_when_its_time_is_over_and_the_next_begins_with_who_waited(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[list[Connection]] = [[]]
    end = Server._turn

    def next_turn(server: Server) -> None:
        turns.append([])
        end(server)

    monkeypatch.setattr(Server, "_turn", next_turn)

    async def main() -> None:
        async with running(tmp_path) as broker:
            server, clock = broker.server, broker.harness.clock
            handle = server._handle

            def takes_long(connection: Connection, frame: Buffer) -> None:
                clock.passed_ms += TURN_MS / 2.5
                turns[-1].append(connection)
                handle(connection, frame)

            server._handle = takes_long
            clients = [await broker.connect() for _ in range(5)]
            for client in clients:
                frames = [client.messages.frame(MetadataRequest(), 8) for _ in range(20)]
                client.writer.write(b"".join(frames))
            for client in clients:
                for _ in range(20):  # each says which request it answers, and they come in order
                    await client.answer()
        assert max(map(len, turns)) == 3
        begun: list[Connection] = []
        for connection in (one for turn in turns for one in turn):
            begun.append(connection)
            if begun.count(connection) == 20:
                break
        assert min(begun.count(connection) for connection in set(begun)) >= 12
        assert len(set(begun)) == 5

    run(main())


def test_small_requests_wait_for_the_commit_before_theirs_and_share_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = True
    monkeypatch.setattr(Store, "committing", property(lambda _: under_way))

    async def main() -> None:
        nonlocal under_way
        async with running(tmp_path) as broker:
            broker.harness.topic("t")
            before = broker.harness.store.committed
            clients = [await broker.connect() for _ in range(5)]
            for client in clients:
                await client.ask(produce(), 9)
            peers = broker.server.peers
            await broker.until(lambda: sum(p.connection.unanswered for p in peers) == 5)
            assert broker.harness.store.committed == before
            under_way = False
            broker.server.schedule()
            for client in clients:
                assert (await client.answer()).responses[0].partition_responses[0].error_code == 0
            assert broker.harness.store.committed == before + 1

    run(main())


def test_a_large_request_does_not_wait_for_the_commit_before_its(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "committing", True)

    async def main() -> None:
        async with running(tmp_path) as broker:
            broker.harness.topic("t")
            client = await broker.connect()
            answer = await client.call(produce(COMMIT_BYTES // 10), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0

    run(main())


def test_a_long_poll_is_woken_by_another_connection(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            broker.harness.topic("t")
            reader, writer = await broker.connect(), await broker.connect()
            await reader.ask(poll(), 12)
            await broker.until(lambda: len(broker.harness.broker.waiters) == 1)
            await writer.call(produce(), 9)
            assert (await reader.answer()).responses[0].partitions[0].high_watermark == 1

    run(main())


def test_a_connection_that_fails_keeps_no_other_from_its_answer(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Peer.send
    failing: list[Peer] = []

    def sends(peer: Peer, out: list[Buffer]) -> None:
        if peer in failing:
            raise RuntimeError("the handler is closed")
        send(peer, out)

    monkeypatch.setattr(Peer, "send", sends)

    async def main() -> None:
        async with running(tmp_path) as broker:
            broker.harness.topic("t")
            broken = await broker.connect()
            await broken.ask(poll(), 12)
            await broker.until(lambda: len(broker.harness.broker.waiters) == 1)
            failing.extend(broker.server.peers)
            other, writer = await broker.connect(), await broker.connect()
            await other.ask(poll(), 12)
            await broker.until(lambda: len(broker.harness.broker.waiters) == 2)
            await writer.call(produce(), 9)
            assert (await other.answer()).responses[0].partitions[0].high_watermark == 1
            assert await broken.ended()
            await broker.until(lambda: len(broker.server.peers) == 2)

    run(main())


def test_each_listener_tells_its_own_address(run: Run, tmp_path: Path) -> None:
    settings = {
        "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
        "advertised_listeners": "IN://inside:1,OUT://outside:2",
        "listener_security_protocol_map": "IN:PLAINTEXT,OUT:PLAINTEXT",
        "inter_broker_listener_name": "IN",
    }

    async def main() -> None:
        async with running(tmp_path, **settings) as broker:
            for name, expected in (("IN", ("inside", 1)), ("OUT", ("outside", 2))):
                client = await broker.connect(name)
                (node,) = (await client.call(MetadataRequest(topics=[]), 1)).brokers
                assert (node.host, node.port) == expected

    run(main())


def test_a_large_request_arrives_in_its_own_buffer(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            broker.harness.topic("t", max_message_bytes="20000000")
            client = await broker.connect()
            request = produce()
            batch = make_batch(10, size=1_000_000)
            request.topic_data[0].partition_data[0].records = batch
            for _ in range(3):
                answer = await client.call(request, 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
            assert broker.server.budget.used == 0

    run(main())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 1 << 20),
    ],
)
def test_garbage_closes_its_connection_with_one_line(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            bad, good = await broker.connect(), await broker.connect()
            bad.writer.write(garbage)
            assert await bad.ended()
            assert (await good.call(MetadataRequest(topics=[]), 1)).topics == []
            assert broker.server.complaints.total == 1
            await broker.until(lambda: len(broker.server.peers) == 1)

    with caplog.at_level(logging.WARNING):
        run(main())
    assert len([r for r in caplog.records if "closed the connection" in r.getMessage()]) == 1


def test_half_a_request_hurts_nobody(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            half, good = await broker.connect(), await broker.connect()
            half.writer.write(struct.pack(">i", 50_000_000) + bytes(100_000))
            await broker.until(lambda: broker.server.budget.used > 0)
            await good.call(MetadataRequest(topics=[]), 1)
            half.writer.close()
            await broker.until(lambda: broker.server.budget.used == 0)

    run(main())


def test_a_client_that_does_not_read_is_not_read_from(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"ottla_connection_send_max_bytes": "65536", "socket_send_buffer_bytes": "65536"}
        async with running(tmp_path, **settings) as broker:
            for number in range(20):
                broker.harness.topic(f"topic-{number}-{'x' * 200}", 10)
            deaf = socket.socket()
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(deaf, ("127.0.0.1", broker.port()))
            messages = Client(broker.harness)
            frame = messages.frame(MetadataRequest(topics=None), 12)
            (peer,) = await peers(broker, 1)
            asked = memoryview(frame * 300_000)
            waiting = 0
            while asked and waiting < 50:
                try:
                    asked = asked[deaf.send(asked) :]
                    waiting = 0
                except BlockingIOError:
                    waiting += 1
                await asyncio.sleep(0)
            assert asked, "the broker goes on reading"
            assert peer.transport.get_write_buffer_size() < 1 << 20
            assert 0 < broker.harness.broker.unsent.used < 1 << 20
            good = await broker.connect()
            await good.call(MetadataRequest(topics=[]), 1)
            deaf.close()
            await broker.until(lambda: broker.harness.broker.unsent.used == 0)

    run(main())


async def peers(broker: Running, count: int) -> list[Any]:
    await broker.until(lambda: len(broker.server.peers) == count)
    return list(broker.server.peers)


@pytest.mark.parametrize("setting", ["max_connections", "max_connections_per_ip"])
def test_one_connection_too_many_is_closed(run: Run, tmp_path: Path, setting: str) -> None:
    async def main() -> None:
        async with running(tmp_path, **{setting: "2"}) as broker:
            first, second = await broker.connect(), await broker.connect()
            await second.call(MetadataRequest(topics=[]), 1)
            assert await (await broker.connect()).ended()
            first.writer.close()
            await peers(broker, 1)
            third = await broker.connect()
            await third.call(MetadataRequest(topics=[]), 1)

    run(main())


def test_a_silent_connection_is_closed_and_a_waiting_one_is_not(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, connections_max_idle_ms="60000") as broker:
            broker.harness.topic("t")
            silent, waiting = await broker.connect(), await broker.connect()
            await waiting.ask(poll(), 12)
            await broker.until(lambda: len(broker.harness.broker.waiters) == 1)
            await peers(broker, 2)
            broker.harness.clock.passed_ms += 60_001
            assert await silent.ended()
            assert len(broker.server.peers) == 1

    run(main())


def test_stopping_answers_what_was_accepted(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            broker.harness.topic("t")
            polling, producing = await broker.connect(), await broker.connect()
            await polling.ask(poll(), 12)
            await broker.until(lambda: len(broker.harness.broker.waiters) == 1)
            flush, broker.harness.store.flush = broker.harness.store.flush, lambda: None  # type: ignore[method-assign]
            await producing.ask(produce(), 9)
            await broker.until(lambda: broker.server.budget.used > 40)
            port = broker.port()
            stopping = asyncio.ensure_future(broker.server.stop())
            assert (await polling.answer()).responses[0].partitions[0].high_watermark == 0
            assert not stopping.done()
            broker.harness.store.flush = flush  # type: ignore[method-assign]
            answer = (await producing.answer()).responses[0].partition_responses[0]
            assert answer.error_code == 0
            assert await polling.ended()
            assert await producing.ended()
            await stopping
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)

    run(main())


def test_a_port_in_use_is_named(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path / "one") as broker:
            place = f"PLAINTEXT://127.0.0.1:{broker.port()}"
            with pytest.raises(OSError, match=place):
                async with running(tmp_path / "two", listeners=place):
                    pass

    run(main())
