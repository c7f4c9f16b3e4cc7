"""Members that are gone when the test is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.apache import distribution
from compat_tests.clients.base import Message
from compat_tests.clients.kafka_python import KafkaPython
from compat_tests.conftest import MakeTopic, _need_java
from compat_tests.groups.consumers import Consumer, wait_shared
from compat_tests.harness.brokers import Broker

Start = Callable[..., Consumer]
Produce = Callable[..., None]
Tool = Callable[..., str]


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


@pytest.fixture
def tool(broker: Broker) -> Tool:
    """kafka-consumer-groups: `tool("--list")`; what it prints."""
    _need_java()

    def run(*arguments: str) -> str:
        done = subprocess.run(
            distribution.command(
                "kafka-consumer-groups", "--bootstrap-server", broker.bootstrap, *arguments
            ),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout + done.stderr

    return run


def pairs(topic: str, count: int = 4) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


@pytest.fixture
def live(start: Start, four: str, produce: Produce) -> Consumer:
    """A member that has read and committed 5 of the 8 records of each partition."""
    produce(four, dict.fromkeys(range(4), 8))
    member = start("confluent-kafka", four, session_ms=30_000, max_poll_ms=30_000)
    wait_shared([member], pairs(four))
    member.wait(lambda: len(member.records) == 32, "all")
    member.commit({(four, partition): 5 for partition in range(4)})
    return member


@pytest.fixture
def empty(live: Consumer) -> Consumer:
    """The same, gone: the group has offsets and no members."""
    live.close()
    return live
