"""Consume, transform, produce through three groups, while everything is killed in turn."""

from __future__ import annotations

import collections
import contextlib
import itertools
import random
import threading
import time
from collections.abc import Iterator

import pytest

from compat_tests.clients.base import Message, Partition
from compat_tests.conftest import MakeTopic, make_client
from compat_tests.harness.brokers import Broker
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire
from compat_tests.transactions.script import READ_COMMITTED, READ_UNCOMMITTED
from compat_tests.transactions.stages import Worker

PARTITIONS = 4
STAGES = ("one", "two", "three")
WORKERS = {
    "one": ("java", "confluent-kafka"),
    "two": ("kafka-python", "confluent-kafka"),
    "three": ("aiokafka",),  # alone: see AioKafka
}
MORE_WORKERS = {
    "one": ("java", "confluent-kafka", "kafka-python"),
    "two": ("kafka-python", "kafka-python", "java"),
    "three": ("aiokafka",),
}


class Pipeline:
    """Numbers go in at the first topic; whoever reads the last one sees each of them once."""

    def __init__(
        self, broker: Broker, topics: list[str], workers: dict[str, tuple[str, ...]]
    ) -> None:
        self.broker = broker
        self.topics = topics
        self.sent = 0
        self.workers = [
            Worker(
                client,
                bootstrap=broker.bootstrap,
                stage=stage,
                group=f"group-{stage}-of-{topics[0]}",
                source=topics[number],
                target=topics[number + 1],
                partitions=PARTITIONS,
            )
            for number, stage in enumerate(STAGES)
            for client in workers[stage]
        ]

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        self.sent += count
        client = make_client("confluent-kafka", self.broker.bootstrap)
        with client.producer(idempotent=True, linger_ms=5, delivery_timeout_ms=60_000) as producer:
            producer.send_all(
                Message(self.topics[0], b"%d" % n, partition=n % PARTITIONS) for n in numbers
            )

    def arrived(self, seconds: float) -> collections.Counter[bytes]:
        """How often each value is in the last topic, once as many as went in are there and no
        transaction is under way behind them."""
        got: collections.Counter[bytes] = collections.Counter()
        client = make_client("kafka-python", self.broker.bootstrap)
        deadline = time.monotonic() + seconds
        with client.consumer(isolation_level="read_committed", max_wait_ms=200) as consumer:
            consumer.assign({Partition(self.topics[-1], p): 0 for p in range(PARTITIONS)})
            while len(got) < self.sent:
                got.update(record.value or b"" for record in consumer.poll(0.5))
                assert time.monotonic() < deadline, f"{len(got)} of {self.sent}: {self._state()}"
            for _ in range(4):
                got.update(record.value or b"" for record in consumer.poll(0.25))
        return got

    def _state(self) -> str:
        """What may be in the way."""
        lines = [repr(worker) for worker in self.workers]
        with Wire(self.broker.host, self.broker.port) as wire:
            for topic, partition in itertools.product(self.topics, range(PARTITIONS)):
                ends = [
                    calls.list_offset(wire, topic, -1, partition=partition, isolation_level=level)
                    for level in (READ_COMMITTED, READ_UNCOMMITTED)
                ]
                lines.append(f"{topic}-{partition}: stable {ends[0].offset} of {ends[1].offset}")
            ids = [worker.options["transactional_id"] for worker in self.workers]
            lines.append(str(wire.call("DescribeTransactions", 0, transactional_ids=ids)))
            groups = [f"group-{stage}-of-{self.topics[0]}" for stage in STAGES]
            lines.append(str(wire.call("DescribeGroups", 5, groups=groups)))
            asked = [{"group_id": group, "topics": None} for group in groups]
            lines.append(str(wire.call("OffsetFetch", 8, require_stable=True, groups=asked)))
        return "\n".join(lines)

    def check(self, seconds: float) -> None:
        got = self.arrived(seconds)
        assert set(got) == {b"%d one two three" % n for n in range(self.sent)}
        assert set(got.values()) == {1}, [value for value, times in got.items() if times > 1]

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()


@contextlib.contextmanager
def pipeline(
    broker: Broker, new_topic: MakeTopic, workers: dict[str, tuple[str, ...]]
) -> Iterator[Pipeline]:
    found = Pipeline(broker, [new_topic(PARTITIONS) for _ in range(4)], workers)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.timeout(480)
@pytest.mark.usefixtures("needs_java")
def test_exactly_once_under_kill_9(broker: Broker, new_topic: MakeTopic) -> None:
    """A worker of each stage and the broker are killed under load, then one more of each."""
    with pipeline(broker, new_topic, WORKERS) as flow:
        flow.send(300)
        _until(flow, 60)
        for client in ("java", "kafka-python", "aiokafka"):
            worker = next(one for one in flow.workers if one.client == client)
            worker.kill()
            flow.send(100)
            worker.start()
        broker.kill()
        broker.start()
        flow.send(200)
        flow.workers[1].kill()
        flow.workers[1].start()
        flow.check(seconds=200)


def _until(flow: Pipeline, count: int) -> None:
    """Until the last stage has committed so many records."""
    deadline = time.monotonic() + 120
    while flow.workers[-1].committed < count:
        assert time.monotonic() < deadline, flow.workers
        time.sleep(0.02)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("needs_java")
@pytest.mark.parametrize("seed", [1, 2])
def test_exactly_once_for_long(broker: Broker, new_topic: MakeTopic, seed: int) -> None:
    """Workers and the broker are killed at random under constant load, and workers that can be
    fenced are frozen past their session and wake up."""
    dice = random.Random(seed)
    with pipeline(broker, new_topic, MORE_WORKERS) as flow:
        stop = threading.Event()

        def load() -> None:
            while not stop.is_set():
                flow.send(50)
                time.sleep(0.2)

        loading = threading.Thread(target=load)
        loading.start()
        for _ in range(30):
            time.sleep(dice.uniform(0.5, 3))
            worker = dice.choice(flow.workers)
            match dice.choice(("kill", "kill", "freeze", "broker")):
                case "kill":
                    worker.kill()
                    time.sleep(dice.uniform(0, 4))
                    worker.start()
                case "freeze" if worker.client != "aiokafka":
                    worker.freeze()
                    time.sleep(dice.uniform(3, 6))
                    worker.thaw()
                case "broker":
                    broker.kill()
                    broker.start()
        stop.set()
        loading.join()
        flow.check(seconds=240)
