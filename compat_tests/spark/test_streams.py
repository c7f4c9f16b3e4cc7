"""Streaming reads through Spark's Kafka connector: where they start, how much they take at a time,
every trigger, restarts, and what happens to a topic meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.query import StreamingQuery

from compat_tests.clients.base import Message
from compat_tests.conftest import MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire
from compat_tests.spark.streams import (
    EPOCH,
    Streams,
    numbered,
    offsets,
    places,
    read,
    send,
    values,
)

ALWAYS = {"processingTime": "100 milliseconds"}

#: Where a stream over two partitions of ten records starts; available-now ends it at the end.
STARTS: dict[str, tuple[dict[str, Any], range, range]] = {
    "earliest": ({"startingOffsets": "earliest"}, range(10), range(10)),
    "offsets": ({"startingOffsets": {"0": 4, "1": -1}}, range(4, 10), range(0)),
    "one time": ({"startingTimestamp": str(EPOCH + 6_500)}, range(7, 10), range(7, 10)),
    "a time for each": (
        {"startingOffsetsByTimestamp": {"0": EPOCH, "1": EPOCH + 8_000}},
        *(range(10), range(8, 10)),
    ),
    "behind the last": (
        {
            "startingTimestamp": str(EPOCH + 9_999_000),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        *(range(0), range(0)),
    ),
}


@pytest.mark.parametrize("name", STARTS)
def test_where_a_stream_starts(
    streams: Streams, broker: Broker, keeping_topic: MakeTopic, fetcher: str, name: str
) -> None:
    options, *wanted = STARTS[name]
    topic = keeping_topic(2)
    send(broker, numbered(topic, 10, partitions=2))
    by_topic = {k: {topic: v} if isinstance(v, dict) else v for k, v in options.items()}
    stream = streams.collect(streams.source(broker, subscribe=topic, **by_topic))
    assert places(stream.finished()) == offsets(*wanted)


def test_only_what_comes_after_the_start(
    streams: Streams, broker: Broker, keeping_topic: MakeTopic, fetcher: str
) -> None:
    """`latest` is the default; then rows as they come, headers and a group of one's own along."""
    topic = keeping_topic(2)
    send(broker, numbered(topic, 5, partitions=2))
    source = streams.source(
        broker,
        assign={topic: [0, 1]},
        includeHeaders="true",
        groupIdPrefix="streams-of-ours",
        kafka__fetch__max__wait__ms="20",
    )
    stream = streams.collect(source, ALWAYS)
    eventually(lambda: stream.query.lastProgress is not None, "a first look", 60)
    for first in (5, 8):
        late = Message(topic, b"last", partition=1, headers=(("h", b"%d" % first),))
        send(broker, [*numbered(topic, 2, first=first), late])
        stream.until((first - 5) + 3)
    rows = stream.until(6)
    assert places(rows) == offsets(range(5, 9), range(5, 7))
    assert [tuple(row.headers[0]) for row in rows if row.headers] == [("h", b"5"), ("h", b"8")]


# ------------------------------------------------------------------------------ how much at a time


