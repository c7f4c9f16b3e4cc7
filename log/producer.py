"""One producer with an id in one partition: its epoch, its last batches, its transactions.

Kafka's `ProducerStateEntry`. What is done with it, and when, is in producers.py.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from ottla.log.producer_rows import encode_row
from ottla.log.transactions import NO_COORDINATOR, NONE_OPEN, History, Moment

#: Java's producer keeps up to five batches in flight; a repeat of one of them can be told.
BATCHES_KEPT: Final = 5

# One batch in `Producer.batches`: five numbers in a row.
WIDTH: Final = 5
OFFSET, FIRST, LAST, TIMESTAMP, EPOCH = range(WIDTH)


class Duplicate(NamedTuple):
    """A batch that the partition has already: where it lies, and its max timestamp.

    Kafka answers the timestamp as log_append_time, whatever the topic's timestamp type.
    """

    base_offset: int
    timestamp: int


class ProducerState(NamedTuple):
    """What DescribeProducers tells of a producer in one partition."""

    producer_id: int
    producer_epoch: int
    #: -1 behind a marker with a new epoch.
    last_sequence: int
    last_timestamp: int
    #: -1 before the first marker.
    coordinator_epoch: int
    #: -1 without an open transaction.
    current_txn_start_offset: int


class Producer:
    """One producer in one partition; about 300 bytes."""

    __slots__ = ("batches", "history", "used_ms")

    def __init__(self, used_ms: int) -> None:
        #: When it last sent, by the broker's clock, in ms.
        self.used_ms = used_ms
        #: Rising by offset; at least one but between making and recording.
        self.batches = array("q")
        #: Its transactions; None as long as it had none.
        self.history: History | None = None

    @property
    def open(self) -> int:
        """First offset of its open transaction, admitted, or NONE_OPEN."""
        return NONE_OPEN if self.history is None else self.history.open

    @property
    def coordinator_epoch(self) -> int:
        """Of its last marker, admitted, or NO_COORDINATOR."""
        return NO_COORDINATOR if self.history is None else self.history.coordinator_epoch

    def known_below(self, end: int) -> int:
        """Where in `batches` the first entry at or after the offset `end` starts."""
        batches = self.batches
        stop = len(batches)
        while stop and batches[stop - WIDTH] >= end:
            stop -= WIDTH
        return stop

    def trim(self, committed_end: int) -> None:
        """Let go of entries with five committed ones behind them: they are no longer among the last
        five, nor will they be if everything that waits for a commit fails."""
        batches = self.batches
        while len(batches) > BATCHES_KEPT * WIDTH and batches[BATCHES_KEPT * WIDTH] < committed_end:
            del batches[:WIDTH]

    def find(self, epoch: int, first: int, last: int) -> Duplicate | None:
        """The batch with exactly this range among the last five of this epoch, latest first."""
        batches = self.batches
        oldest = max(0, len(batches) - BATCHES_KEPT * WIDTH)
        for at in range(len(batches) - WIDTH, oldest - 1, -WIDTH):
            if batches[at + EPOCH] != epoch:
                return None
            if batches[at + FIRST] == first and batches[at + LAST] == last:
                return Duplicate(batches[at], batches[at + TIMESTAMP])
        return None

    @property
    def last_known(self) -> int:
        """Offset of the last batch or marker that is known of it; -1 without any."""
        last = self.batches[OFFSET - WIDTH] if self.batches else -1
        return last if self.history is None else max(last, self.history.last)

    def described(self, producer_id: int, end: int) -> ProducerState | None:
        """None where nothing is known of it below the offset `end`."""
        stop = self.known_below(end)
        if not stop:
            return None
        offset, _, last, timestamp, epoch = self.batches[stop - WIDTH : stop]
        moment = None if self.history is None else self.history.at(end)
        if moment is None:
            return ProducerState(producer_id, epoch, last, timestamp, -1, -1)
        if moment.first < 0 and moment.offset > offset:
            timestamp = moment.time_ms  # the marker came last
        return ProducerState(
            producer_id, epoch, last, timestamp, moment.coordinator_epoch, moment.first
        )

    def row(self, stop: int, moment: Moment | None) -> bytes:
        """The last five of the entries before `stop` that are of the epoch of the last one."""
        batches = self.batches
        epoch = batches[stop - 1]
        start = max(0, stop - BATCHES_KEPT * WIDTH)
        kept = [at for at in range(start, stop, WIDTH) if batches[at + EPOCH] == epoch]
        return encode_row(epoch, self.used_ms, moment, (batches[at : at + EPOCH] for at in kept))
