"""Offsets of a transaction and plain commits, for the same group and partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import confluent_kafka
import kafka
import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Client, Partition
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw.errors import name_of
from compat_tests.raw.wire import Wire
from compat_tests.transactions.ready import wait_for_coordinators

Commit = Callable[[str, str, str, int], None]
"""Bootstrap, group, topic, offset."""
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


def with_confluent(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        consumer.commit(
            offsets=[confluent_kafka.TopicPartition(topic, 0, offset)], asynchronous=False
        )
    finally:
        consumer.close()


def with_kafka_python(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
    )
    try:
        at = kafka.TopicPartition(topic, 0)
        consumer.assign([at])
        consumer.commit({at: kafka.OffsetAndMetadata(offset, "", -1)})
    finally:
        consumer.close()


class Told(NamedTuple):
    """What OffsetFetch says: to everybody, and to who wants only what no transaction will move."""

    now: int
    stable: int | str


def told(wire: Wire, group: str, topic: str) -> Told:
    found: list[int | str] = []
    for stable in (False, True):
        wanted = [{"name": topic, "partition_indexes": [0]}]
        answer = wire.call(
            "OffsetFetch",
            9,
            require_stable=stable,
            groups=[{"group_id": group, "topics": wanted}],
        ).groups[0]
        assert answer.error_code == 0, name_of(answer.error_code)
        (part,) = answer.topics[0].partitions
        error = name_of(part.error_code)
        found.append(part.committed_offset if error == "NONE" else error)
    now, settled = found
    assert isinstance(now, int), now
    return Told(now, settled)


@for_clients()
@pytest.mark.parametrize("commit_plainly", [with_confluent, with_kafka_python])
def test_the_one_that_came_last_stands(
    broker: Broker,
    client: Client,
    topic: str,
    wire: Wire,
    group: str,
    transactional_id: str,
    commit_plainly: Commit,
) -> None:
    wait_for_coordinators(wire, group)
    at = Partition(topic, 0)

    def plainly(offset: int) -> None:
        commit_plainly(broker.bootstrap, group, topic, offset)

    def becomes(now: int, stable: int | str) -> None:
        """Kafka answers an end before its markers are written."""
        wanted = Told(now, stable)
        eventually(lambda: told(wire, group, topic) == wanted, f"{wanted}")

    with client.producer(transactional_id=transactional_id) as producer:
        # The transaction's came last: it stands when it is committed.
        plainly(3)
        producer.begin()
        producer.send_offsets({at: 5}, group)
        becomes(3, UNSTABLE)
        producer.commit()
        becomes(5, 5)
        # The plain one came last: it stands, and whatever becomes of the transaction, it stays.
        for commit in (True, False):
            producer.begin()
            producer.send_offsets({at: 7}, group)
            plainly(11 + commit)
            becomes(11 + commit, UNSTABLE)
            producer.commit() if commit else producer.abort()
            becomes(11 + commit, 11 + commit)
        # In turns, within one transaction.
        producer.begin()
        producer.send_offsets({at: 20}, group)
        plainly(15)
        producer.send_offsets({at: 21}, group)
        becomes(15, UNSTABLE)
        producer.commit()
        becomes(21, 21)
        plainly(2)
        becomes(2, 2)
