"""Reading and streaming through Spark's connector, in the fewest words a test needs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from compat_tests.clients.base import Message
from compat_tests.clients.confluent import quiet
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually

#: Timestamps of the tests' records begin here: 2026-01-01.
EPOCH = 1_767_225_600_000


class Place(NamedTuple):
    partition: int
    offset: int


def option(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def read(spark: SparkSession, broker: Broker, **options: Any) -> DataFrame:
    """A batch; `__` in an option's name stands for a dot, anything but text becomes JSON."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), option(value))
    return reader.load()


def places(rows: Iterable[Row]) -> list[Place]:
    """Where the rows came from, in order."""
    return sorted(Place(row["partition"], row["offset"]) for row in rows)


def offsets(*ranges: range) -> list[Place]:
    """The places of these offsets, a range a partition."""
    return [Place(p, offset) for p, wanted in enumerate(ranges) for offset in wanted]


def values(rows: Iterable[Row]) -> list[bytes]:
    """By partition, then by offset."""
    ordered = sorted(rows, key=lambda row: (row["partition"], row["offset"]))
    return [bytes(row["value"]) for row in ordered]


def send(broker: Broker, messages: Iterable[Message], **settings: Any) -> None:
    """Produce and wait; `_` in a setting stands for a dot. Raises AssertionError."""
    failed: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "error_cb": quiet, "log_level": 0}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )
    produce(producer, messages, failed)
    assert producer.flush(30) == 0, "records are still on their way after 30 s"
    assert not failed, failed[0]


def produce(
    producer: confluent_kafka.Producer, messages: Iterable[Message], failed: list[object]
) -> None:
    for message in messages:
        producer.produce(
            message.topic,
            message.value,
            message.key,
            # -1: the client's partitioner; 0: now
            partition=-1 if message.partition is None else message.partition,
            timestamp=message.timestamp or 0,
            headers=list(message.headers),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)


def numbered(topic: str, count: int, *, partitions: int = 1, first: int = 0) -> list[Message]:
    """`count` records for each partition: record n a second after record n - 1, its value n."""
    return [
        Message(topic, b"%d" % n, b"key-%d" % n, partition, EPOCH + 1000 * n)
        for n in range(first, first + count)
        for partition in range(partitions)
    ]


class Collected:
    """A stream whose rows are kept, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[Row]] = []
        self.query: StreamingQuery

    @property
    def rows(self) -> list[Row]:
        return list(itertools.chain.from_iterable(self.batches))

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch that had any."""
        return [len(batch) for batch in self.batches if batch]

    def keep(self, batch: DataFrame, _: int) -> None:
        self.batches.append(batch.collect())

    def until(self, count: int, seconds: float = 60) -> list[Row]:
        """Wait for so many rows; raises what the query raised."""

        def there() -> bool:
            if (error := self.query.exception()) is not None:
                raise error
            return len(self.rows) >= count

        eventually(there, f"{count} rows", seconds)
        return self.rows

    def finished(self, seconds: int = 60) -> list[Row]:
        """Wait until the query ends by itself; raises what it raised."""
        assert self.query.awaitTermination(seconds), f"still running after {seconds} s"
        return self.rows


class Streams:
    """Starts streams with a checkpoint folder each, or one by name to go on from."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._serial = itertools.count()
        self._queries: list[StreamingQuery] = []

    def checkpoint(self, name: str | None = None) -> str:
        return str(self.folder / (name or f"checkpoint-{next(self._serial)}"))

    def source(self, broker: Broker, **options: Any) -> DataFrame:
        """As `read`, for a stream."""
        reader = self.spark.readStream.format("kafka")
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), option(value))
        return reader.load()

    def collect(
        self,
        source: DataFrame,
        trigger: dict[str, Any] | None = None,
        checkpoint: str | None = None,
    ) -> Collected:
        """Keep every row; the default trigger is available-now."""
        kept = Collected()
        kept.query = self._started(
            source.writeStream.foreachBatch(kept.keep)
            .trigger(**(trigger or {"availableNow": True}))
            .option("checkpointLocation", self.checkpoint(checkpoint))
            .start()
        )
        return kept

    def write(
        self,
        source: DataFrame,
        broker: Broker,
        trigger: dict[str, Any],
        *,
        mode: str = "append",
        checkpoint: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        """Into Kafka."""
        writer = source.writeStream.format("kafka").outputMode(mode).trigger(**trigger)
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
        writer = writer.option("checkpointLocation", self.checkpoint(checkpoint))
        for name, value in options.items():
            writer = writer.option(name.replace("__", "."), option(value))
        return self._started(writer.start())

    def _started(self, query: StreamingQuery) -> StreamingQuery:
        self._queries.append(query)
        return query

    def stop(self) -> None:
        for query in self._queries:
            query.stop()
