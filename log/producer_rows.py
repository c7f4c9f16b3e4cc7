"""A producer's row in a checkpoint (Table.PRODUCERS): what is committed of it in one partition.

Two layouts, both read. Version 1 is that of a producer without transactions, and still written for
those; version 2 has the last event of its transactions too. docs/design/log.md has the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from ottla.log.transactions import Moment

KEY: Final = Struct(">Iq")  # partition, producer id
_HEAD: Final = Struct("<BBhq")  # layout version, batches, epoch, last used
_MOMENT: Final = Struct("<qqqi")
_BATCH: Final = Struct("<qiiq")
_PLAIN: Final = 1
_WITH_TRANSACTIONS: Final = 2

#: Base offset, first and last sequence, max timestamp.
Batch = tuple[int, int, int, int]


class ProducerRow(NamedTuple):
    """What a row says; the batches are of its epoch, rising by offset."""

    epoch: int
    used_ms: int
    moment: Moment | None
    batches: list[Batch]


def encode_row(
    epoch: int, used_ms: int, moment: Moment | None, batches: Iterable[Iterable[int]]
) -> bytes:
    packed = [_BATCH.pack(*batch) for batch in batches]
    version = _PLAIN if moment is None else _WITH_TRANSACTIONS
    head = _HEAD.pack(version, len(packed), epoch, used_ms)
    return b"".join((head, b"" if moment is None else _MOMENT.pack(*moment), *packed))


def decode_row(value: bytes) -> ProducerRow:
    """Raises ValueError on a row that is not ours."""
    version, count, epoch, used_ms = _HEAD.unpack_from(value)
    moment, start = None, _HEAD.size
    if version == _WITH_TRANSACTIONS:
        moment, start = Moment(*_MOMENT.unpack_from(value, start)), start + _MOMENT.size
    if version not in (_PLAIN, _WITH_TRANSACTIONS) or len(value) != start + count * _BATCH.size:
        raise ValueError(f"producer row of version {version}, {len(value)} bytes")
    return ProducerRow(epoch, used_ms, moment, list(_BATCH.iter_unpack(value[start:])))
