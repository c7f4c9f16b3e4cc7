"""Rows of Table.TRANSACTIONS: one for each transactional id, under a number.

A transactional id may be 32 KiB long and a key of the log may not, so numbers stand for them, as
for groups. A row is a message of Kafka's own kind (wire/schema.py) with its version in front; later
fields come as tagged ones, so that an older broker can still read the row.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ottla.broker.transaction_states import State, Transaction
from ottla.wire.compile import decode, encode
from ottla.wire.schema import Message, array, int8, int16, int32, int64, message, string

ROW_VERSION: Final = 0
_NUMBER: Final = Struct(">I")
_STATES: Final = tuple(State)  # quicker than asking the class; their numbers are 0 and up


@message(versions="0", flexible="0+")
class TransactionRow(Message):
    """transaction_states.Transaction; partitions are the log's numbers."""

    transactional_id: str = string()
    state: int = int8()
    producer_id: int = int64()
    previous_producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    last_producer_epoch: int = int16(default=-1)
    timeout_ms: int = int32()
    start_ms: int = int64(default=-1)
    updated_ms: int = int64()
    partitions: list[int] = array(int32)
    groups: list[str] = array(string)


def row_key(number: int) -> bytes:
    return _NUMBER.pack(number)


def row_number(key: bytes) -> int:
    number: int = _NUMBER.unpack(key)[0]
    return number


def encode_row(txn: Transaction) -> bytes:
    row = TransactionRow(
        transactional_id=txn.transactional_id,
        state=txn.state,
        producer_id=txn.producer_id,
        previous_producer_id=txn.previous_producer_id,
        producer_epoch=txn.producer_epoch,
        last_producer_epoch=txn.last_producer_epoch,
        timeout_ms=txn.timeout_ms,
        start_ms=txn.start_ms,
        updated_ms=txn.updated_ms,
        partitions=sorted(txn.partitions),
        groups=sorted(txn.groups),
    )
    return b"".join((b"%c" % ROW_VERSION, *encode(row, ROW_VERSION)))


def decode_row(value: bytes) -> Transaction:
    """Raises FrameError when the row makes no sense, ValueError when it is of a newer version."""
    row = decode(TransactionRow, value[0], value, 1)
    return Transaction(
        transactional_id=row.transactional_id,
        state=_STATES[row.state],
        producer_id=row.producer_id,
        previous_producer_id=row.previous_producer_id,
        producer_epoch=row.producer_epoch,
        last_producer_epoch=row.last_producer_epoch,
        timeout_ms=row.timeout_ms,
        start_ms=row.start_ms,
        updated_ms=row.updated_ms,
        partitions=frozenset(row.partitions),
        groups=frozenset(row.groups),
    )
