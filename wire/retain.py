"""What stays of a batch when some of its records go (log compaction).

As Kafka's `MemoryRecords.filterTo` leaves it: base offset, last offset delta, leader epoch,
producer id, epoch and sequence stay, so that the batch stands for the same offsets and the same
sequences as before; count and max_timestamp are those of the records left. The records' own bytes
are not touched, unless the batch gets a delete horizon (KIP-534): that one lies where the base
timestamp was, so their timestamp deltas are written anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.wire.codecs import Buffer, Codec
from ottla.wire.records import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    RecordHead,
    repack,
)

_KEPT_OF_AN_EMPTY_ONE = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
_LONG = (1 << 64) - 1


def delete_horizon(header: BatchHeader) -> int | None:
    """From when on the batch's tombstones may go, ms; None where that is not settled yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def is_tombstone(opened: Buffer, head: RecordHead) -> bool:
    """Whether the value is null."""
    at = head.key_start + max(head.key_length, 0)
    return at < head.end and opened[at] == 1  # a varint of -1


def keep_records(
    header: BatchHeader, opened: Buffer, heads: Iterable[RecordHead], horizon: int | None
) -> tuple[bytearray, BatchHeader]:
    """The batch with only the records at `heads`, at least one, compressed by its own codec.

    opened: all its records (open_records). horizon: the delete horizon it is to get, ms; None
    leaves what it has.
    """
    by = 0 if horizon is None else header.base_timestamp - horizon
    data = bytearray()
    count = 0
    latest = NO_TIMESTAMP
    for head in heads:
        data += _moved(opened, head, by) if by else opened[head.start : head.end]
        latest = max(latest, header.base_timestamp + head.timestamp_delta)
        count += 1
    if header.log_append_time:
        latest = header.max_timestamp
    kept = header._replace(record_count=count, max_timestamp=latest)
    if horizon is not None:
        attributes = header.attributes | DELETE_HORIZON
        kept = kept._replace(attributes=attributes, base_timestamp=horizon)
    return repack(kept, data, Codec(header.codec))


def keep_header(header: BatchHeader) -> tuple[bytearray, BatchHeader]:
    """The batch without any record; its offsets and its producer's sequences are still told."""
    empty = header._replace(
        attributes=header.attributes & _KEPT_OF_AN_EMPTY_ONE,
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return repack(empty, b"", Codec.none)


def _moved(opened: Buffer, head: RecordHead, by: int) -> bytes:
    """The record with another timestamp delta."""
    at = _behind(opened, head.start) + 1  # behind its length and its attributes
    attributes = opened[at - 1 : at]
    rest = opened[_behind(opened, at) : head.end]
    body = b"".join((attributes, _varint(head.timestamp_delta + by), rest))
    return _varint(len(body)) + body


def _behind(opened: Buffer, at: int) -> int:
    """Where the varint at `at` ends."""
    while opened[at] & 0x80:
        at += 1
    return at + 1


def _varint(value: int) -> bytes:
    """A zigzag varint of up to ten bytes."""
    value = ((value << 1) ^ (value >> 63)) & _LONG
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
