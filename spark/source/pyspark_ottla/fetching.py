"""Reading a range through the broker, on an executor.

The consumer joins no group, is told where to begin, and never moves by itself
(auto.offset.reset=error), so that what is missing is told apart:

- a gap, where compaction or a transaction's marker took offsets: the next record is behind it, or
  the end of the log is (librdkafka's partition EOF): the range is read;
- records that retention took: the offset is below the log's start, which the broker says
  (OFFSET_OUT_OF_RANGE): data loss;
- an offset past the log's end: the topic was made anew, or lost records: data loss too.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark_ottla.cluster import kafka, make_client
from pyspark_ottla.errors import BrokerError
from pyspark_ottla.planning import Losses
from pyspark_ottla.properties import Settings, consumer_config
from pyspark_ottla.ranges import Range
from pyspark_ottla.rows import CREATE_TIME, Rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: The client is asked again after this many seconds; it answers at once when it has enough.
_TURN: Final = 0.1
#: A log that ends within a range is given this long to grow to where it was when the range was
#: planned: a new leader may lag for a moment.
_SHORT_LOG_SECONDS: Final = 10.0

#: This process's idle consumers, by their settings, the one used last at the end: a Python worker
#: serves many tasks, and a consumer that is connected answers a small micro-batch in milliseconds.
_idle: dict[frozenset[tuple[str, str]], Any] = {}
_MOST_IDLE: Final = 2


@contextmanager
def consumer(settings: Settings, prefix: str | None) -> Iterator[Any]:
    """A consumer with these settings, nobody else's meanwhile. prefix: groupIdPrefix."""
    key = frozenset({**settings.client, "": prefix or ""}.items())
    client = _idle.pop(key, None)
    if client is None:
        group = f"{prefix or 'spark-ottla-source'}-{uuid.uuid4()}-executor"
        client = make_client(kafka().Consumer, consumer_config(settings, group))
    try:
        yield client
    except Exception:
        client.close()
        raise
    client.unassign()
    for older in (_idle.pop(key, None), *_more_than(_MOST_IDLE - 1)):
        if older is not None:
            older.close()
    _idle[key] = client


def _more_than(most: int) -> Iterator[Any]:
    while len(_idle) > most:
        yield _idle.pop(next(iter(_idle)))


class Fetcher:
    """Reads ranges of one query."""

    def __init__(
        self,
        settings: Settings,
        losses: Losses,
        schema: StructType,
        prefix: str | None,
        wait: float,
    ) -> None:
        """wait: seconds without a record after which a read fails (kafkaConsumer.pollTimeoutMs)."""
        self._settings = settings
        self._losses = losses
        self._schema = schema
        self._prefix = prefix
        self._wait = wait

    def read(self, range_: Range) -> Iterator[Any]:
        """RecordBatches of the range. Raises DataLoss, BrokerError."""
        rows = Rows(self._schema, range_.topic, range_.partition)
        yield from self.into(rows, range_)
        yield from rows.drain()

    def into(self, rows: Rows, range_: Range) -> Iterator[Any]:
        """As read, with rows that may hold some already; what is left over stays in them."""
        with consumer(self._settings, self._prefix) as client:
            reading = _Reading(client, self._losses, range_, self._wait)
            client.assign([kafka().TopicPartition(range_.topic, range_.partition, range_.start)])
            while reading.next < range_.end:
                most = min(self._settings.chunk, range_.end - reading.next)
                _append(rows, reading.records(client.consume(most, _TURN)))
                if rows.full:
                    yield from rows.drain()


