"""Producers with an id (KIP-98, KIP-360): which batch comes next, which was here already, and
whose transaction is open.

State per (partition, producer id), as Kafka's `ProducerStateEntry` and `ProducerAppendInfo` keep
it: the epoch, the last five batches, the transaction. Judged and recorded when a batch is admitted,
so that a repeat is known while the first still waits for its commit.

The entry of a batch keeps its epoch and offset, and old entries go only when five newer ones are
committed. So what was true at any commit can be said from the entries below its end: after a failed
commit the rest is dropped (`rollback`), and a checkpoint leaves the rest out (`take_changed`). What
a checkpoint lacks is replayed from batch headers; a batch replayed twice changes nothing. The same
goes for the events of transactions (`transactions.History`).

A marker with a newer epoch is an entry without sequences: the next batch begins at 0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from ottla.log.options import Change, Table
from ottla.log.producer import LAST, WIDTH, Duplicate, Producer, ProducerState
from ottla.log.producer_rows import KEY, decode_row
from ottla.log.transactions import (
    NO_COORDINATOR,
    NONE_OPEN,
    End,
    History,
    Marker,
    Ongoing,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import NO_SEQUENCE, TRANSACTIONAL, BatchHeader

_logger = logging.getLogger(__name__)

_SEQUENCES: Final = 0x7FFFFFFF
_NO_EPOCH: Final = -1
#: Who sent within this time of its last batch keeps its place among those of its partition, ms.
_RECENT_MS: Final = 1000
#: At most so many are forgotten at a time to make room: under a millisecond.
_AT_ONCE: Final = 1000
#: How often a log line says that producers are forgotten for want of room.
_TELL_MS: Final = 600_000


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    partition: int
    producer_id: int
    first_offset: int
    since_ms: int


class Producers:
    """All producers of a store; partitions by their internal number."""

    def __init__(self) -> None:
        #: Each partition's by id; who sent longest ago comes first, about.
        self._partitions: dict[int, dict[int, Producer]] = {}
        self._count = 0
        #: No more are remembered than this, those with an open transaction aside (`limit`).
        self._most = 1 << 62
        self._crowded = -1
        self._tell_again_ms = 0
        self._changed: set[tuple[int, int]] = set()
        #: What is open, by partition; none for those that never had a transaction.
        self.ongoing: dict[int, Ongoing] = {}
        self._expiring: Iterator[tuple[int, int]] | None = None
        #: The time that nobody sets (`Store.tick`). A clock that was set back for a while must not
        #: make a producer old.
        self.steady_ms = 0

    def __len__(self) -> int:
        return self._count

    @property
    def changed(self) -> int:
        """How many rows `take_changed` would look at."""
        return len(self._changed)

    # ----------------------------------------------------------------------------------- admission

    def judge(self, number: int, header: BatchHeader) -> Duplicate | None:
        """Whether the batch may be appended to partition `number`: None, if it may.

        The batch has a producer (`has_producer`). A Duplicate if it is one of the last five of
        its producer. Raises KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER (a gap, an older repeat, a
        new epoch that does not start at 0) and INVALID_PRODUCER_EPOCH (an older epoch: the
        producer was fenced), INVALID_TXN_STATE (outside its open transaction). Without state any
        sequence is right: it may have expired. Changes nothing.
        """
        producers = self._partitions.get(number)
        producer = None if producers is None else producers.get(header.producer_id)
        epoch = header.producer_epoch
        if producer is None:
            if epoch < _NO_EPOCH:
                raise _fenced(header.producer_id, epoch, _NO_EPOCH)
            return None
        batches = producer.batches
        current = batches[-1]
        first = header.base_sequence
        if epoch == current:
            if first == (batches[LAST - WIDTH] + 1) & _SEQUENCES:
                if producer.history is not None:
                    _check_transaction(producer, header)
                return None
            repeat = producer.find(epoch, first, header.last_sequence)
            if repeat is not None or current == _NO_EPOCH:
                return repeat
            raise KafkaError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {first} after"
                f" {batches[LAST - WIDTH]}",
            )
        if epoch < current:
            raise _fenced(header.producer_id, epoch, current)
        if first != 0 and current != _NO_EPOCH:
            raise KafkaError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} began epoch {epoch} with sequence {first}",
            )
        _check_transaction(producer, header)
        return None

    def record(
        self, number: int, header: BatchHeader, base_offset: int, committed_end: int, now_ms: int
    ) -> None:
        """Remember a batch that was judged and is admitted at `base_offset`.

        committed_end: the end of what is committed of the partition, its high watermark.
        """
        producer = self._producer(number, header.producer_id, now_ms)
        batches = producer.batches
        batches.extend(
            (
                base_offset,
                header.base_sequence,
                header.last_sequence,
                header.max_timestamp,
                header.producer_epoch,
            )
        )
        stamp = now_ms if now_ms >= self.steady_ms else self.steady_ms
        if stamp > producer.used_ms:
            producer.used_ms = stamp
        producer.trim(committed_end)
        self._changed.add((number, header.producer_id))
        if header.attributes & TRANSACTIONAL and producer.open < 0:
            if producer.history is None:
                producer.history = History()
            producer.history.begin(base_offset, committed_end, now_ms)
            self._ongoing(number).begin(header.producer_id, base_offset)

    def _ongoing(self, number: int) -> Ongoing:
        ongoing = self.ongoing.get(number)
        if ongoing is None:
            ongoing = self.ongoing[number] = Ongoing()
        return ongoing

    def _producer_of(self, number: int, producer_id: int) -> Producer | None:
        producers = self._partitions.get(number)
        return None if producers is None else producers.get(producer_id)

    def _producer(self, number: int, producer_id: int, now_ms: int) -> Producer:
        producers = self._partitions.get(number)
        if producers is None:
            producers = self._partitions[number] = {}
        producer = producers.get(producer_id)
        if producer is None:
            producer = producers[producer_id] = Producer(now_ms)
            self._count += 1
            if self._count > self._most:
                self._make_room(number)
        elif now_ms - producer.used_ms > _RECENT_MS:
            producers[producer_id] = producers.pop(producer_id)
        return producer

    def _forget(self, number: int, producer_id: int) -> None:
        del self._partitions[number][producer_id]
        self._count -= 1
        self._changed.add((number, producer_id))

    # -------------------------------------------------------------------------------- transactions

    def open_transaction(self, number: int, producer_id: int, epoch: int | None = None) -> int:
        """First offset of the transaction that the producer (of this epoch) has open in what is
        admitted of the partition, or NONE_OPEN."""
        producer = self._producer_of(number, producer_id)
        if producer is None or (epoch is not None and producer.batches[-1] != epoch):
            return NONE_OPEN
        return producer.open

    def knows(self, number: int, producer_id: int) -> bool:
        """Whether the partition has state of the producer."""
        return producer_id in self._partitions.get(number, ())

    def judge_marker(self, marker: Marker) -> KafkaError | None:
        """Why the marker may not be written: INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED; None if it may. Changes nothing.

        Source: `ProducerAppendInfo.checkProducerEpoch`, `checkCoordinatorEpoch`.
        """
        partition, producer_id, epoch, coordinator_epoch, _, version = marker
        producer = self._producer_of(partition.number, producer_id)
        if producer is None:
            return None
        current = producer.batches[-1]
        # Under version 2 the same epoch is that of the marker which ended it: it came twice.
        if epoch < current or (version >= 2 and epoch == current and producer.open >= 0):
            text = f"producer {producer_id} has epoch {current}, the marker is of {epoch}"
            return KafkaError(Error.INVALID_PRODUCER_EPOCH, text)
        known = producer.coordinator_epoch
        if known > coordinator_epoch:
            text = f"coordinator epoch {coordinator_epoch}, one of {known} was here"
            return KafkaError(Error.TRANSACTION_COORDINATOR_FENCED, text)
        return None

    def is_fenced(self, number: int, producer_id: int, epoch: int) -> bool:
        """Whether the partition knows a newer epoch of the producer."""
        producer = self._producer_of(number, producer_id)
        return producer is not None and epoch < producer.batches[-1]

    def check_epoch(self, number: int, producer_id: int, epoch: int) -> None:
        """Raises KafkaError INVALID_PRODUCER_EPOCH, as `judge` does: Kafka looks at this before
        the coordinator is asked about a batch."""
        if self.is_fenced(number, producer_id, epoch):
            current = self._partitions[number][producer_id].batches[-1]
            raise _fenced(producer_id, epoch, current)

    def coordinator_epoch(self, number: int, producer_id: int) -> int:
        """Of the producer's last marker in what is admitted of the partition, or
        NO_COORDINATOR."""
        producer = self._producer_of(number, producer_id)
        return NO_COORDINATOR if producer is None else producer.coordinator_epoch

    def end_transaction(
        self,
        number: int,
        producer_id: int,
        epoch: int,
        end: End,
        offset: int,
        committed_end: int,
        now_ms: int,
    ) -> tuple[int, int] | None:
        """Remember the marker that is admitted at `offset`: what it ends, as first offset and the
        last stable offset after it; None where nothing was open."""
        producer = self._producer(number, producer_id, now_ms)
        if not producer.batches or producer.batches[-1] != epoch:
            producer.batches.extend((offset, NO_SEQUENCE, NO_SEQUENCE, now_ms, epoch))
            producer.trim(committed_end)
        if producer.history is None:
            producer.history = History()
        producer.history.end(offset, end.coordinator_epoch, committed_end, now_ms)
        producer.used_ms = max(producer.used_ms, now_ms, self.steady_ms)
        self._changed.add((number, producer_id))
        return self._ongoing(number).end(producer_id, offset, committed_end)

    def each(self, number: int, end: Callable[[], int]) -> Iterator[ProducerState]:
        """The producers of partition `number`, each as of what lies below the offset `end()` when
        its turn comes: others may come and go in between."""
        for producer_id, producer in list(self._partitions.get(number, {}).items()):
            state = producer.described(producer_id, end())
            if state is not None:
                yield state

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """What is open anywhere, in what is admitted; others may be opened and ended in between."""
        for number, ongoing in list(self.ongoing.items()):
            for producer_id, first in ongoing.all():
                producer = self._producer_of(number, producer_id)
                if producer is None or producer.history is None:
                    continue
                moment = producer.history.at(producer.history.last + 1)
                if moment is not None and moment.first == first:
                    yield OpenTransaction(number, producer_id, first, moment.time_ms)

    def partitions(self) -> list[int]:
        """The partitions that have producers."""
        return list(self._partitions)

    def settle_ongoing(self) -> None:
        """Say anew what is open, from what is known of each producer: at start, after the rows and
        the replay, and after a failed commit."""
        open_ones: dict[int, list[tuple[int, int]]] = {number: [] for number in self.ongoing}
        for number, producers in self._partitions.items():
            for producer_id, producer in producers.items():
                if producer.open >= 0:
                    open_ones.setdefault(number, []).append((producer.open, producer_id))
        for number, mine in open_ones.items():
            self._ongoing(number).reset(mine)

    # ------------------------------------------------------------------------- failure and restart

    def rollback(self, committed_end: Callable[[int], int]) -> None:
        """Forget what was admitted and not committed; committed_end(number) is what is."""
        for number, producers in self._partitions.items():
            end = committed_end(number)
            for producer_id, producer in list(producers.items()):
                del producer.batches[producer.known_below(end) :]
                if producer.history is not None:
                    producer.history.rollback(end)
                if not producer.batches:
                    del producers[producer_id]
                    self._count -= 1
        self.settle_ongoing()

    def load(self, key: bytes, value: bytes) -> None:
        """A row of Table.PRODUCERS, at start; before any replay. Raises ValueError on one that is
        not ours."""
        number, producer_id = KEY.unpack(key)
        row = decode_row(value)
        producer = self._producer(number, producer_id, row.used_ms)
        if row.moment is not None:
            producer.history = History(row.moment)
        for batch in row.batches:
            producer.batches.extend((*batch, row.epoch))

    def replay(self, number: int, header: BatchHeader, now_ms: int) -> None:
        """A committed batch of a producer, in the order of offsets, from the time `now_ms`.

        One that the rows hold already is skipped, so replaying may start anywhere before them.
        """
        producer = self._producer(number, header.producer_id, now_ms)
        if producer.last_known < header.base_offset:
            self.record(number, header, header.base_offset, header.next_offset, now_ms)

    def replay_end(self, number: int, header: BatchHeader, end: End, now_ms: int) -> None:
        """A committed marker; see `replay`."""
        producer = self._producer(number, header.producer_id, now_ms)
        offset = header.base_offset
        if producer.last_known < offset:
            epoch, behind = header.producer_epoch, header.next_offset
            self.end_transaction(number, header.producer_id, epoch, end, offset, behind, now_ms)

    # --------------------------------------------------------------------------------- checkpoints

    def take_changed(self, committed_end: Callable[[int], int]) -> list[Change]:
        """Rows of Table.PRODUCERS for what changed since the last call, as of what is committed.

        A producer with more to commit comes again in the next call. The rows are absolute, and
        given once: keep them until they are written.
        """
        changes: list[Change] = []
        waiting: set[tuple[int, int]] = set()
        for number, producer_id in self._changed:
            key = KEY.pack(number, producer_id)
            producer = self._partitions.get(number, {}).get(producer_id)
            if producer is None:
                changes.append(Change(Table.PRODUCERS, key, None))
                continue
            end = committed_end(number)
            stop = producer.known_below(end)
            history = producer.history
            if stop < len(producer.batches) or (history is not None and history.waits(end)):
                waiting.add((number, producer_id))
            if stop:
                moment = None if history is None else history.at(end)
                changes.append(Change(Table.PRODUCERS, key, producer.row(stop, moment)))
        self._changed = waiting
        return changes

    def last_batches(self, number: int, end: int) -> Iterator[int]:
        """Base offset of each producer's last batch in partition `number` below the offset `end`;
        others may come and go in between."""
        for producer in list(self._partitions.get(number, {}).values()):
            stop = producer.known_below(end)
            if stop:
                yield producer.batches[stop - WIDTH]

    # -------------------------------------------------------------------------------------- expiry

    def expire(self, now_ms: int, expiration_ms: int, budget: int = 1000) -> bool:
        """Forget producers that sent nothing for `expiration_ms` and have no open transaction;
        looks at up to `budget` of them.

        True when there is more to look at: call again soon, with the same arguments. Their rows
        go with the next `take_changed`.
        """
        if self._expiring is None:
            self._expiring = self._all()
        for number, producer_id in self._expiring:
            producers = self._partitions.get(number, {})
            producer = producers.get(producer_id)
            if (
                producer is not None
                and now_ms - producer.used_ms >= expiration_ms
                and producer.open < 0
            ):
                self._forget(number, producer_id)
            budget -= 1
            if budget <= 0:
                return True
        self._expiring = None
        return False

    def limit(self, most: int) -> None:
        """Remember no more producers than this: an id costs its inventor one small batch and us
        370 bytes for a day. Those that sent longest ago are forgotten, as if they had expired;
        none with an open transaction."""
        self._most = most
        for _ in range(self._count - most):
            if self._count <= most:
                return
            self._make_room(-1)

    def _make_room(self, number: int) -> None:
        """Forget some of a partition that has more than its share: `number`, if it has. Who floods
        one partition with ids does no harm to the producers of others."""
        share = self._count / len(self._partitions)
        if len(self._partitions.get(number, ())) < share:
            if len(self._partitions.get(self._crowded, ())) < share:
                sizes = self._partitions
                self._crowded = max(sizes, key=lambda one: len(sizes[one]))
            number = self._crowded
        producers = self._partitions[number]
        wanted = max(1, min(_AT_ONCE, len(producers) // 16))
        for producer_id, producer in list(islice(producers.items(), 2 * wanted)):
            if producer.open >= 0 or not producer.batches:  # in use
                producers[producer_id] = producers.pop(producer_id)
                continue
            self._forget(number, producer_id)
            wanted -= 1
            if not wanted:
                break
        if self.steady_ms >= self._tell_again_ms:
            self._tell_again_ms = self.steady_ms + _TELL_MS
            _logger.warning(
                "more than %d idempotent producers in all partitions: those that sent longest ago"
                " are forgotten; see ottla.producer.states.max.count",
                self._most,
            )

    def _all(self) -> Iterator[tuple[int, int]]:
        """Every producer; others may come and go in between."""
        for number in list(self._partitions):
            for producer_id in list(self._partitions.get(number, ())):
                yield number, producer_id

    def drop_partition(self, number: int) -> None:
        """The partition is gone for ever; its rows go with the next `take_changed`."""
        self.ongoing.pop(number, None)
        producers = self._partitions.pop(number, {})
        self._count -= len(producers)
        for producer_id in producers:
            self._changed.add((number, producer_id))


def _fenced(producer_id: int, epoch: int, current: int) -> KafkaError:
    text = f"producer {producer_id} has epoch {current}, the batch is of {epoch}"
    return KafkaError(Error.INVALID_PRODUCER_EPOCH, text)


def _check_transaction(producer: Producer, header: BatchHeader) -> None:
    """A batch that may come next, but outside the transaction that its producer has open."""
    if not header.attributes & TRANSACTIONAL and producer.open >= 0:
        raise KafkaError(
            Error.INVALID_TXN_STATE,
            f"producer {header.producer_id} has a transaction open since offset {producer.open},"
            " the batch is outside it",
        )
