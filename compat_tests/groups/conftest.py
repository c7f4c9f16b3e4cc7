"""Members that are gone when the test is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.clients.base import Message
from compat_tests.clients.kafka_python import KafkaPython
from compat_tests.conftest import MakeTopic, _need_java
from compat_tests.groups.consumers import Consumer
from compat_tests.harness.brokers import Broker

Start = Callable[..., Consumer]
Produce = Callable[..., None]


@pytest.fixture
def group(new_name: Callable[[], str]) -> str:
    """A group nobody has used."""
    return f"group-{new_name()}"


@pytest.fixture
def start(broker: Broker, group: str) -> Iterator[Start]:
    """Start a member: `start(client, topic, **options)`; see Consumer for the options."""
    started: list[Consumer] = []

    def make(client: str, *topics: str, **options: Any) -> Consumer:
        if client == "java":
            _need_java()
        if topics:
            options["topics"] = topics
        consumer = Consumer(client, broker.bootstrap, options.pop("group", group), **options)
        started.append(consumer)
        return consumer

    yield make
    for consumer in started:
        consumer.kill()


@pytest.fixture
def four(new_topic: MakeTopic) -> str:
    """A topic of four partitions."""
    return new_topic(4)


@pytest.fixture
def produce(broker: Broker) -> Produce:
    """`produce(topic, {partition: count})`: records "p-n", numbered on from what is there."""
    numbers: dict[tuple[str, int], int] = {}

    def send(topic: str, counts: dict[int, int]) -> None:
        messages = []
        for partition, count in counts.items():
            first = numbers.get((topic, partition), 0)
            numbers[topic, partition] = first + count
            messages += [
                Message(topic, b"%d-%d" % (partition, n), partition=partition)
                for n in range(first, first + count)
            ]
        with KafkaPython(broker.bootstrap).producer(linger_ms=5) as producer:
            producer.send_all(messages)

    return send
