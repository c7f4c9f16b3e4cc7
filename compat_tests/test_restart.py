"""The broker goes away and comes back; clients carry on by themselves."""

from __future__ import annotations

import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Client, Consumer, Failed, Message, Partition, Received
from compat_tests.conftest import MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually


def interrupt(broker: Broker, how: str) -> None:
    if how == "kill -9":
        broker.kill()
        broker.start()
    else:
        broker.restart()


def taken(broker: Broker, consumer: Consumer, after: dict[Partition, int]) -> list[Received]:
    """One record of each partition, read by a consumer whose broker has just come back.

    Kafka serves a moment before its high watermarks are where they were, and tells a consumer that
    asks in between OFFSET_OUT_OF_RANGE: it is put back to where it was. Ottla may not.
    """
    got: list[Received] = []

    def enough() -> bool:
        try:
            got.extend(consumer.poll(0.5))
        except Failed as error:
            if broker.target != "apache" or error.error != "OFFSET_OUT_OF_RANGE":
                raise
            got.clear()
            consumer.assign(after)
        return len(got) >= len(after)

    eventually(enough, f"{len(after)} records", seconds=60)
    return got


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
        after = dict.fromkeys(partitions, 1)
        interrupt(broker, how)
        acks = producer.send_all([Message(topic, b"after %d" % p, partition=p) for p in (0, 1)])
        assert [ack.offset for ack in acks] == [1, 1]
        got = {(r.partition, r.offset, r.value) for r in taken(broker, consumer, after)}
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
