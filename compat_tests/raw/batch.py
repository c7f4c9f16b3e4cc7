"""Record batches of format 2: built as a test wants them, right or wrong, and read back."""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

GZIP = 1
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
HEADER = struct.Struct(">qiibIhiqqqhii")  # 61 bytes, Kafka's DefaultRecordBatch
CRC_START = 21

# Base timestamp of a batch unless told otherwise. Not a fixed date: Kafka forgets a producer whose
# last batch bears a timestamp older than producer.id.expiration.ms (a day).
NOW = int(time.time() * 1000)


@dataclass(frozen=True)
class Record:
    value: bytes | None = b"value"
    key: bytes | None = None
    timestamp_delta: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True)
class Batch:
    """One batch as it lies in a fetch answer."""

    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    crc_ok: bool
    payload: bytes = field(repr=False)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & 0x07

    @property
    def records(self) -> list[Record]:
        return list(
            _records(
                gzip.decompress(self.payload) if self.codec == GZIP else self.payload,
                self.record_count,
            )
        )


def build(
    records: Sequence[Record] = (Record(),),
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    record_count: int | None = None,
    base_timestamp: int = NOW,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    crc: int | None = None,
) -> bytes:
    """One batch. What is derived (deltas, counts, CRC) is right unless given."""
    body = b"".join(_encode(i, record) for i, record in enumerate(records))
    if attributes & 0x07 == GZIP:
        body = gzip.compress(body, 1)
    after_crc = (
        struct.pack(
            ">hiqqqhii",
            attributes,
            len(records) - 1 if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            base_timestamp + max((record.timestamp_delta for record in records), default=0),
            producer_id,
            producer_epoch,
            base_sequence,
            len(records) if record_count is None else record_count,
        )
        + body
    )
    return (
        struct.pack(">qiib", base_offset, len(after_crc) + 9, leader_epoch, magic)
        + struct.pack(">I", crc32c(after_crc) if crc is None else crc)
        + after_crc
    )


def legacy(value: bytes = b"value", *, magic: int = 1) -> bytes:
    """One message of the formats before 2 (what clients older than 0.11 send)."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", NOW) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qi", 0, len(body) + 4) + struct.pack(">I", zlib.crc32(body)) + body


def parse(data: bytes | None) -> list[Batch]:
    """The whole batches of a fetch answer; a cut one at the end is left out."""
    found = []
    position = 0
    data = data or b""
    while position + HEADER.size <= len(data):
        (base, length, epoch, magic, crc, attributes, last_delta, first_ts, max_ts, *ids) = (
            HEADER.unpack_from(data, position)
        )
        producer_id, producer_epoch, base_sequence, count = ids
        end = position + 12 + length
        if end > len(data):
            break
        found.append(
            Batch(
                base_offset=base,
                leader_epoch=epoch,
                magic=magic,
                crc=crc,
                attributes=attributes,
                last_offset_delta=last_delta,
                base_timestamp=first_ts,
                max_timestamp=max_ts,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                record_count=count,
                crc_ok=crc32c(data[position + CRC_START : end]) == crc,
                payload=data[position + HEADER.size : end],
            )
        )
        position = end
    return found


def varint(value: int) -> bytes:
    """Signed (zigzag), as inside records."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _blob(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def _encode(offset_delta: int, record: Record) -> bytes:
    body = b"\0" + varint(record.timestamp_delta) + varint(offset_delta)
    body += _blob(record.key) + _blob(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += _blob(name.encode()) + _blob(value)
    return varint(len(body)) + body


def _records(data: bytes, count: int) -> Iterator[Record]:
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)

    def blob() -> bytes | None:
        nonlocal position
        size = number()
        if size < 0:
            return None
        position += size
        return data[position - size : position]

    for _ in range(count):
        number()  # length
        position += 1  # attributes
        timestamp_delta = number()
        number()  # offset delta
        key, value = blob(), blob()
        headers = [((blob() or b"").decode(), blob()) for _ in range(number())]
        yield Record(value, key, timestamp_delta, headers)
