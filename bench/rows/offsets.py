"""Committed offsets: many a second, and a million to come back with."""

from __future__ import annotations

import time

from bench import frames, raw
from bench.members import Group
from bench.rows import closed_loop
from bench.run import Figure, Run, row
from bench.targets import ALL, KAFKA, OTTLA, Broker

GROUPS = 16


def _worst(payload: bytes) -> int:
    return max(frames.offset_commit_errors(payload))


@row(
    "offset-commit",
    f"{GROUPS} groups of one member; each commits one partition and waits for the answer",
    [
        Figure("CPU", "us/commit", aim=25),
        Figure("commits", "/s"),
        Figure("p50", "ms"),
        Figure("p99", "ms"),
    ],
    ALL,
)
def offset_commit(run: Run) -> None:
    broker = run.broker()
    run.coordinator(broker, "committer-0")
    raw.create_topics(broker.address, {"read": GROUPS})
    groups = [Group(broker.address, f"committer-{number}") for number in range(GROUPS)]
    load = []
    for group in groups:
        run.coordinator(broker, group.group_id)
        group.form(1)
        one = group.members[0]
        load.append(
            frames.offset_commit(group.group_id, "read", {0: 42}, one.generation, one.member_id)
        )
    closed_loop.measure(run, broker, load, _worst, count="commits")
    for group in groups:
        group.close()


PARTITIONS = 100
ON_THE_WIRE = 20


def _commit_all(broker: Broker, groups: int) -> None:
    """100 offsets for each group, by standalone consumers, 20 requests on the wire."""
    offsets = {index: 1_000 + index for index in range(PARTITIONS)}
    with raw.connect(broker.address) as connection:
        for begin in range(0, groups, ON_THE_WIRE):
            numbers = range(begin, min(groups, begin + ON_THE_WIRE))
            requests = (frames.offset_commit(f"group-{n}", "read", offsets) for n in numbers)
            connection.socket.sendall(b"".join(requests))
            for _ in numbers:
                if error := _worst(connection.receive()):
                    raise frames.ProtocolError("OffsetCommit", error)


def _wait_for(broker: Broker, group_id: str, seconds: float = 180) -> None:
    """Ask for the offsets of a group until they are all there."""
    frame = frames.offset_fetch(group_id, "read", list(range(PARTITIONS)))
    expected = {index: 1_000 + index for index in range(PARTITIONS)}
    end = time.perf_counter() + seconds
    with raw.connect(broker.address, seconds) as connection:
        while True:
            error, offsets = frames.fetched_offsets(connection.call(frame))
            if not error and offsets == expected:
                return
            if time.perf_counter() > end:
                raise frames.ProtocolError(f"OffsetFetch {group_id}", error)
            time.sleep(0.005)


@row(
    "offsets-million",
    "10,000 groups commit 100 offsets each; kill -9, restart, the first and last group's are read",
    [
        Figure("restart CPU", "s"),
        Figure("restart", "s"),
        Figure("commit CPU", "us/offset"),
        Figure("memory", "MiB"),
    ],
    (OTTLA, KAFKA),
)
def offsets_million(run: Run) -> None:
    broker = run.broker()
    run.coordinator(broker, "group-0")
    raw.create_topics(broker.address, {"read": PARTITIONS})
    groups = run.size(10_000, 50)
    with run.used(broker) as committing:
        _commit_all(broker, groups)
    run.record("commit CPU", committing.cpu / (groups * PARTITIONS) * 1e6)
    run.record("memory", broker.meter.memory().rss / 1024 / 1024)
    for _ in range(run.repeats):
        broker.kill()
        begin = time.perf_counter()
        broker.spawn()
        _wait_for(broker, "group-0")
        _wait_for(broker, f"group-{groups - 1}")
        run.record("restart", time.perf_counter() - begin)
        run.record("restart CPU", broker.meter.cpu())