def test_at_most_so_many_at_a_time(
    streams: Streams, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(2)
    send(broker, [*numbered(topic, 30), *[Message(topic, b"few", partition=1)] * 10])
    source = streams.source(
        broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="10"
    )
    stream = streams.collect(source)
    assert places(stream.finished()) == offsets(range(30), range(10))
    assert len(stream.sizes) >= 4
    assert max(stream.sizes) <= 11  # shares are rounded up


def test_all_at_once(streams: Streams, broker: Broker, keeping_topic: MakeTopic) -> None:
    topic = keeping_topic()
    send(broker, numbered(topic, 30))
    source = streams.source(
        broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="10"
    )
    stream = streams.collect(source, {"once": True})
    assert places(stream.finished()) == offsets(range(30))
    assert stream.sizes == [30]


def test_not_before_so_many_are_there(
    streams: Streams, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic()
    send(broker, numbered(topic, 10))
    source = streams.source(
        broker,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="10m",
    )
    stream = streams.collect(source, ALWAYS)
    stream.until(10)
    send(broker, numbered(topic, 4, first=10))
    waiting = stream.query.lastProgress
    eventually(lambda: stream.query.lastProgress != waiting, "a look at four records", 60)
    send(broker, numbered(topic, 6, first=14))
    stream.until(20)
    assert stream.sizes == [10, 10]


def test_too_few_after_the_longest_delay(
    streams: Streams, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic()
    source = streams.source(
        broker,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="1000",
        maxTriggerDelay="500ms",
    )
    send(broker, numbered(topic, 3))
    stream = streams.collect(source, ALWAYS)
    assert places(stream.until(3)) == offsets(range(3))


@pytest.mark.parametrize(
    ("options", "tasks"), [({"minPartitions": "4"}, 4), ({"maxRecordsPerPartition": "5"}, 4)]
)
def test_into_how_many_tasks(
    streams: Streams,
    broker: Broker,
    keeping_topic: MakeTopic,
    options: dict[str, str],
    tasks: int,
) -> None:
    topic = keeping_topic()
    send(broker, numbered(topic, 20))
    source = streams.source(broker, subscribe=topic, startingOffsets="earliest", **options)
    stream = streams.collect(source.withColumn("task", spark_partition_id()))
    rows = stream.finished()
    assert places(rows) == offsets(range(20))
    assert len({row.task for row in rows}) == tasks


# ---------------------------------------------------------------------------------------- triggers


def arrived(query: StreamingQuery, spark: SparkSession, broker: Broker, topic: str) -> list[bytes]:
    if (error := query.exception()) is not None:
        raise error
    return values(read(spark, broker, subscribe=topic).collect())


@pytest.mark.parametrize(
    ("trigger", "mode"),
    [
        ({"continuous": "300 milliseconds"}, "append"),
        ({"realTime": "1 second"}, "update"),
        ({"processingTime": "0 seconds"}, "append"),
    ],
    ids=["continuous", "real-time", "micro-batch"],
)
def test_from_topic_to_topic(
    spark: SparkSession,
    streams: Streams,
    broker: Broker,
    keeping_topic: MakeTopic,
    trigger: dict[str, str],
    mode: str,
) -> None:
    """In each mode of execution; stopped, it goes on where its checkpoint says."""
    source_topic, result = keeping_topic(1), keeping_topic(1)
    send(broker, numbered(source_topic, 20))

    def start() -> StreamingQuery:
        source = streams.source(broker, subscribe=source_topic, startingOffsets="earliest")
        rows = source.selectExpr("key", "concat('seen ', CAST(value AS STRING)) AS value")
        return streams.write(rows, broker, trigger, mode=mode, checkpoint="one", topic=result)

    wanted = [b"seen %d" % n for n in range(20)]
    query = start()
    eventually(lambda: arrived(query, spark, broker, result) == wanted, "20 results", 60)
    send(broker, numbered(source_topic, 10, first=20))
    wanted += [b"seen %d" % n for n in range(20, 30)]
    eventually(lambda: arrived(query, spark, broker, result) == wanted, "30 results", 60)
    query.stop()
    send(broker, numbered(source_topic, 5, first=30))
    again = start()
    wanted += [b"seen %d" % n for n in range(30, 35)]

    def gone_on() -> bool:
        found = arrived(again, spark, broker, result)
        return found[-5:] == wanted[-5:] and set(found) == set(wanted)  # at least once

    eventually(gone_on, "35 results", 60)


# ---------------------------------------------------------------------------------------- restarts


def test_goes_on_at_the_checkpoint_after_the_broker_was_killed(
    streams: Streams, broker: Broker, keeping_topic: MakeTopic, fetcher: str
) -> None:
    topic = keeping_topic(2)
    send(broker, numbered(topic, 10, partitions=2))
    source = streams.source(
        broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="4"
    )
    before = streams.collect(source, checkpoint="one").finished()
    broker.kill()
    broker.start()
    send(broker, numbered(topic, 10, partitions=2, first=10))
    after = streams.collect(source, checkpoint="one").finished()
    assert places(before) == offsets(range(10), range(10))
    assert places(after) == offsets(range(10, 20), range(10, 20))


def test_a_running_stream_outlives_its_broker(
    streams: Streams, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(2)
    send(broker, numbered(topic, 10, partitions=2))
    source = streams.source(broker, subscribe=topic, startingOffsets="earliest")
    stream = streams.collect(source, ALWAYS)
    stream.until(20)
    broker.kill()
    broker.start()
    send(broker, numbered(topic, 10, partitions=2, first=10))
    assert places(stream.until(40)) == offsets(range(20), range(20))


# ---------------------------------------------------------------------- the topic changes meanwhile


def test_new_partitions_and_new_topics_are_read_from_their_beginning(
    streams: Streams, broker: Broker, keeping_topic: MakeTopic, fetcher: str
) -> None:
    topic = keeping_topic(1)
    source = streams.source(
        broker,
        subscribePattern=f"{topic}.*",
        startingOffsets="latest",
        kafka__metadata__max__age__ms="200",
    )
    stream = streams.collect(source, ALWAYS)
    eventually(lambda: stream.query.lastProgress is not None, "a first look", 60)
    send(broker, numbered(topic, 2))
    stream.until(2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    with Wire(broker.host, broker.port) as wire:
        calls.create_topic(wire, f"{topic}-more", 1, {"retention.ms": "-1"})
        calls.ready_topic(wire, topic)
    send(broker, [Message(topic, b"new", partition=p) for p in (1, 2)])
    send(broker, [Message(f"{topic}-more", b"newer")])
    rows = stream.until(5)
    assert sorted((row.topic, row.partition, row.offset) for row in rows) == [
        *((topic, 0, 0), (topic, 0, 1), (topic, 1, 0), (topic, 2, 0)),
        (f"{topic}-more", 0, 0),
    ]


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    place = TopicPartition(topic, 0, offset)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert admin.delete_records([place])[place].result(30).low_watermark == offset


@pytest.mark.parametrize("fails", [True, False])
def test_records_aged_out_before_they_were_read(
    streams: Streams, broker: Broker, keeping_topic: MakeTopic, fails: bool
) -> None:
    topic = keeping_topic()
    send(broker, numbered(topic, 5))
    options = {"startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    source = streams.source(broker, subscribe=topic, **options)
    assert places(streams.collect(source, checkpoint="one").finished()) == offsets(range(5))
    send(broker, numbered(topic, 10, first=5))
    delete_before(broker, topic, 9)
    stream = streams.collect(source, checkpoint="one")
    if fails:
        with pytest.raises(Exception, match=r"(?i)failOnDataLoss|data loss|may have been lost"):
            stream.finished()
    else:
        assert places(stream.finished()) == offsets(range(9, 15))


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_made_anew_with_fewer_records(
    streams: Streams, broker: Broker, keeping_topic: MakeTopic, fails: bool
) -> None:
    topic = keeping_topic()
    send(broker, numbered(topic, 10))
    options = {"startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    source = streams.source(broker, subscribe=topic, **options)
    streams.collect(source, checkpoint="one").finished()
    with Wire(broker.host, broker.port) as wire:
        calls.delete_topic(wire, topic)
        calls.create_topic(wire, topic, 1, {"retention.ms": "-1"})
    send(broker, numbered(topic, 3))
    stream = streams.collect(source, checkpoint="one")
    if fails:
        with pytest.raises(Exception, match=r"(?i)failOnDataLoss|data loss|may have been lost"):
            stream.finished()
    else:  # it starts over only when the new topic has outgrown the old
        assert places(stream.finished()) == []
