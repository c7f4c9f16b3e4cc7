"""The Python data source `format("ottla")` beside Spark's Kafka connector: the same rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import DataFrame, SparkSession

from compat_tests.conftest import MakeBroker, MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import batch, calls
from compat_tests.raw.wire import Wire

#: 2026-01-01, a record a second from there.
EPOCH = 1_767_225_600_000


class Sent(NamedTuple):
    """One record, in Kafka's words."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: Sequence[tuple[str, bytes | None]] | None = None


def send(broker: Broker, topic: str, records: Sequence[Sent], **settings: Any) -> None:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5} | named)
    failed: list[Any] = []
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=record.partition,
            timestamp=record.timestamp,
            headers=list(record.headers) if record.headers is not None else None,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not failed, failed[0]


def numbered(count: int, *, partitions: int = 1, first: int = 0) -> list[Sent]:
    return [
        Sent(n % partitions, b"key-%d" % (n % 11), b"value-%d" % n, EPOCH + 1000 * n)
        for n in range(first, first + count)
    ]


def frame(spark: SparkSession, source: str, broker: Broker, **options: Any) -> DataFrame:
    """`__` in an option's name stands for a dot."""
    reader = spark.read.format(source).option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load()


def rows(found: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, found.collect()), key=lambda row: (row[2], row[3], row[4]))


def same(spark: SparkSession, broker: Broker, **options: Any) -> list[tuple[Any, ...]]:
    """What both read; fails where they differ."""
    ours = frame(spark, "ottla", broker, **options)
    theirs = frame(spark, "kafka", broker, **options)
    assert ours.schema == theirs.schema
    found = rows(ours)
    assert found == rows(theirs)
    return found


def refusal(found: Callable[[], object]) -> str:
    with pytest.raises(Exception, match="pyspark_ottla") as raised:
        found()
    return str(raised.value)


# ------------------------------------------------------------------------------------------ batch


def test_rows_of_every_kind(spark: SparkSession, broker: Broker, keeping_topic: MakeTopic) -> None:
    """Nulls, empty ones, headers (twice the same, null, none), times, codecs."""
    topic = keeping_topic(3)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        base = EPOCH + 1000 * number
        send(
            broker,
            topic,
            [
                Sent(0, None, None, base),
                Sent(0, b"", b"", base + 1),
                Sent(
                    1, b"k\x00\xff", b"v" * 5000, base - 2, [("a", b"1"), ("a", None), ("é", b"")]
                ),
                Sent(1, "ключ".encode(), codec.encode(), base + 3, []),
                *(Sent(2, b"%d" % n, b"same" * 20, base + n) for n in range(200)),
            ],
            compression_type=codec,
        )
    found = same(spark, broker, subscribe=topic, includeHeaders="true")
    assert len(found) == 5 * 204
    assert found == same(spark, broker, subscribe=topic, includeHeaders="true", minPartitions=7)
    plain = same(spark, broker, subscribe=topic, maxRecordsPerPartition=100)
    assert plain == [row[:7] for row in found]


