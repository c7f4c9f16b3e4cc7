"""Batch reads through Spark's Kafka connector: every option that says what is read, and how."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from compat_tests.clients.base import Message
from compat_tests.conftest import MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.spark.streams import EPOCH, offsets, places, read, send, values
from compat_tests.spark.streams import numbered as numbered_records

COUNT = 100
COLUMNS = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)


@pytest.fixture
def numbered(broker: Broker, keeping_topic: MakeTopic, _kept: dict[str, str]) -> str:
    """A topic that all tests of this file read: two partitions of 100 records, one a second."""
    if "numbered" not in _kept:
        _kept["numbered"] = keeping_topic(2)
        send(broker, numbered_records(_kept["numbered"], COUNT, partitions=2))
    return _kept["numbered"]


@pytest.fixture(scope="module")
def _kept() -> dict[str, str]:
    return {}


def test_what_a_row_holds(spark: SparkSession, broker: Broker, keeping_topic: MakeTopic) -> None:
    topic = keeping_topic()
    headers = (("a", b"1"), ("a", b"\x00\xff"), ("none", None), ("", b""))
    send(
        broker,
        [
            Message(topic, b"value", b"key", timestamp=EPOCH + 1, headers=headers),
            Message(topic, None, None, timestamp=EPOCH + 2),
            Message(topic, b"", b"", timestamp=EPOCH + 3),
        ],
    )
    plain = read(spark, broker, subscribe=topic)
    assert {field.name: field.dataType for field in plain.schema} == COLUMNS
    frame = read(spark, broker, subscribe=topic, includeHeaders="true")
    assert {field.name: field.dataType for field in frame.schema} == COLUMNS | {"headers": HEADERS}
    frame = frame.selectExpr("*", "unix_millis(timestamp) AS millis")
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [(row.key, row.value) for row in rows] == [(b"key", b"value"), (None, None), (b"", b"")]
    assert [row.millis for row in rows] == [EPOCH + 1, EPOCH + 2, EPOCH + 3]
    assert {(row.topic, row.partition, row.timestampType) for row in rows} == {(topic, 0, 0)}
    assert [tuple(header) for header in rows[0].headers] == list(headers)
    assert [row.headers for row in rows[1:]] == [None, None]


def test_times_of_the_broker(spark: SparkSession, broker: Broker, new_topic: MakeTopic) -> None:
    topic = new_topic(1, message_timestamp_type="LogAppendTime")
    send(broker, [Message(topic, b"old", timestamp=EPOCH)])
    (row,) = (
        read(spark, broker, subscribe=topic)
        .selectExpr("*", "unix_millis(timestamp) AS at")
        .collect()
    )
    assert row.timestampType == 1
    assert row.at > EPOCH


def test_which_topics(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic, fetcher: str
) -> None:
    first, second = keeping_topic(2), keeping_topic(1)
    send(broker, [*numbered_records(first, 3, partitions=2), *numbered_records(second, 5)])

    def counts(**options: Any) -> dict[str, int]:
        rows = read(spark, broker, **options).groupBy("topic", "partition").count().collect()
        return {f"{row.topic} {row.partition}": row["count"] for row in rows}

    everything = {f"{first} 0": 3, f"{first} 1": 3, f"{second} 0": 5}
    assert counts(subscribe=f"{first}, {second}") == everything
    assert counts(subscribePattern=f"{first}|{second}.?") == everything
    assert counts(assign={first: [1], second: [0]}) == {f"{first} 1": 3, f"{second} 0": 5}


#: What is read of partition 0 and of partition 1; TOPIC stands for its name.
RANGES: dict[str, tuple[dict[str, Any], range, range]] = {
    "words": (
        {"startingOffsets": "earliest", "endingOffsets": "latest"},
        *(range(COUNT), range(COUNT)),
    ),
    "offsets": (
        {"startingOffsets": {"0": 10, "1": -2}, "endingOffsets": {"0": 20, "1": -1}},
        *(range(10, 20), range(COUNT)),
    ),
    "nothing": (
        {"startingOffsets": {"0": 7, "1": 100}, "endingOffsets": {"0": 7, "1": 100}},
        *(range(0), range(0)),
    ),
    "one time": (
        {"startingTimestamp": str(EPOCH + 10_000), "endingTimestamp": str(EPOCH + 19_500)},
        *(range(10, 20), range(10, 20)),
    ),
    "a time for each": (
        {
            "startingOffsetsByTimestamp": {"0": EPOCH + 500, "1": EPOCH + 50_000},
            "endingOffsetsByTimestamp": {"0": EPOCH + 30_000, "1": EPOCH + 9_999_000},
        },
        *(range(1, 30), range(50, COUNT)),
    ),
    "the one time wins": (
        {
            "startingTimestamp": str(EPOCH + 90_000),
            "startingOffsetsByTimestamp": {"0": EPOCH, "1": EPOCH},
            "startingOffsets": "earliest",
            "endingTimestamp": str(EPOCH + 91_000),
            "endingOffsets": {"0": 3, "1": 3},
        },
        *(range(90, 91), range(90, 91)),
    ),
    "times win over offsets": (
        {
            "startingOffsetsByTimestamp": {"0": EPOCH + 98_000, "1": EPOCH + 99_000},
            "startingOffsets": "earliest",
        },
        *(range(98, COUNT), range(99, COUNT)),
    ),
    "behind the last": (
        {
            "startingTimestamp": str(EPOCH + 9_999_000),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        *(range(0), range(0)),
    ),
}


@pytest.mark.parametrize("name", RANGES)
def test_from_where_to_where(
    spark: SparkSession, broker: Broker, numbered: str, fetcher: str, name: str
) -> None:
    options, *wanted = RANGES[name]
    by_topic = {k: {numbered: v} if isinstance(v, dict) else v for k, v in options.items()}
    rows = read(spark, broker, subscribe=numbered, **by_topic).collect()
    assert places(rows) == offsets(*wanted)
    assert [int(value) for value in values(rows)] == [place.offset for place in places(rows)]


def test_a_time_behind_the_last_record_fails_unless_told_otherwise(
    spark: SparkSession, broker: Broker, numbered: str, fetcher: str
) -> None:
    late = str(EPOCH + 9_999_000)
    for options in ({}, {"startingOffsetsByTimestampStrategy": "error"}):
        with pytest.raises(Exception, match="No offset matched"):
            read(spark, broker, subscribe=numbered, startingTimestamp=late, **options).collect()


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 2),
        ({"minPartitions": "6"}, 6),
        ({"minPartitions": "1"}, 2),
        # a batch of 4.2.0 looks at this one only where the other asks for more than there are
        ({"maxRecordsPerPartition": "30"}, 2),
        ({"maxRecordsPerPartition": "60", "minPartitions": "6"}, 8),
    ],
)
def test_into_how_many_tasks(
    spark: SparkSession, broker: Broker, numbered: str, options: dict[str, str], tasks: int
) -> None:
    frame = read(spark, broker, subscribe=numbered, **options)
    rows = frame.withColumn("task", spark_partition_id()).collect()
    assert places(rows) == offsets(range(COUNT), range(COUNT))
    assert len({row.task for row in rows}) == tasks


@pytest.mark.parametrize(
    ("options", "group"),
    [
        ({}, "spark-kafka-relation-"),
        ({"groupIdPrefix": "a-prefix"}, "a-prefix-"),
        ({"kafka__group__id": "the-one-group"}, "the-one-group"),
    ],
)
def test_under_which_group(
    spark: SparkSession, broker: Broker, numbered: str, options: dict[str, str], group: str
) -> None:
    """Only the deprecated fetcher joins a group, which stays behind, empty."""
    name = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def known() -> set[str]:
        return {listed.group_id for listed in admin.list_consumer_groups().result().valid}

    before = known()
    spark.conf.set(name, "true")
    try:
        assert read(spark, broker, subscribe=numbered, **options).count() == 2 * COUNT
    finally:
        spark.conf.unset(name)
    added = known() - before
    assert len(added) == 1, added
    assert added.pop().startswith(group)


def test_patience_is_settable(spark: SparkSession, broker: Broker, numbered: str) -> None:
    options = {
        "kafkaConsumer__pollTimeoutMs": "20000",
        "fetchOffset__numRetries": "1",
        "fetchOffset__retryIntervalMs": "50",
        "kafka__fetch__max__wait__ms": "50",
        "kafka__max__poll__records": "7",
        "kafka__max__partition__fetch__bytes": "100",
        "kafka__check__crcs": "true",
        "kafka__client__rack": "somewhere",
        "kafka__isolation__level": "read_committed",
    }
    rows = read(spark, broker, subscribe=numbered, **options).collect()
    assert places(rows) == offsets(range(COUNT), range(COUNT))


def test_gives_up_on_a_broker_that_is_not_there(spark: SparkSession, broker: Broker) -> None:
    broker.kill()
    frame = read(
        spark,
        broker,
        assign={"any": [0]},
        fetchOffset__numRetries="1",
        fetchOffset__retryIntervalMs="10",
        kafka__default__api__timeout__ms="500",
        kafka__request__timeout__ms="400",
    )
    with pytest.raises(Exception, match=r"(?i)timed? ?out"):
        frame.collect()
    broker.start()


def test_a_topic_that_is_not_there(
    spark: SparkSession, strict_broker: Broker, fetcher: str
) -> None:
    frame = read(spark, strict_broker, subscribe="nowhere")
    if fetcher == "admin client":
        with pytest.raises(Exception, match="UnknownTopicOrPartition"):
            frame.collect()
    else:  # waits for an assignment, is given none, and is content
        assert frame.count() == 0


# ----------------------------------------------------------------------------- what is not there


def aged_out(broker: Broker, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(topic, 0, before)
    deleted = admin.delete_records([place])[place].result(30)
    assert deleted.low_watermark == before


def test_records_that_are_gone(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic()
    send(broker, numbered_records(topic, 20))
    aged_out(broker, topic, 12)
    assert places(read(spark, broker, subscribe=topic).collect()) == offsets(range(12, 20))
    asked = {"subscribe": topic, "startingOffsets": {topic: {"0": 3}}}
    with pytest.raises(Exception, match=r"(?i)data loss|data may have been lost|missing"):
        read(spark, broker, **asked, failOnDataLoss="true").collect()
    rows = read(spark, broker, **asked, failOnDataLoss="false").collect()
    assert places(rows) == offsets(range(12, 20))


def test_a_compacted_topic(spark: SparkSession, broker: Broker, keeping_topic: MakeTopic) -> None:
    """Gaps are no loss: neither those in the middle nor those before the end."""
    topic = keeping_topic(
        1,
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio="0.01",
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=200,
    )
    now = [
        Message(topic, b"%d" % n, b"twice" if n in (2, 3, 7) else b"key-%d" % n) for n in range(10)
    ]
    send(broker, now)

    def cleaned() -> bool:
        send(broker, [Message(topic, b"", b"roll")])  # only a rolled segment is compacted
        kept = values(read(spark, broker, subscribe=topic).collect())
        return [value for value in kept if value] == [b"%d" % n for n in (0, 1, 4, 5, 6, 7, 8, 9)]

    eventually(cleaned, "the older records of a key are gone", 90)
    found = read(spark, broker, subscribe=topic, minPartitions="3", failOnDataLoss="true").collect()
    assert [place.offset for place in places(found)][:8] == [0, 1, 4, 5, 6, 7, 8, 9]


# ------------------------------------------------------------------------------------ large, many


def test_every_codec(spark: SparkSession, broker: Broker, keeping_topic: MakeTopic) -> None:
    topic = keeping_topic()
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        messages = [Message(topic, f"{codec} {n} ".encode() * 50) for n in range(20)]
        send(broker, messages, compression_codec=codec, linger_ms=100)
    found = values(read(spark, broker, subscribe=topic).collect())
    assert found == [f"{codec} {n} ".encode() * 50 for codec in codecs for n in range(20)]


def test_records_of_five_megabytes(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(1, max_message_bytes=6_000_000)
    large = [bytes([n]) * 5_000_000 for n in range(3)]
    send(broker, [Message(topic, value) for value in large], message_max_bytes=6_000_000)
    frame = read(spark, broker, subscribe=topic)
    rows = frame.selectExpr("partition", "offset", "length(value) AS size", "md5(value) AS hash")
    found = sorted(rows.collect(), key=lambda row: row.offset)
    assert [row.size for row in found] == [5_000_000] * 3
    assert values(frame.filter("offset = 1").collect()) == large[1:2]


def test_fifty_partitions(spark: SparkSession, broker: Broker, keeping_topic: MakeTopic) -> None:
    topic = keeping_topic(50)
    send(broker, numbered_records(topic, 4, partitions=50))
    starts = {topic: {str(p): p % 4 for p in range(50)}}
    rows = read(spark, broker, subscribe=topic, startingOffsets=json.dumps(starts)).collect()
    assert places(rows) == offsets(*(range(p % 4, 4) for p in range(50)))
