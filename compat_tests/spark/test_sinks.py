"""Spark writes topics: batches and streams, every column and option of the sink."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from compat_tests.conftest import MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire
from compat_tests.spark.streams import Streams, numbered, read, send, values

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def write(frame: DataFrame, broker: Broker, **options: str) -> None:
    """A batch; `__` in an option's name stands for a dot."""
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def rows_of(spark: SparkSession, broker: Broker, topic: str) -> list[Row]:
    frame = read(spark, broker, subscribe=topic, includeHeaders="true")
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


def test_columns(spark: SparkSession, broker: Broker, keeping_topic: MakeTopic) -> None:
    """Binary and text, nulls, headers twice the same, a partition by hand, a topic by row."""
    one, other = keeping_topic(3), keeping_topic(1)
    header = "array<struct<key: string, value: binary>>"
    schema = f"topic string, partition int, key binary, value string, headers {header}"
    frame = spark.createDataFrame(
        [
            (one, 2, bytearray(b"k\x00\xff"), "text", [("a", bytearray(b"1")), ("a", None)]),
            (one, 0, None, None, None),
            (one, 0, bytearray(b""), "", []),
            (other, None, bytearray(b"key"), "elsewhere", None),
        ],
        schema,
    ).coalesce(1)
    write(frame, broker, includeHeaders="true")
    rows = rows_of(spark, broker, one)
    assert [(row.partition, row.key, row.value) for row in rows] == [
        (0, None, None),
        (0, b"", b""),
        (2, b"k\x00\xff", b"text"),
    ]
    assert [tuple(header) for header in rows[2].headers] == [("a", b"1"), ("a", None)]
    assert [row.headers for row in rows[:2]] == [None, None]
    assert values(rows_of(spark, broker, other)) == [b"elsewhere"]


def test_the_option_wins_over_the_column(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    column, option = keeping_topic(), keeping_topic()
    write(
        spark.createDataFrame([(column, "v")], "topic string, value string"), broker, topic=option
    )
    assert values(rows_of(spark, broker, option)) == [b"v"]
    assert rows_of(spark, broker, column) == []


def test_keys_go_where_every_client_sends_them(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(3)
    frame = spark.range(300).selectExpr("CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) value")
    write(frame.coalesce(1), broker, topic=topic)
    rows = rows_of(spark, broker, topic)
    assert len(rows) == 300
    for key in {row.key for row in rows}:
        mine = [row for row in rows if row.key == key]
        assert len({row.partition for row in mine}) == 1
        assert [int(row.value) for row in mine] == sorted(int(row.value) for row in mine)


@pytest.mark.parametrize("codec", CODECS)
def test_options_of_the_producer(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic, codec: str
) -> None:
    topic = keeping_topic()
    frame = spark.range(0, 200, 1, 1).selectExpr("repeat(CAST(id AS STRING), 20) AS value")
    write(
        frame,
        broker,
        topic=topic,
        kafka__compression__type=codec,
        kafka__linger__ms="200",
        kafka__acks="1" if codec == "none" else "all",
        kafka__enable__idempotence="false" if codec == "none" else "true",
    )
    assert values(rows_of(spark, broker, topic)) == [b"%d" % n * 20 for n in range(200)]
    with Wire(broker.host, broker.port) as wire:
        batches = calls.fetched_batches(wire, topic)
    assert {batch.attributes & 7 for batch in batches} == {CODECS[codec]}


def test_large_records(spark: SparkSession, broker: Broker, keeping_topic: MakeTopic) -> None:
    topic = keeping_topic(1, max_message_bytes=6_000_000)
    frame = spark.range(0, 2, 1, 1).selectExpr("repeat('x', 5000000) AS value")
    write(frame, broker, topic=topic, kafka__max__request__size="6000000")
    assert [len(value) for value in values(rows_of(spark, broker, topic))] == [5_000_000] * 2


REFUSED: dict[str, tuple[str, dict[str, str], str]] = {
    "no topic": ("SELECT 'v' AS value", {}, "topic"),
    "null for a topic": ("SELECT 'v' AS value, CAST(null AS STRING) AS topic", {}, "null topic"),
    "no value": ("SELECT 'k' AS key", {"topic": "any"}, "value"),
    "a number for a value": ("SELECT 1 AS value", {"topic": "any"}, "value"),
    "a name no topic may have": ("SELECT 'v' AS value", {"topic": "no such!"}, "InvalidTopic"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(spark: SparkSession, broker: Broker, name: str) -> None:
    query, options, said = REFUSED[name]
    with pytest.raises(Exception, match=said):
        write(spark.sql(query), broker, **options)


def test_a_record_that_is_too_large(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(1, max_message_bytes=1000)
    frame = spark.range(0, 1, 1, 1).selectExpr("repeat('x', 5000) AS value")
    with pytest.raises(Exception, match="RecordTooLarge"):
        write(frame, broker, topic=topic)


def test_a_missing_topic(spark: SparkSession, broker: Broker, strict_broker: Broker) -> None:
    """Made where the broker makes topics; else the producer gives up after max.block.ms."""
    frame = spark.range(0, 1, 1, 1).selectExpr("'v' AS value")
    write(frame, broker, topic="made-by-the-sink")
    assert values(rows_of(spark, broker, "made-by-the-sink")) == [b"v"]
    with pytest.raises(Exception, match="nowhere not present in metadata"):
        write(frame, strict_broker, topic="nowhere", kafka__max__block__ms="500")


def test_a_stream_into_topics(
    spark: SparkSession, streams: Streams, broker: Broker, keeping_topic: MakeTopic
) -> None:
    """By the topic column, with partitions and headers; restarted, the broker killed between."""
    source_topic, even, odd = keeping_topic(1), keeping_topic(2), keeping_topic(2)

    def run(**options: Any) -> None:
        rows = streams.source(broker, subscribe=source_topic, startingOffsets="earliest")
        rows = rows.selectExpr(
            f"IF(offset % 2 = 0, '{even}', '{odd}') AS topic",
            "1 AS partition",
            "key",
            "value",
            "array(named_struct('key', 'from', 'value', CAST(value AS BINARY))) AS headers",
        )
        query = streams.write(
            rows, broker, {"availableNow": True}, checkpoint="one", includeHeaders="true", **options
        )
        assert query.awaitTermination(60)

    send(broker, numbered(source_topic, 10))
    run()
    broker.kill()
    broker.start()
    send(broker, numbered(source_topic, 10, first=10))
    run()
    for topic, wanted in ((even, range(0, 20, 2)), (odd, range(1, 20, 2))):
        rows = rows_of(spark, broker, topic)
        assert [int(row.value) for row in rows] == list(wanted)
        assert {row.partition for row in rows} == {1}
        assert [int(row.headers[0]["value"]) for row in rows] == list(wanted)


def test_every_batch_twice_over(
    spark: SparkSession, streams: Streams, broker: Broker, keeping_topic: MakeTopic
) -> None:
    """foreachBatch writes with the batch sink."""
    source_topic, result = keeping_topic(2), keeping_topic(1)
    send(broker, numbered(source_topic, 10, partitions=2))

    def both(batch: DataFrame, number: int) -> None:
        write(batch.selectExpr("key", "value").coalesce(1), broker, topic=result)

    source = streams.source(broker, subscribe=source_topic, startingOffsets="earliest")
    query = (
        source.writeStream.foreachBatch(both)
        .trigger(availableNow=True)
        .option("checkpointLocation", streams.checkpoint())
        .start()
    )
    assert query.awaitTermination(60)
    found = sorted(int(value) for value in values(rows_of(spark, broker, result)))
    assert found == sorted([*range(10)] * 2)
