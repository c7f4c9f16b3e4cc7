"""Transactions in a store: producers that number their batches, markers, what readers are told."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

from tests.log.logkit import append, make_batch, put

from ottla.log.options import Change
from ottla.log.partition import Partition
from ottla.log.producers import OpenTransaction, ProducerState
from ottla.log.store import Appended, Store
from ottla.log.tickets import Ticket
from ottla.log.transactions import Marker
from ottla.wire.records import TRANSACTIONAL


class Disk:
    """Fails where it is told to."""

    def __init__(self) -> None:
        self.failing: set[str] = set()

    def step(self, name: str) -> None:
        if name in self.failing:
            raise OSError(errno.EIO, "injected")


def marker(
    partition: Partition,
    producer_id: int = 5,
    epoch: int = 0,
    *,
    committed: bool = True,
    coordinator_epoch: int = 0,
    version: int = 1,
) -> Marker:
    return Marker(partition, producer_id, epoch, coordinator_epoch, committed, version)


class Producer:
    """A transactional producer; its sequences by partition, its epoch."""

    def __init__(self, store: Store, producer_id: int = 5) -> None:
        self.store = store
        self.id = producer_id
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        #: Where it wrote in its open transaction.
        self.partitions: dict[int, Partition] = {}

    def batch(self, partition: Partition, count: int = 1, *, plain: bool = False) -> bytearray:
        """The next batch; not counted before it is admitted."""
        sequence = self.sequences.get(partition.number, 0)
        return make_batch(
            count,
            producer=(self.id, self.epoch, sequence),
            attributes=0 if plain else TRANSACTIONAL,
            fill=self.id,
        )

    def admit(self, partition: Partition, count: int = 1, now_ms: int = 1) -> Appended:
        """A batch that waits for its commit."""
        appended = append(self.store, partition, self.batch(partition, count), now_ms)
        self._count(partition, count)
        return appended

    def send(self, partition: Partition, count: int = 1, now_ms: int = 1) -> int:
        """A batch that is committed; its base offset."""
        base = put(self.store, partition, self.batch(partition, count), now_ms)
        self._count(partition, count)
        return base

    def _count(self, partition: Partition, count: int) -> None:
        number = partition.number
        self.sequences[number] = self.sequences.get(number, 0) + count
        self.partitions[number] = partition

    def end(
        self, committed: bool, *, version: int = 1, changes: Sequence[Change] = (), now_ms: int = 1
    ) -> Ticket:
        """Markers where it wrote, and `changes`; they wait for their commit."""
        if version == 2:
            self.epoch += 1
            self.sequences = {}
        markers = [
            marker(partition, self.id, self.epoch, committed=committed, version=version)
            for partition in self.partitions.values()
        ]
        self.partitions = {}
        return self.store.write_markers(markers, changes, now_ms)

    def commit(self, *, version: int = 1) -> None:
        """A transaction ends well, and that is committed."""
        self._settle(self.end(True, version=version))

    def abort(self, *, version: int = 1) -> None:
        """A transaction is aborted, and that is committed."""
        self._settle(self.end(False, version=version))

    def _settle(self, ticket: Ticket) -> None:
        self.store.flush()
        assert ticket.done
        assert ticket.error is None


def aborted(store: Store, partition: Partition, start: int = 0, end: int = 1 << 62) -> list[object]:
    """Producer id and first offset of each."""
    return list(zip(*store.aborted(partition, start, end), strict=True))


def fail(store: Store, disk: Disk) -> None:
    """What waits for its commit fails."""
    disk.failing = {"commit: write"}
    store.flush()
    disk.failing = set()
    assert store.refusing is None


class Known(NamedTuple):
    """All that a store knows of the transactions of a partition."""

    last_stable_offset: int
    high_watermark: int
    aborted: list[object]
    open: list[OpenTransaction]
    producers: list[ProducerState]


def known(store: Store, partition: Partition) -> Known:
    return Known(
        partition.last_stable_offset,
        partition.high_watermark,
        aborted(store, partition),
        sorted(one for one in store.open_transactions() if one.partition == partition.number),
        sorted(store.producers_of(partition)),
    )
