"""Writing rows to topics: the columns of Spark's Kafka connector, at least once.

A task has written when every record of it is acknowledged. A task that fails and is run again
writes its records again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_ottla.cluster import kafka, make_client
from pyspark_ottla.errors import BadOption, WriteFailed
from pyspark_ottla.options import Options
from pyspark_ottla.properties import producer_config, translate

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: The columns that are looked at, and the types that each may have; others are left alone.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


class Sink:
    """The write side of one query; a copy of it is on every executor. Raises BadOption."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._settings = translate(options)
        self._config = producer_config(self._settings)
        self._topic = options.get("topic")
        types = {field.name: field.dataType.simpleString() for field in schema}
        for column, allowed in COLUMNS.items():
            if column in types and types[column] not in allowed:
                raise BadOption(
                    f"column {column}", f"is {types[column]}, not {' or '.join(allowed)}: cast it"
                )
        if "value" not in types:
            raise BadOption("column value", f"is missing; there are {', '.join(types) or 'none'}")
        if self._topic is None and "topic" not in types:
            raise BadOption("topic", "is missing: set this option, or add a column of that name")
        self._columns = [column for column in COLUMNS if column in types]

    def write(self, batches: Iterator[Any]) -> WriterCommitMessage:
        """Send all rows and wait for their acknowledgements. Raises WriteFailed, BadOption."""
        sending = _Sending(
            make_client(kafka().Producer, self._config), self._settings.block_timeout
        )
        for batch in batches:
            for row in self._rows(batch):
                sending.send(*row)
        sending.finish()
        return WriterCommitMessage()

    def _rows(
        self, batch: Any
    ) -> Iterator[tuple[str, Any, Any, int | None, list[tuple[str, Any]] | None]]:
        """Topic, key, value, partition and headers of each row."""
        count = batch.num_rows
        found = {name: batch.column(name).to_pylist() for name in self._columns}
        nothing = [None] * count
        topics = [self._topic] * count if self._topic is not None else found["topic"]
        for topic, key, value, partition, headers in zip(
            topics,
            found.get("key", nothing),
            found["value"],
            found.get("partition", nothing),
            found.get("headers", nothing),
            strict=True,
        ):
            if topic is None:
                raise BadOption("topic", "a row's column topic is null: fill it, or set the option")
            named = [(pair["key"], pair["value"]) for pair in headers] if headers else None
            yield topic, key, value, partition, named


class _Sending:
    """One task's producer."""

    def __init__(self, client: Any, block_timeout: float) -> None:
        self._client = client
        self._block_timeout = block_timeout
        self._failed: str | None = None

    def send(
        self,
        topic: str,
        key: Any,
        value: Any,
        partition: int | None,
        headers: list[tuple[str, Any]] | None,
    ) -> None:
        """Give one record to the client; wait while it is full (kafka.max.block.ms)."""
        more = {} if partition is None else {"partition": partition}
        if headers is not None:
            more["headers"] = headers  # type: ignore[assignment]  # for produce, which is untyped
        deadline = 0.0
        while True:
            try:
                self._client.produce(topic, value, key, on_delivery=self._delivered, **more)
                break
            except BufferError:
                now = time.monotonic()
                deadline = deadline or now + self._block_timeout
                if now > deadline:
                    raise WriteFailed(
                        "no room for more records within kafka.max.block.ms: the broker takes"
                        " them too slowly, or not at all"
                    ) from None
                self._client.poll(0.05)
            except kafka().KafkaException as error:
                raise WriteFailed(f"cannot write to {topic}: {error.args[0].str()}") from None
        self._client.poll(0)
        self._check()

    def _delivered(self, error: Any, message: Any) -> None:
        """Called for failures only (delivery.report.only.error)."""
        if error is None or self._failed is not None:
            return
        why = error.str()
        if error.code() == kafka().KafkaError._UNKNOWN_PARTITION:
            # a frame that was read from another topic has such a column
            why = (
                f"it has no partition {message.partition()}, which the column partition asks for:"
                " drop the column, or add partitions"
            )
        self._failed = f"cannot write to {message.topic()}: {why}"

    def _check(self) -> None:
        if self._failed is not None:
            self._client.purge()
            raise WriteFailed(self._failed)

    def finish(self) -> None:
        """Wait until each record is acknowledged or has failed (kafka.delivery.timeout.ms)."""
        while self._client.flush(1.0):
            self._check()
        self._check()


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("ottla")`."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._sink = Sink(options, schema)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """The rows of one task."""
        return self._sink.write(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("ottla")`."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._sink = Sink(options, schema)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """The rows of one task of a micro-batch."""
        return self._sink.write(iterator)