def test_the_brokers_own_times(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(1, message_timestamp_type="LogAppendTime")
    send(broker, topic, numbered(5))
    found = same(spark, broker, subscribe=topic)
    assert [row[6] for row in found] == [1] * 5


def test_times_of_1970_and_none(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic()
    with Wire(broker.host, broker.port) as wire:
        for timestamp in (0, -1, 1):
            calls.produced(wire, topic, batch.build(base_timestamp=timestamp))
    found = same(spark, broker, subscribe=topic)
    assert [row[6] for row in found] == [0, 0, 0]
    assert [round(row[5].timestamp() * 1000) for row in found] == [0, -1, 1]


def test_a_record_of_five_megabytes(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(1, max_message_bytes=6_000_000)
    large = [Sent(0, b"large", bytes([n]) * 5_000_000) for n in range(3)]
    send(broker, topic, [*numbered(3), *large], message_max_bytes=6_000_000)
    found = frame(spark, "ottla", broker, subscribe=topic).collect()
    assert [row.value for row in found][3:] == [record.value for record in large]


POSITIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "offsets": {"startingOffsets": {"0": 5, "1": -2}, "endingOffsets": {"0": 20, "1": -1}},
    "one time": {"startingTimestamp": EPOCH + 7_000, "endingTimestamp": EPOCH + 30_500},
    "times": {
        "startingOffsetsByTimestamp": {"0": EPOCH + 3_000, "1": EPOCH + 20_000},
        "endingOffsetsByTimestamp": {"0": EPOCH + 40_000, "1": EPOCH + 99_000},
    },
    "a time behind the end": {
        "startingTimestamp": EPOCH + 99_000_000,
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "a time that wins": {"startingTimestamp": EPOCH + 40_000, "startingOffsets": "earliest"},
    "nothing": {"startingOffsets": {"0": 7, "1": 0}, "endingOffsets": {"0": 7, "1": 0}},
}


def test_where_a_batch_begins_and_ends(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(2)
    send(broker, topic, numbered(60, partitions=2))
    counts = {}
    for name, given in POSITIONS.items():
        options = {
            key: json.dumps({topic: value}) if isinstance(value, dict) else value
            for key, value in given.items()
        }
        counts[name] = len(same(spark, broker, subscribe=topic, **options))
    assert counts == {
        "all": 60,
        "offsets": 45,
        "one time": 24,
        "times": 18 + 20,
        "a time behind the end": 0,
        "a time that wins": 20,
        "nothing": 0,
    }


def test_the_three_ways_to_name_topics(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic, new_name: Callable[[], str]
) -> None:
    first, second, empty = keeping_topic(2), keeping_topic(1), keeping_topic(3)
    send(broker, first, numbered(10, partitions=2))
    send(broker, second, numbered(7))
    assert len(same(spark, broker, subscribe=f"{first}, {second},{empty}")) == 17
    stem = first.rsplit("-", 1)[0]
    assert len(same(spark, broker, subscribePattern=f"{stem}-\\d+")) == 17
    assert same(spark, broker, subscribePattern="nobody-has-this.*") == []
    assert len(same(spark, broker, assign=json.dumps({first: [1], second: [0]}))) == 12
    missing = new_name()
    assert missing in refusal(frame(spark, "ottla", broker, subscribe=missing).collect)


def test_aborted_and_open_transactions(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    """Markers leave gaps at the ends of ranges; under read_committed aborted records are left out
    and an open transaction ends the log."""
    topic = keeping_topic(1)
    open_producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"{topic}-open"}
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    send(broker, topic, numbered(3))
    for number in range(4):
        producer.begin_transaction()
        for record in range(5):
            producer.produce(topic, b"%d-%d" % (number, record))
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    for level, count in (("read_uncommitted", 23), ("read_committed", 13)):
        found = same(spark, broker, subscribe=topic, kafka__isolation__level=level)
        assert len(found) == count
        # between markers, on markers, within an aborted transaction
        for start, end in ((0, 9), (8, 9), (9, 15), (14, 15), (15, 27), (26, 27)):
            offsets = {
                "startingOffsets": json.dumps({topic: {"0": start}}),
                "endingOffsets": json.dumps({topic: {"0": end}}),
            }
            part = frame(
                spark, "ottla", broker, subscribe=topic, kafka__isolation__level=level, **offsets
            )
            assert rows(part) == [row for row in found if start <= row[4] < end]
    open_producer.init_transactions(30)
    open_producer.begin_transaction()
    open_producer.produce(topic, b"open")
    open_producer.flush(30)
    send(broker, topic, numbered(2))
    assert len(same(spark, broker, subscribe=topic)) == 26
    assert len(same(spark, broker, subscribe=topic, kafka__isolation__level="read_committed")) == 13
    open_producer.abort_transaction(30)
    assert len(same(spark, broker, subscribe=topic, kafka__isolation__level="read_committed")) == 15


def test_a_batch_of_what_is_not_there(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(1)
    send(broker, topic, numbered(20))
    delete_before(broker, topic, 8)
    assert len(same(spark, broker, subscribe=topic)) == 12
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 3}})}
    said = refusal(frame(spark, "ottla", broker, **options).collect)
    assert "has offsets 8 to 20, not 3; set failOnDataLoss to false" in said
    assert len(same(spark, broker, **options, failOnDataLoss="false")) == 12
    ends = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 30}})}
    assert "8 to 20, not 30" in refusal(frame(spark, "ottla", broker, **ends).collect)


def test_options_are_refused_by_name(spark: SparkSession, broker: Broker) -> None:
    for name, value in {
        "startingOffset": "earliest",
        "maxOffsetsPerTrigger": "7",
        "kafka.auto.offset.reset": "latest",
        "kafka.key.deserializer": "x",
        "kafka.no.such.thing": "1",
        "minPartitions": "0",
    }.items():
        options = {name.replace(".", "__"): value, "subscribe": "t"}
        assert (
            f"BadOption: {name}: ".lower()
            in refusal(frame(spark, "ottla", broker, **options).collect).lower()
        )


