"""Writing rows to partitions of a topic in order, each once, also when a task is repeated.

Spark's own sink cannot: it has no column for the timestamp, and a repeated task writes its rows
again. Here one task owns a target partition, its producer is idempotent and gives up rather
than leave a gap, and where to go on is what the partition itself holds: its end offset, less the
end offset before the first record of this job. Nothing is added to the records.

Runs on executors: confluent-kafka and ottla must be installed there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark import TaskContext

# Its producer may be gone while its last request is still on its way to the broker.
SETTLE_S = 1.0
ASK_S = 60.0
ABANDON_S = 15.0
RESULT = "partition int, sent long, held long"

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


@dataclass(frozen=True)
class Target:
    """The topic, the end offset of each partition before the first record, and how to write.

    `rate` is records a second in one task; None: as fast as it goes."""

    topic: str
    base: dict[int, int]
    settings: dict[str, str]
    compression: str = "lz4"
    rate: float | None = None
    resumed: bool = False


class ReplayFailed(Exception):
    """A task cannot go on; Spark shows the text."""


def write(batches: Iterator[pa.RecordBatch], target: Target) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: rows of (partition, key, value, headers, ms), sorted by partition and order.

    Gives a row for each partition: how many records were sent and how many were there before.
    Raises ReplayFailed when the partition holds something else than what would be sent."""
    results = []
    writer: _Writer | None = None
    try:
        for partition, record in _records(batches):
            if writer is None or writer.partition != partition:
                if writer is not None:
                    results.append(writer.finish())
                writer = _Writer(target, partition)
            writer.take(record)
        if writer is not None:
            results.append(writer.finish())
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
    columns = [list(column) for column in zip(*results, strict=True)] or [[], [], []]
    types = (pa.int32(), pa.int64(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, ["partition", "sent", "held"])


def _records(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, Record]]:
    for batch in batches:
        columns = [
            batch.column(name).to_pylist()
            for name in ("partition", "key", "value", "headers", "ms")
        ]
        for partition, key, value, headers, ms in zip(*columns, strict=True):
            pairs = [(header["key"], header["value"]) for header in headers or ()]
            yield partition, (key, value, pairs, ms)


class _Writer:
    """One target partition in one attempt of one task."""

    def __init__(self, target: Target, partition: int) -> None:
        self.partition = partition
        self._target = target
        self._position = 0
        self._sent = 0
        self._failed: list[str] = []
        self._held, self._last_held = _held(target, partition)
        self._producer = Producer(
            {
                "linger.ms": 20,
                "compression.type": target.compression,
                "queue.buffering.max.kbytes": 131_072,
                "message.max.bytes": 100_000_000,  # the broker's own limit is the one that counts
                **target.settings,
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "log_level": 0,
            }
        )
        self._started = time.monotonic()

    def take(self, record: Record) -> None:
        """The next record of the partition: passed over when it is there, otherwise sent."""
        self._position += 1
        if self._position < self._held:
            return
        if self._position == self._held:
            self._compare(record)
            return
        key, value, headers, ms = record
        if ms == 0:
            raise ReplayFailed(
                f"record {self._position} of partition {self.partition} has timestamp 0 "
                "(1970-01-01), which librdkafka replaces by the present; archive and replay "
                "without it (--from, --until)"
            )
        while True:
            try:
                self._producer.produce(
                    self._target.topic,
                    value,
                    key,
                    self.partition,
                    on_delivery=self._delivered,
                    timestamp=ms,
                    headers=headers,
                )
                break
            except BufferError:
                self._poll(1.0)
        self._sent += 1
        if self._sent % 1000 == 0 or self._target.rate is not None:
            self._poll(0)
            self._slow_down()

    def finish(self) -> tuple[int, int, int]:
        while len(self._producer) > 0:
            self._poll(1.0)
        self._poll(0)
        if self._position < self._held:
            raise ReplayFailed(
                f"partition {self.partition} of {self._target.topic} holds {self._held} records "
                f"of this replay, which has only {self._position}: somebody else writes to it"
            )
        return self.partition, self._sent, self._held

    def abandon(self) -> None:
        """Send nothing more: the next attempt counts what is there, and a producer that lives on
        in this Python process would add to it."""
        self._producer.purge(in_queue=True, in_flight=False)
        deadline = time.monotonic() + ABANDON_S
        while len(self._producer) > 0 and time.monotonic() < deadline:
            self._producer.poll(0.1)
        self._producer.purge(in_queue=True, in_flight=True)

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        if self._failed:
            raise ReplayFailed(f"{self._target.topic}-{self.partition}: {self._failed[0]}")

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._failed.append(str(error))

    def _slow_down(self) -> None:
        if self._target.rate is not None:
            ahead = self._sent / self._target.rate - (time.monotonic() - self._started)
            if ahead > 0.005:
                time.sleep(ahead)

    def _compare(self, record: Record) -> None:
        if self._last_held is not None and self._last_held != record:
            raise ReplayFailed(
                f"record {self._held} that {self._target.topic}-{self.partition} holds since the "
                "replay began is not the one the archive has there: somebody else writes to it"
            )


def _held(target: Target, partition: int) -> tuple[int, Record | None]:
    """How many records of this job the partition holds, and the last of them."""
    quiet = {"error_cb": lambda error: None, "log_level": 0}
    consumer = Consumer(
        {
            **target.settings,
            **quiet,
            "group.id": "ottla-replay",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted",
        }
    )
    place = TopicPartition(target.topic, partition)
    try:
        end = _patiently(lambda: _end(consumer, place))
        if end == target.base[partition] and not target.resumed and _first_attempt():
            return 0, None
        while True:
            time.sleep(SETTLE_S)
            again = _patiently(lambda: _end(consumer, place))
            if again == end:
                break
            end = again
        held = end - target.base[partition]
        if held <= 0:
            return held, None
        consumer.assign([TopicPartition(target.topic, partition, end - 1)])
        return held, _patiently(lambda: _one(consumer))
    finally:
        consumer.close()


def _first_attempt() -> bool:
    context = TaskContext.get()
    return context is None or context.attemptNumber() == 0


def _end(consumer: Any, place: TopicPartition) -> int:
    return int(consumer.get_watermark_offsets(place, timeout=5)[1])


def _one(consumer: Any) -> Record | None:
    message = consumer.poll(5)
    if message is None or message.error():
        raise ReplayFailed("the last record of the target could not be read")
    return (
        message.key(),
        message.value(),
        list(message.headers() or []),
        int(message.timestamp()[1]),
    )


def _patiently(ask: Callable[[], Any]) -> Any:
    """A broker that restarts is asked again."""
    deadline = time.monotonic() + ASK_S
    while True:
        try:
            return ask()
        except Exception as error:  # confluent-kafka has one class for everything, ours another
            if time.monotonic() > deadline:
                raise ReplayFailed(str(error)) from error
        time.sleep(0.2)
