"""A compacted topic that transactions write to: what was aborted never wins over what was not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Client, Message
from compat_tests.conftest import MakeBroker, MakeTopic, make_client
from compat_tests.harness.brokers import Broker
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire
from compat_tests.test_compaction import FILLER, SOON, compacted
from compat_tests.transactions.reading import Topic

KEYS = 7


@pytest.fixture(scope="module")
def _compacting(make_broker: MakeBroker) -> Iterator[Broker]:
    broker = make_broker({"log.cleaner.backoff.ms": "200"})
    yield broker
    broker.stop()


@pytest.fixture
def broker(_compacting: Broker) -> Broker:
    return _compacting


@for_clients(without=("aiokafka", "java"))
def test_compacted(
    client: Client, new_topic: MakeTopic, all_clients: list[Client], transactional_id: str
) -> None:
    name = new_topic(**SOON)
    latest: dict[bytes, bytes] = {}
    with client.producer(transactional_id=transactional_id) as producer:
        for number in range(30):
            key, value = b"key %d" % (number % KEYS), b"value %d" % number
            commit = number % 3 != 0
            producer.transaction([Message(name, value, key)], commit=commit)
            if commit:
                latest[key] = value

    # readers of everything: the aborted are gone too, and so is what they might have replaced
    compacted(
        client, name, lambda found: sorted(r.value or b"" for r in found) == sorted(latest.values())
    )
    topic = Topic(name, 1, all_clients)
    for reader in all_clients:
        found = [r for r in topic.read(reader, "read_committed")[0] if r.key != FILLER]
        assert {r.key: r.value for r in found} == latest, reader.name
        assert len(found) == KEYS


def test_what_is_open_is_not_compacted(
    broker: Broker, new_topic: MakeTopic, transactional_id: str
) -> None:
    """Behind the first open transaction nothing may go: it may yet be aborted."""
    name = new_topic(**SOON)
    client = make_client("kafka-python", broker.bootstrap)
    with client.producer(transactional_id=f"{transactional_id}-done") as done:
        done.transaction([Message(name, b"first", b"key")])
        done.transaction([Message(name, b"second", b"key")])
    with client.producer(transactional_id=transactional_id) as producer:
        producer.begin()
        producer.send_all([Message(name, b"open", b"key")])
        compacted(client, name, lambda found: [r.value for r in found] == [b"second", b"open"])
        producer.abort()
    compacted(client, name, lambda found: [r.value for r in found] == [b"second"])
    with Wire(broker.host, broker.port) as wire:
        ends = [calls.list_offset(wire, name, -1, isolation_level=i).offset for i in (0, 1)]
    assert ends[0] == ends[1]
