"""Settings of the log, and the tables of its state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, NamedTuple

Durability = Literal["fsync", "os"]

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Sizes in bytes, times in milliseconds. The defaults are those of the broker.

    Store.set_options changes compaction_check_ms, compaction_keys_bytes and
    producer_id_expiration_ms of an open log; the others are copied when it is opened.
    """

    #: fsync: acknowledged is on disk. os: acknowledged survives the process, not the machine.
    durability: Durability = "fsync"
    #: The active segment is rolled before a commit that would pass one of these three.
    segment_bytes: int = 256 * MIB
    segment_extents: int = 250_000
    segment_ms: int = 3_600_000
    #: The largest request a client may send: no commit is bigger than this and segment_bytes.
    max_request_bytes: int = 100 * MIB
    #: Groups are joined into one commit up to this size.
    max_commit_bytes: int = 16 * MIB
    #: Extents from this size up are stored as they were received, smaller ones are joined.
    large_extent_bytes: int = 64 * 1024
    #: Below this much free space nothing is written any more (log starts excepted).
    disk_reserve_bytes: int = 64 * MIB
    #: What others take of the disk is noticed after this, and after every few MiB of ours.
    disk_check_ms: int = 250
    #: The overlay goes to the state environment this often, or when it has this many rows.
    checkpoint_ms: int = 1000
    checkpoint_rows: int = 20_000
    #: This many of the newest sealed segments are read on the loop, older ones by a reader thread.
    warm_segments: int = 2
    #: How often what retention lets go is looked for.
    retention_check_ms: int = 300_000
    #: Whether topics with cleanup.policy=compact are compacted, and how often that is looked for.
    compaction: bool = True
    compaction_check_ms: int = 15_000
    #: About what the keys of one compaction may take of memory; what is beyond waits for the next.
    compaction_keys_bytes: int = 128 * MIB
    #: Permissions of the files; folders can be entered by those who may read.
    file_mode: int = 0o640
    #: transactional.id / producer id state is forgotten this long after the last batch.
    producer_id_expiration_ms: int = 86_400_000
    #: No more than so many are remembered, over all partitions; about 370 bytes each.
    producers_max: int = 250_000
    #: Rows of producers that one checkpoint gathers on the loop, about.
    checkpoint_producers: int = 2000


class Table(IntEnum):
    """The tables of the state. A number never changes its meaning: it is on disk.

    Rows are absolute: replaying one twice is harmless. The layout of keys and values belongs to
    the table's owner, named here.
    """

    META = 0  # log: applied, next partition number, format
    PARTITIONS = 1  # log: partition number -> log start, leader epoch, ...
    EPOCHS = 2  # log: partition number, leader epoch -> start offset
    PRODUCERS = 3  # log: partition number, producer id -> last batches (never in a journal)
    CLEANED = 4  # log: partition number -> compacted up to, latest delete horizon
    ABORTED = 5  # log: partition number, offset of the marker -> aborted transaction
    TOPICS = 16  # broker/metadata
    CONFIGS = 17  # broker: dynamic configs of topics, brokers, groups
    CLUSTER = 18  # broker: cluster id, counters (producer ids)
    TRANSACTIONS = 19  # broker: transactional ids
    GROUPS = 32  # group
    OFFSETS = 33  # group
    PENDING_OFFSETS = 34  # group: what open transactions will commit


class Change(NamedTuple):
    """One row of a table that becomes `value`, or goes (None). Keys are up to 500 bytes."""

    table: Table
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """What the log must know of a topic's configs; -1 is unlimited. One object a topic."""

    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    #: cleanup.policy
    delete: bool = True
    compact: bool = False
    #: The rest is for compaction; see log/compaction.py.
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    min_cleanable_dirty_ratio: float = 0.5
