"""Offsets that open transactions will commit: in their group and, as rows, on disk.

They are few and short-lived, so they are kept in memory too, by producer id and partition id, and
judged by what is admitted. Source: Kafka's OffsetMetadataManager (pendingTransactionalOffsets,
openTransactions, replay).
"""

from collections.abc import Collection

from ottla.group.members import ClassicGroup, PendingOffset
from ottla.group.outcome import PENDING_OFFSETS, Outcome, Rows
from ottla.group.rows import (
    decode_pending,
    encode_pending,
    group_key,
    pending_key,
    pending_place,
)


def load(group: ClassicGroup, rows: Rows) -> int:
    """Read what is on disk; gives the highest order among it, 0 for nothing."""
    last = 0
    for key, value in rows.scan(PENDING_OFFSETS, group_key(group.number)):
        producer_id, partition_id = pending_place(key)
        pending = decode_pending(value)
        group.transactions.setdefault(producer_id, {})[partition_id] = pending
        last = max(last, pending.order)
    return last


def partitions(group: ClassicGroup) -> set[int]:
    """Ids of the partitions that open transactions will commit for."""
    return set().union(*group.transactions.values())


def committed_partitions(group: ClassicGroup, rows: Rows) -> set[int]:
    """The same as it is on disk: a transaction whose end is admitted has not ended yet for those
    who read what is committed."""
    keys = (key for key, _ in rows.scan(PENDING_OFFSETS, group_key(group.number)))
    return {pending_place(key)[1] for key in keys}


def put(
    group: ClassicGroup, producer_id: int, partition_id: int, pending: PendingOffset, out: Outcome
) -> None:
    """A transaction will commit this, instead of what it was going to commit before."""
    group.transactions.setdefault(producer_id, {})[partition_id] = pending
    key = pending_key(group.number, producer_id, partition_id)
    out.records.append((PENDING_OFFSETS, key, encode_pending(pending)))


def overrule(group: ClassicGroup, partition_id: int, order: int, out: Outcome) -> None:
    """An offset has been committed: it stands when older transactions are committed later. They
    have the partition still open, for those who want stable offsets."""
    for producer_id, offsets in group.transactions.items():
        pending = offsets.get(partition_id)
        if pending is not None and pending.row and pending.order < order:
            put(group, producer_id, partition_id, PendingOffset(pending.order, b""), out)


def drop(group: ClassicGroup, partition_ids: Collection[int], out: Outcome) -> None:
    """Whatever happens to the transactions, nothing is going to be committed for these."""
    for producer_id, offsets in list(group.transactions.items()):
        for partition_id in offsets.keys() & partition_ids:
            del offsets[partition_id]
            key = pending_key(group.number, producer_id, partition_id)
            out.records.append((PENDING_OFFSETS, key, None))
        if not offsets:
            del group.transactions[producer_id]


def take(group: ClassicGroup, producer_id: int, out: Outcome) -> dict[int, PendingOffset]:
    """End the producer's transaction here; gives what it was going to commit, by partition id."""
    offsets = group.transactions.pop(producer_id, {})
    for partition_id in offsets:
        key = pending_key(group.number, producer_id, partition_id)
        out.records.append((PENDING_OFFSETS, key, None))
    return offsets
