"""Many partitions: making them, and coming back after kill -9."""

from __future__ import annotations

import time
from functools import partial

from bench import frames, raw
from bench.run import Figure, Run, row
from bench.targets import KAFKA, OTTLA, Broker

PER_TOPIC = 100


def _fill(broker: Broker, topics: dict[str, int]) -> None:
    """One record into each partition: Metadata names a leader before that one has made its log."""
    batch = frames.batch([b"x" * 100])
    with raw.connect(broker.address) as connection:
        for name, count in topics.items():
            raw.produce_once(connection, frames.produce(name, dict.fromkeys(range(count), batch)))


def _first_ack(broker: Broker, topics: dict[str, int]) -> None:
    """All partitions have a leader again, and a record is acknowledged."""
    one = frames.produce(next(iter(topics)), {0: frames.batch([b"x" * 100])})
    with raw.connect(broker.address, 180) as connection:
        raw.wait_for_leaders(connection, list(topics))
        raw.produce_once(connection, one)


def many_partitions(run: Run, count: int) -> None:
    broker = run.broker()
    count = run.size(count, count // 20)
    per_topic = min(PER_TOPIC, count)
    topics = {f"many-{number}": per_topic for number in range(count // per_topic)}
    with run.used(broker) as creating:
        raw.create_topics(broker.address, topics)
        _fill(broker, topics)
    run.record("create CPU", creating.cpu)
    run.record("create", creating.seconds)
    for _ in range(run.repeats):
        broker.kill()
        begin = time.perf_counter()
        broker.spawn()
        _first_ack(broker, topics)
        run.record("restart", time.perf_counter() - begin)
        run.record("restart CPU", broker.meter.cpu())
    run.record("memory", broker.meter.memory().rss / 1024 / 1024)


for _count, _aim in ((1_000, 0.5), (5_000, None)):
    row(
        f"partitions-{_count}",
        f"{_count} partitions in topics of {PER_TOPIC}: create; kill -9, restart, first ack",
        [
            Figure("restart CPU", "s"),
            Figure("restart", "s", aim=_aim),
            Figure("create CPU", "s"),
            Figure("create", "s"),
            Figure("memory", "MiB"),
        ],
        (OTTLA, KAFKA),
    )(partial(many_partitions, count=_count))
