"""What Spark sees of transactions: open, committed and aborted ones, at both isolation levels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from pyspark.sql import SparkSession

from compat_tests.clients.confluent import quiet
from compat_tests.conftest import MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire
from compat_tests.spark.streams import Streams, numbered, places, produce, read, send, values

MakeProducer = Callable[[], confluent_kafka.Producer]


@pytest.fixture
def transactional(broker: Broker, new_name: Callable[[], str]) -> Iterator[MakeProducer]:
    """Producers with transactions; what they leave open is aborted at the end of the test."""
    made: list[confluent_kafka.Producer] = []

    def make() -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": new_name(),
                "error_cb": quiet,
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        with contextlib.suppress(confluent_kafka.KafkaException):  # there may be none
            producer.abort_transaction(30)


def ended(producer: confluent_kafka.Producer, broker: Broker, topic: str, end: str) -> None:
    """Commit or abort, and wait for the marker: Kafka answers before it has written it."""
    if end == "commit":
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)

    def is_stable() -> bool:
        stable, last = (calls.list_offset(wire, topic, -1, isolation_level=n) for n in (1, 0))
        return bool(stable.offset == last.offset)

    with Wire(broker.host, broker.port) as wire:
        eventually(is_stable, "no open transaction", 60)


def transact(
    producer: confluent_kafka.Producer,
    broker: Broker,
    topic: str,
    numbers: range,
    end: str | None = None,
) -> None:
    """`end`: commit, abort, or None to leave it open with its records in the log."""
    failed: list[object] = []
    producer.begin_transaction()
    produce(producer, numbered(topic, len(numbers), first=numbers.start), failed)
    assert producer.flush(30) == 0
    assert not failed, failed[0]
    if end is not None:
        ended(producer, broker, topic, end)


@pytest.fixture
def mixed(broker: Broker, keeping_topic: MakeTopic, transactional: MakeProducer) -> str:
    """0-4 plain, 5-9 committed, 10-14 aborted, 15-19 plain, 20-24 open, 25-29 plain."""
    topic = keeping_topic()
    producer = transactional()
    send(broker, numbered(topic, 5))
    transact(producer, broker, topic, range(5, 10), "commit")
    transact(producer, broker, topic, range(10, 15), "abort")
    send(broker, numbered(topic, 5, first=15))
    transact(producer, broker, topic, range(20, 25))
    send(broker, numbered(topic, 5, first=25))
    return topic


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        ("read_uncommitted", [*range(30)]),
        # nothing behind the first record of the open transaction
        ("read_committed", [*range(10), *range(15, 20)]),
    ],
)
def test_a_batch(
    spark: SparkSession, broker: Broker, mixed: str, fetcher: str, level: str, wanted: list[int]
) -> None:
    """Markers and aborted records are gaps, not losses."""
    frame = read(spark, broker, subscribe=mixed, kafka__isolation__level=level)
    assert [int(value) for value in values(frame.collect())] == wanted
    parts = read(
        spark, broker, subscribe=mixed, kafka__isolation__level=level, minPartitions="4",
        failOnDataLoss="true",
    )  # fmt: skip
    assert [int(value) for value in values(parts.collect())] == wanted


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_stream_waits_for_the_end(
    streams: Streams,
    broker: Broker,
    keeping_topic: MakeTopic,
    transactional: MakeProducer,
    end: str,
) -> None:
    topic = keeping_topic()
    producer = transactional()
    send(broker, numbered(topic, 3))
    transact(producer, broker, topic, range(3, 6))
    send(broker, numbered(topic, 3, first=6))
    source = streams.source(
        broker,
        subscribe=topic,
        startingOffsets="earliest",
        kafka__isolation__level="read_committed",
    )
    stream = streams.collect(source, checkpoint="one")
    assert [place.offset for place in places(stream.finished())] == [0, 1, 2]
    ended(producer, broker, topic, end)
    later = streams.collect(source, checkpoint="one")
    wanted = range(3, 9) if end == "commit" else range(6, 9)
    assert [int(value) for value in values(later.finished())] == list(wanted)
    # a marker is last: nothing more to read, and no wait for a record that never comes
    assert streams.collect(source, checkpoint="one").finished() == []


def test_nothing_but_aborted_records(
    spark: SparkSession,
    streams: Streams,
    broker: Broker,
    keeping_topic: MakeTopic,
    transactional: MakeProducer,
) -> None:
    topic = keeping_topic()
    transact(transactional(), broker, topic, range(0, 10), "abort")
    frame = read(spark, broker, subscribe=topic, kafka__isolation__level="read_committed")
    assert frame.collect() == []
    source = streams.source(
        broker,
        subscribe=topic,
        startingOffsets="earliest",
        kafka__isolation__level="read_committed",
    )
    assert streams.collect(source, checkpoint="one").finished() == []
    send(broker, numbered(topic, 2))
    later = streams.collect(source, checkpoint="one").finished()
    assert [place.offset for place in places(later)] == [11, 12]


def test_transactions_over_a_killed_broker(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic, transactional: MakeProducer
) -> None:
    topic = keeping_topic()
    producer = transactional()
    transact(producer, broker, topic, range(0, 5), "abort")
    transact(producer, broker, topic, range(5, 10))
    broker.kill()
    broker.start()
    frame = read(spark, broker, subscribe=topic, kafka__isolation__level="read_committed")
    assert frame.collect() == []
    ended(producer, broker, topic, "commit")
    assert [int(value) for value in values(frame.collect())] == [*range(5, 10)]
