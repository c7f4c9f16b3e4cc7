"""kill -9 at random moments under load: what was acknowledged stays, once, where it was."""

from __future__ import annotations

import random
import time

import pytest

from compat_tests.clients.base import Partition
from compat_tests.conftest import MakeBroker, make_client
from compat_tests.harness.brokers import Broker
from compat_tests.harness.load import Load, Watcher, check
from compat_tests.harness.waiting import eventually
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire

PARTITIONS = 3
WRITERS = ("kafka-python", "confluent-kafka", "java")


def kill_and_start(broker: Broker, rng: random.Random) -> None:
    """Sometimes it is killed again while it starts."""
    broker.kill()
    if rng.random() < 0.3:
        broker.spawn()
        time.sleep(rng.uniform(0, 0.8))
        broker.kill()
    broker.start()


def await_progress(loads: list[Load]) -> None:
    """Until every producer has got acknowledgements from the broker as it runs now."""
    before = [len(load.acknowledged) for load in loads]

    def all_moved() -> bool:
        return all(len(load.acknowledged) > b for load, b in zip(loads, before, strict=True))

    eventually(all_moved, "every producer goes on", seconds=120)


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(10, marks=pytest.mark.timeout(600)),
        pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(7200)]),
    ],
)
def test_nothing_acknowledged_is_lost_doubled_or_moved(
    make_broker: MakeBroker, rounds: int
) -> None:
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    print(f"seed {seed}")
    broker = make_broker()
    clients = {name: make_client(name, broker.bootstrap) for name in WRITERS}
    with Wire(broker.host, broker.port) as wire:
        for name in WRITERS:
            calls.create_topic(wire, name, PARTITIONS)
    loads = [Load(client, name, PARTITIONS) for name, client in clients.items()]
    every = [Partition(name, p) for name in WRITERS for p in range(PARTITIONS)]
    watcher = Watcher(make_client("confluent-kafka", broker.bootstrap), every)
    for load in loads:
        load.start()
    watcher.start()
    for _ in range(rounds):
        # mostly under full load, sometimes before the clients have come back
        if rng.random() < 0.8:
            await_progress(loads)
        time.sleep(rng.uniform(0, 0.4))
        kill_and_start(broker, rng)
    await_progress(loads)
    for load in loads:
        load.stop()
    watcher.stop()

    reader = make_client("confluent-kafka", broker.bootstrap)
    problems = list(watcher.changed)
    for load in loads:
        partitions = [Partition(load.topic, p) for p in range(PARTITIONS)]
        with reader.consumer() as consumer:
            total = sum(consumer.end_offsets(partitions).values())
            consumer.assign(dict.fromkeys(partitions, 0))
            log = consumer.take(total, seconds=120)
        problems += [f"{load.topic}, {problem}" for problem in check(load, log)]
        values = {(Partition(r.topic, r.partition), r.offset): r.value for r in log}
        problems += [
            f"{at} was shown to a reader and is gone or another"
            for at, value in watcher.seen.items()
            if at[0].topic == load.topic and values.get(at) != value
        ]
        print(f"{load.topic}: {len(load.acknowledged)} acknowledged, {total} in the log")
    assert problems == []
    broker.stop()
