"""What a broker costs before it has anything to do: start, memory, idle connections."""

from __future__ import annotations

import time

from bench import clients, frames, raw
from bench.run import Figure, Run, row
from bench.targets import KAFKA, OTTLA

MIB = 1024 * 1024


@row(
    "cold-start",
    "process start to the first acknowledged record, in a topic made on demand",
    [Figure("CPU", "s"), Figure("to first ack", "s", aim=0.25)],
    (OTTLA, KAFKA),
)
def cold_start(run: Run) -> None:
    first = frames.produce("first", {0: frames.batch([b"x" * 100])})
    for _ in range(run.repeats + 2):
        broker = run.new_broker()
        begin = time.perf_counter()
        broker.spawn()
        with raw.connect(broker.address) as connection:
            raw.wait_for_leaders(connection, ["first"], auto_create=True)
            raw.produce_once(connection, first)
        run.record("to first ack", time.perf_counter() - begin)
        run.record("CPU", broker.meter.cpu())
        broker.stop()


@row(
    "memory",
    "resident memory: idle, and after 300 MB of 1 KiB records in 8 partitions",
    [
        Figure("idle", "MiB", aim=50),
        Figure("idle, anonymous", "MiB"),
        Figure("after 300 MB", "MiB"),
        Figure("after 300 MB, anonymous", "MiB"),
    ],
    (OTTLA, KAFKA),
)
def memory(run: Run) -> None:
    broker = run.broker()
    time.sleep(run.size(3.0, 0.2))
    now = broker.meter.memory()
    run.record("idle", now.rss / MIB)
    run.record("idle, anonymous", now.anonymous / MIB)
    raw.create_topics(broker.address, {"load": 8})
    count = run.size(300_000_000, 2_000_000) // 1024
    clients.produce(broker.bootstrap, "load", clients.payloads(1024), count)
    time.sleep(run.size(2.0, 0.0))
    now = broker.meter.memory()
    run.record("after 300 MB", now.rss / MIB)
    run.record("after 300 MB, anonymous", now.anonymous / MIB)


@row(
    "idle-connections",
    "2,000 connections that have said hello and wait",
    [
        Figure("CPU while idle", "% of a core"),
        Figure("CPU to connect", "us each"),
        Figure("memory", "KiB each"),
    ],
    (OTTLA, KAFKA),
)
def idle_connections(run: Run) -> None:
    broker = run.broker()
    raw.served(broker.address)
    time.sleep(run.size(2.0, 0.1))
    count = run.size(2_000, 50)
    before = broker.meter.memory().rss
    hello = frames.api_versions()
    open_ones: list[raw.Connection] = []
    try:
        with run.used(broker) as connecting:
            for _ in range(count):
                connection = raw.Connection(broker.address)
                open_ones.append(connection)
                connection.call(hello)
        run.record("CPU to connect", connecting.cpu / count * 1e6)
        with run.used(broker) as idle:
            time.sleep(run.size(10.0, 0.5))
        run.record("CPU while idle", idle.cpu / idle.seconds * 100)
        run.record("memory", (broker.meter.memory().rss - before) / count / 1024)
    finally:
        for connection in open_ones:
            connection.socket.close()