def test_gaps_that_compaction_leaves(spark: SparkSession, make_broker: MakeBroker) -> None:
    """Ranges that begin, end and lie within them; from the files too, where there are any."""
    broker = make_broker({"log.cleaner.backoff.ms": "200", "auto.create.topics.enable": "false"})
    configs = {
        "cleanup_policy": "compact",
        "segment_ms": "200",
        "min_cleanable_dirty_ratio": "0.01",
        "retention_ms": "-1",
    }
    named = {key.replace("_", "."): value for key, value in configs.items()}
    with Wire(broker.host, broker.port) as wire:
        calls.create_topic(wire, "compacted", 1, named)

    def compacted() -> bool:
        # a file that is being written is never compacted, and Kafka closes it on the next record
        send(broker, "compacted", [Sent(0, b"key-%d" % (n % 7), b"%d" % n) for n in range(50)])
        with Wire(broker.host, broker.port) as wire:
            there = sum(b.record_count for b in calls.fetched_batches(wire, "compacted"))
        time.sleep(0.25)
        return there < next_offset(broker, "compacted") // 2

    eventually(compacted, "half of it compacted", 60)
    end = next_offset(broker, "compacted")
    for first, last in ((0, end), (0, end // 2), (end // 3, end)):
        eventually(partial(agree, spark, broker, first, last), "a pause of compaction", 60)
    broker.stop()


def agree(spark: SparkSession, broker: Broker, first: int, last: int) -> bool:
    """False where compaction, which goes on, has changed the topic between the reads."""
    options = {
        "subscribe": "compacted",
        "startingOffsets": json.dumps({"compacted": {"0": first}}),
        "endingOffsets": json.dumps({"compacted": {"0": last}}),
    }
    folder = {"ottla__log__dir": str(broker.data_dir)} if broker.target == "ottla" else {}
    before = rows(frame(spark, "kafka", broker, **options))
    found = rows(frame(spark, "ottla", broker, **options))
    from_disk = rows(frame(spark, "ottla", broker, **options, **folder))
    if before != rows(frame(spark, "kafka", broker, **options)):
        return False
    assert found == from_disk == before
    assert all(first <= row[4] < last for row in found)
    return True


def next_offset(broker: Broker, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = {TopicPartition(topic, 0): OffsetSpec.latest()}
    return int(next(iter(admin.list_offsets(asked).values())).result().offset)


@pytest.mark.ottla_only
def test_sealed_segments_straight_from_the_disk(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(2, segment_bytes=1 << 20)
    records = [Sent(n % 2, b"k%d" % n, b"v" * 1000, EPOCH + n, [("n", b"x")]) for n in range(5000)]
    send(broker, topic, records, compression_type="lz4")
    send(broker, topic, [Sent(n % 2, None, b"%d" % n * 300) for n in range(5000)])
    eventually(lambda: list((broker.data_dir / "log").glob("*.sealed")), "a sealed segment")
    options = {"subscribe": topic, "includeHeaders": "true", "minPartitions": 5}
    found = rows(frame(spark, "ottla", broker, **options, ottla__log__dir=str(broker.data_dir)))
    assert len(found) == 10_000
    assert found == rows(frame(spark, "kafka", broker, **options))


# -------------------------------------------------------------------------------------- the sink


def test_what_is_written_is_what_the_connector_writes(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    """Keys go to the same partitions; nulls, headers and a chosen partition arrive."""
    schema = "key binary, value binary, headers array<struct<key:string,value:binary>>, n int"
    data = [
        (b"key-%d" % n, None if n % 5 == 0 else b"v%d" % n, [("h", b"x"), ("n", None)] * (n % 2), n)
        for n in range(200)
    ]
    written = spark.createDataFrame(data, schema).repartition(3)
    found = {}
    for source in ("ottla", "kafka"):
        topic = keeping_topic(4)
        write(written, source, broker, topic=topic)
        read = frame(spark, "kafka", broker, subscribe=topic, includeHeaders="true").collect()
        found[source] = sorted(
            (row.key, row.partition, row.value or b"", str(row.headers)) for row in read
        )
    assert found["ottla"] == found["kafka"]
    assert len(found["ottla"]) == 200


def test_topic_and_partition_of_a_row(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    first, second = keeping_topic(2), keeping_topic(2)
    data = [(first, "a", 1), (second, "b", 0), (second, "c", 1)]
    written = spark.createDataFrame(data, "topic string, value string, partition int")
    write(written, "ottla", broker)
    found = rows(frame(spark, "kafka", broker, subscribe=f"{first},{second}"))
    assert [(row[2], row[1], row[3]) for row in found] == [(t, v.encode(), p) for t, v, p in data]
    write(written, "ottla", broker, topic=first)
    assert frame(spark, "ottla", broker, subscribe=first).count() == 4
    null = spark.createDataFrame([(None, "x")], "topic string, value string")
    assert "column topic is null" in refusal(lambda: write(null, "ottla", broker))
    nowhere = spark.createDataFrame([("x", 7)], "value string, partition int")
    assert first in refusal(
        lambda: write(nowhere, "ottla", broker, topic=first, kafka__delivery__timeout__ms=3000)
    )


def test_records_that_are_too_large(
    spark: SparkSession, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(1, max_message_bytes=100_000)
    large = spark.createDataFrame([("x" * 200_000,)], "value string")
    said = refusal(lambda: write(large, "ottla", broker, topic=topic))
    assert f"cannot write to {topic}" in said


def write(found: DataFrame, source: str, broker: Broker, **options: Any) -> None:
    writer = found.write.format(source).option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.mode("append").save()


def delete_before(broker: Broker, topic: str, offset: int) -> None:
    """Move the log's start, as retention would."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        assert future.result().low_watermark == offset
