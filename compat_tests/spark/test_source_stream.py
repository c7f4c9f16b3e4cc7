"""Streams of `format("ottla")`: triggers, checkpoints, brokers that go and come back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compat_tests.conftest import MakeBroker, MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.spark.test_source import Sent, delete_before, frame, numbered, send

SCHEMA = "topic STRING, partition INT, offset BIGINT"
#: Retention leaves records of any age alone.
KEPT = {"log.retention.ms": "-1"}


class Stream:
    """A query from a topic into Parquet, to be started again and again from its checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, broker: Broker, **options: Any) -> None:
        self.spark = spark
        self.out = str(folder / "out")
        self.checkpoint = str(folder / "checkpoint")
        self.options = {"kafka__bootstrap__servers": broker.bootstrap} | options
        self.query: StreamingQuery | None = None

    def start(self, **trigger: Any) -> StreamingQuery:
        reader = self.spark.readStream.format("ottla")
        for name, value in self.options.items():
            reader = reader.option(name.replace("__", "."), value)
        self.query = (
            reader.load()
            .writeStream.format("parquet")
            .option("path", self.out)
            .option("checkpointLocation", self.checkpoint)
            .trigger(**trigger)
            .start()
        )
        return self.query

    def run(self) -> list[tuple[int, int]]:
        """All there is now; then the rows of each micro-batch."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(60), "the query does not end"
        return [(p["batchId"], p["numInputRows"]) for p in query.recentProgress]

    def until(self, count: int) -> None:
        """Wait until the running query has written that many rows."""
        assert self.query is not None
        deadline = time.monotonic() + 60
        while self.rows().count() < count:
            assert self.query.isActive, self.query.exception()
            assert time.monotonic() < deadline, f"{self.rows().count()} of {count} rows"
            time.sleep(0.1)

    def rows(self) -> DataFrame:
        if not Path(self.out).exists():
            return self.spark.createDataFrame([], SCHEMA)
        return self.spark.read.schema(SCHEMA).parquet(self.out)

    def offsets(self) -> list[tuple[int, int]]:
        """Partition and offset of each row; fails when one is there twice."""
        found = sorted((row.partition, row.offset) for row in self.rows().collect())
        assert len(set(found)) == len(found)
        return found

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Stream]]:
    made: list[Stream] = []

    def make(broker: Broker, topic: str, **options: Any) -> Stream:
        given = {"subscribe": topic, "startingOffsets": "earliest"} | options
        made.append(Stream(spark, tmp_path / str(len(made)), broker, **given))
        return made[-1]

    yield make
    for each in made:
        each.stop()


MakeStream = Callable[..., Stream]


def failure(running: Stream) -> str:
    """How a run of the query fails."""
    query = running.start(availableNow=True)
    with pytest.raises(Exception, match="pyspark_ottla"):
        query.awaitTermination(60)
    return str(query.exception())


def test_available_now_in_bounded_batches(
    stream: MakeStream, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(2)
    send(broker, topic, numbered(100, partitions=2))
    running = stream(broker, topic, maxOffsetsPerTrigger=30, commitGroupId=f"{topic}-lag")
    batches = running.run()
    assert [rows for _, rows in batches if rows] == [30, 30, 30, 10]
    assert len(running.offsets()) == 100
    assert committed(broker, f"{topic}-lag") == {(topic, 0): 50, (topic, 1): 50}
    send(broker, topic, numbered(7, partitions=2))
    assert [rows for _, rows in running.run() if rows] == [7]
    assert len(running.offsets()) == 107
    assert committed(broker, f"{topic}-lag") == {(topic, 0): 54, (topic, 1): 53}
    progress = running.query.recentProgress[0]["sources"][0]  # type: ignore[union-attr]
    assert json.loads(progress["endOffset"]) == {topic: {"0": 54, "1": 53}}


def committed(broker: Broker, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    (found,) = [future.result() for future in asked.values()]
    return {(part.topic, part.partition): part.offset for part in found.topic_partitions}


def test_an_empty_topic_and_one_that_fills(
    stream: MakeStream, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(3)
    running = stream(broker, topic)
    running.run()
    assert running.offsets() == []
    send(broker, topic, numbered(1))
    running.run()
    assert running.offsets() == [(0, 0)]


def test_a_stream_over_a_killed_broker(
    stream: MakeStream, make_broker: MakeBroker, spark: SparkSession
) -> None:
    """The broker goes without a word between two micro-batches, twice; the query stays."""
    broker = make_broker(KEPT)
    create(broker, "killed", 2)
    running = stream(broker, "killed")
    running.start(processingTime="100 milliseconds")
    sent = 0
    for _ in range(3):
        send(broker, "killed", numbered(50, partitions=2, first=sent))
        sent += 50
        running.until(sent)
        broker.kill()
        broker.start()
    running.stop()
    broker.kill()
    broker.start()
    send(broker, "killed", numbered(10, partitions=2, first=sent))
    running.run()
    assert len(running.offsets()) == sent + 10
    broker.stop()


def test_partitions_that_come_while_it_runs(
    stream: MakeStream, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(1)
    send(broker, topic, numbered(10))
    running = stream(broker, topic)
    running.start(processingTime="100 milliseconds")
    running.until(10)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_partitions([NewPartitions(topic, 3)]).values():
        future.result()
    send(broker, topic, numbered(20, partitions=3))
    running.until(30)
    assert {partition for partition, _ in running.offsets()} == {0, 1, 2}


def test_records_that_went_before_they_were_read(
    stream: MakeStream, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(1)
    send(broker, topic, numbered(10))
    strict = stream(broker, topic)
    strict.run()
    send(broker, topic, numbered(20))
    delete_before(broker, topic, 15)
    said = failure(strict)
    assert f"offsets 10 to 14 of {topic}-0 are gone" in said
    assert "set failOnDataLoss to false" in said
    strict.options["failOnDataLoss"] = "false"
    strict.run()
    assert [offset for _, offset in strict.offsets()] == [*range(10), *range(15, 30)]


def test_a_topic_that_was_made_anew(
    stream: MakeStream, broker: Broker, keeping_topic: MakeTopic
) -> None:
    topic = keeping_topic(1)
    send(broker, topic, numbered(10))
    running = stream(broker, topic)
    running.run()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_topics([topic], operation_timeout=10).values():
        future.result()
    create(broker, topic, 1)
    send(broker, topic, numbered(3))
    said = failure(running)
    assert f"{topic}-0 ends at offset 3, and the checkpoint has read up to 10" in said
    assert "needs a new checkpoint folder" in said


def create(broker: Broker, topic: str, partitions: int) -> None:
    """Again and again while a topic of that name is being deleted."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    deadline = time.monotonic() + 20
    while True:
        made = admin.create_topics(
            [NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})], operation_timeout=10
        )
        error = next(iter(made.values())).exception()
        if error is None:
            return
        assert time.monotonic() < deadline, error
        time.sleep(0.2)


