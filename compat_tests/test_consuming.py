"""Positions, offsets and waiting, with every client."""

from __future__ import annotations

import time

import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Client, Consumer, Failed, Message, Partition
from compat_tests.conftest import MakeTopic

NOW = int(time.time() * 1000)


@pytest.fixture
def filled(client: Client, topic: str) -> Partition:
    """Ten records in batches of two, timestamps NOW + 100, 200, ..."""
    with client.producer(linger_ms=200) as producer:
        for i in range(0, 10, 2):
            producer.send_all(
                [Message(topic, b"%d" % n, timestamp=NOW + 100 * (n + 1)) for n in (i, i + 1)]
            )
    return Partition(topic, 0)


def values(consumer: Consumer, count: int) -> list[int]:
    return [int(record.value or b"") for record in consumer.take(count)]


def check_new_ones_come(client: Client, consumer: Consumer, filled: Partition) -> None:
    """It stands at the end, which its client looks up in its own time: records are written until
    one comes, and what comes is none of the old ones."""
    assert consumer.poll(1) == []
    written = 10
    got: list[int] = []
    with client.producer() as producer:
        while not got:  # pytest's time limit ends it
            producer.send_all([Message(filled.topic, b"%d" % written)])
            written += 1
            got = [int(record.value or b"") for record in consumer.poll(1)]
    got += values(consumer, written - 1 - got[-1])
    assert got[0] >= 10
    assert got == list(range(got[0], written))


@for_clients()
def test_seek(client: Client, filled: Partition) -> None:
    with client.consumer() as consumer:
        consumer.assign({filled: 7})
        assert values(consumer, 3) == [7, 8, 9]
        assert consumer.position(filled) == 10
        consumer.seek(filled, 3)  # inside a batch
        assert values(consumer, 7) == [3, 4, 5, 6, 7, 8, 9]
        consumer.seek_to_beginning(filled)
        assert values(consumer, 10) == list(range(10))
        consumer.seek(filled, 5)
        consumer.seek_to_end(filled)
        check_new_ones_come(client, consumer, filled)


@for_clients()
def test_beginning_and_end_offsets(client: Client, filled: Partition) -> None:
    with client.consumer() as consumer:
        assert consumer.beginning_offsets([filled]) == {filled: 0}
        assert consumer.end_offsets([filled]) == {filled: 10}


@for_clients()
def test_offsets_for_times(client: Client, filled: Partition) -> None:
    with client.consumer() as consumer:
        for asked, offset in [
            (0, 0),
            (NOW + 100, 0),
            (NOW + 101, 1),
            (NOW + 650, 6),
            (NOW + 1000, 9),
        ]:
            assert consumer.offsets_for_times({filled: asked}) == {filled: offset}, asked
        beyond = consumer.offsets_for_times({filled: NOW + 1001})[filled]
        # librdkafka answers the end for "none"
        assert beyond in ({10, -1} if client.name == "confluent-kafka" else {-1})


@for_clients("list_offsets")
def test_list_offsets_by_name(client: Client, filled: Partition) -> None:
    with client.admin() as admin:
        asked = {"earliest": 0, "latest": 10, "max_timestamp": 9, str(NOW + 300): 2}
        for at, offset in asked.items():
            assert admin.list_offsets({filled: at})[filled].offset == offset, at
        assert admin.list_offsets({filled: "max_timestamp"})[filled].timestamp == NOW + 1000


@for_clients()
@pytest.mark.parametrize("reset", ["none", "earliest", "latest"])
def test_an_offset_out_of_range(client: Client, filled: Partition, reset: str) -> None:
    with client.consumer(auto_offset_reset=reset) as consumer:
        consumer.assign({filled: 5000})
        if reset == "earliest":
            assert values(consumer, 10) == list(range(10))
        elif reset == "latest":
            check_new_ones_come(client, consumer, filled)
        else:
            with pytest.raises(Failed) as told:
                consumer.take(1)
            assert told.value.error in {"OFFSET_OUT_OF_RANGE", "OffsetOutOfRangeException"}


@for_clients()
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_isolation_levels_read_plain_records(client: Client, filled: Partition, level: str) -> None:
    got = client.read({filled: 0}, 10, isolation_level=level)
    assert [r.offset for r in got] == list(range(10))


@for_clients()
def test_consuming_while_producing(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(3)
    got = []
    with client.consumer() as consumer, client.producer(linger_ms=5) as producer:
        consumer.assign({Partition(topic, p): 0 for p in range(3)})
        pending = []
        for i in range(900):
            pending.append(producer.send(Message(topic, b"%d" % i, partition=i % 3)))
            if i % 100 == 99:
                got += consumer.poll(0.05)
        producer.flush()
        for one in pending:
            one.result()
        got += consumer.take(900 - len(got))
    for p in range(3):
        seen = [int(r.value or b"") for r in got if r.partition == p]
        assert seen == list(range(p, 900, 3))


@for_clients()
def test_a_waiting_consumer_gets_a_record_at_once(client: Client, topic: str) -> None:
    """The long poll is woken by the record, not by the end of its wait."""
    with client.consumer(max_wait_ms=10_000) as consumer, client.producer() as producer:
        consumer.assign({Partition(topic, 0): 0})
        producer.send_all([Message(topic, b"first")])
        consumer.take(1)
        waits = []
        for i in range(5):
            consumer.poll(0.1)  # the next fetch is on its way and waits
            started = time.monotonic()
            producer.send_all([Message(topic, b"%d" % i)])
            consumer.take(1)
            waits.append(time.monotonic() - started)
    assert sorted(waits)[2] < 5, waits


@for_clients("delete_records")
def test_records_that_were_deleted(client: Client, filled: Partition) -> None:
    with client.admin() as admin, client.consumer(auto_offset_reset="earliest") as consumer:
        assert admin.delete_records({filled: 4}) == {filled: 4}
        assert consumer.beginning_offsets([filled]) == {filled: 4}
        consumer.assign({filled: 0})
        assert values(consumer, 6) == [4, 5, 6, 7, 8, 9]
        assert admin.delete_records({filled: -1}) == {filled: 10}
        assert consumer.beginning_offsets([filled]) == {filled: 10}
        with client.producer() as producer:
            (ack,) = producer.send_all([Message(filled.topic, b"10")])
        assert ack.offset == 10
        assert values(consumer, 1) == [10]