class _Reading:
    """How far one range is read."""

    def __init__(self, client: Any, losses: Losses, range_: Range, wait: float) -> None:
        self._client = client
        self._losses = losses
        self._range = range_
        self._wait = wait
        #: The next offset that is wanted; the range's end when it is read.
        self.next = range_.start
        self._heard = time.monotonic()
        #: Since when the log has ended within the range, and where; None while it has not.
        self._short: tuple[float, int] | None = None
        self._last_error = "the broker sent nothing"

    def records(self, messages: list[Any]) -> list[Any]:
        """Those of `messages` that are records of the range."""
        end = self._range.end
        if not messages:
            self._waited()
            return messages
        events = [message for message in messages if message.error() is not None]
        if events:
            messages = [message for message in messages if message.error() is None]
        if messages:
            self._heard = time.monotonic()
            self._short = None
            if messages[-1].offset() >= end:
                messages = [message for message in messages if message.offset() < end]
                self.next = end
            else:
                self.next = max(self.next, messages[-1].offset() + 1)
        for event in events:
            if self.next < end:
                self._event(event)
        if not messages and self.next < end:
            self._waited()
        return messages

    def _event(self, event: Any) -> None:
        error = event.error()
        kinds = kafka().KafkaError
        if error.code() == kinds._PARTITION_EOF:
            if event.offset() >= self._range.end:
                self.next = self._range.end
            elif event.offset() >= self.next and self._short is None:
                self._short = (time.monotonic(), event.offset())
        elif error.code() in (kinds._AUTO_OFFSET_RESET, kinds.OFFSET_OUT_OF_RANGE):
            self._out_of_range()
        elif error.code() in (kinds.UNKNOWN_TOPIC_OR_PART, kinds._UNKNOWN_PARTITION):
            self._give_up(f"{self._range.topic}-{self._range.partition} is not there any more")
        elif error.fatal() or error.code() in _refusals():
            raise BrokerError(f"cannot read {self._range}: {error.str()}")
        else:
            # The client goes on by itself, for instance when the broker is back.
            self._last_error = error.str()

    def _out_of_range(self) -> None:
        """Below the log's start, or past its end?"""
        partition = kafka().TopicPartition(self._range.topic, self._range.partition)
        try:
            low, high = self._client.get_watermark_offsets(partition, timeout=self._wait)
        except kafka().KafkaException as error:
            raise BrokerError(f"cannot read {self._range}: {error.args[0].str()}") from None
        if self.next > high:
            self._past_the_end(high)
        elif self.next < low:
            self._losses.report(
                f"offsets {self.next} to {min(low, self._range.end) - 1} of {self._range.topic}-"
                f"{self._range.partition} are gone: the topic's retention, or a deletion of"
                f" records, was faster than this query. Its log begins at {low} now"
            )
            self.next = min(low, self._range.end)
            if self.next < self._range.end:
                self._client.assign(
                    [type(partition)(partition.topic, partition.partition, self.next)]
                )
                self._heard = time.monotonic()
        # else: it was so a moment ago, and the client asks again

    def _past_the_end(self, high: int) -> None:
        self._give_up(
            f"{self._range.topic}-{self._range.partition} ends at offset {high}, before"
            f" {self._range.end}: it was deleted and made anew, or its broker lost records. A"
            " stream that is to read the new topic needs a new checkpoint folder"
        )

    def _give_up(self, what: str) -> None:
        self._losses.report(what)
        self.next = self._range.end

    def _waited(self) -> None:
        """Nothing came. Raises DataLoss, BrokerError after long enough."""
        now = time.monotonic()
        if self._short is not None and now - self._short[0] > min(_SHORT_LOG_SECONDS, self._wait):
            self._past_the_end(self._short[1])
        elif now - self._heard > self._wait:
            raise BrokerError(
                f"cannot read {self._range}: no record for {self._wait:g} s at offset"
                f" {self.next} ({self._last_error}); kafkaConsumer.pollTimeoutMs is the limit"
            )


def _refusals() -> set[int]:
    kinds = kafka().KafkaError
    return {
        kinds._AUTHENTICATION,
        kinds._SSL,
        kinds.TOPIC_AUTHORIZATION_FAILED,
        kinds.GROUP_AUTHORIZATION_FAILED,
        kinds.CLUSTER_AUTHORIZATION_FAILED,
        kinds.SASL_AUTHENTICATION_FAILED,
        kinds.TOPIC_EXCEPTION,
    }


def _append(rows: Rows, messages: list[Any]) -> None:
    if not messages:
        return
    keys = [message.key() for message in messages]
    values = [message.value() for message in messages]
    times = [message.timestamp() for message in messages]
    rows.keys += keys
    rows.values += values
    rows.offsets += [message.offset() for message in messages]
    # librdkafka takes a time of 0, which is 1970, for none at all: (not available, -1)
    rows.times += [time_ms if kind else 0 for kind, time_ms in times]
    # its types are Kafka's and one
    rows.time_types += [kind - 1 if kind else CREATE_TIME for kind, _ in times]
    if rows.wants_headers:
        headers = [message.headers() for message in messages]
        rows.headers += headers
        rows.size += sum(len(k) + len(v or b"") for row in headers if row for k, v in row)
    rows.size += sum(len(key) for key in keys if key) + sum(len(value) for value in values if value)
