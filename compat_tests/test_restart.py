"""The broker goes away and comes back; clients carry on by themselves."""

from __future__ import annotations

import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Client, Message, Partition
from compat_tests.conftest import MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire


def interrupt(broker: Broker, how: str) -> None:
    if how == "kill -9":
        broker.kill()
        broker.start()
    else:
        broker.restart()


def readable(broker: Broker, topic: str) -> bool:
    """Kafka serves a moment before its high watermarks are where they were; a consumer that asks
    in between is told OFFSET_OUT_OF_RANGE."""
    with Wire(broker.host, broker.port) as wire:
        return all(calls.fetch(wire, topic, 1, partition=p).high_watermark == 1 for p in (0, 1))


@for_clients()
@pytest.mark.parametrize("how", ["stop", "kill -9"])
def test_clients_recover(broker: Broker, client: Client, new_topic: MakeTopic, how: str) -> None:
    topic = new_topic(2, retention_ms=4321)
    partitions = {Partition(topic, p): 0 for p in (0, 1)}
    with (
        client.producer(idempotent=True, delivery_timeout_ms=60_000) as producer,
        client.consumer() as consumer,
    ):
        consumer.assign(partitions)
        producer.send_all([Message(topic, b"before %d" % p, partition=p) for p in (0, 1)])
        assert len(consumer.take(2)) == 2
        interrupt(broker, how)
        if broker.target == "apache":
            eventually(lambda: readable(broker, topic), "the high watermark is back")
        acks = producer.send_all([Message(topic, b"after %d" % p, partition=p) for p in (0, 1)])
        assert [ack.offset for ack in acks] == [1, 1]
        got = {(r.partition, r.offset, r.value) for r in consumer.take(2, seconds=60)}
        assert got == {(0, 1, b"after 0"), (1, 1, b"after 1")}
    with client.admin() as admin:
        assert topic in admin.list_topics()


@for_clients()
def test_records_sent_into_the_gap_arrive_once(broker: Broker, client: Client, topic: str) -> None:
    with client.producer(idempotent=True, linger_ms=2, delivery_timeout_ms=60_000) as producer:
        sent = [producer.send(Message(topic, b"%d" % i)) for i in range(200)]
        broker.stop()
        sent += [producer.send(Message(topic, b"%d" % i)) for i in range(200, 300)]
        broker.start()
        sent += [producer.send(Message(topic, b"%d" % i)) for i in range(300, 400)]
        producer.flush()
        offsets = [one.result(60).offset for one in sent]
    assert offsets == list(range(400))
    got = client.read({Partition(topic, 0): 0}, 400)
    assert [int(r.value or b"") for r in got] == list(range(400))