def test_a_stream_into_a_topic(
    stream: MakeStream,
    spark: SparkSession,
    broker: Broker,
    keeping_topic: MakeTopic,
    tmp_path: Path,
) -> None:
    source, sink = keeping_topic(2), keeping_topic(2)
    records = [Sent(n % 2, b"k%d" % n, b"v%d" % n, 0, [("n", b"%d" % n)]) for n in range(40)]
    send(broker, source, records)

    def run() -> None:
        query = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
            .select("key", "value", "headers")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("topic", sink)
            .option("checkpointLocation", str(tmp_path / "sink"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    run()
    send(broker, source, records)
    run()
    found = frame(spark, "kafka", broker, subscribe=sink, includeHeaders="true").collect()
    assert sorted((row.key, row.value, bytes(row.headers[0].value)) for row in found) == sorted(
        (r.key, r.value, r.headers[0][1]) for r in records * 2 if r.headers
    )


def test_the_connector_goes_on_where_it_stopped(
    stream: MakeStream, broker: Broker, keeping_topic: MakeTopic
) -> None:
    """Offsets are written as the connector writes them: progress and tools read alike."""
    topic = keeping_topic(2)
    send(broker, topic, numbered(9, partitions=2))
    running = stream(broker, topic)
    running.run()
    written = sorted(Path(running.checkpoint, "offsets").glob("[0-9]*"))[-1].read_text()
    assert json.loads(written.splitlines()[-1]) == {topic: {"0": 5, "1": 4}}
