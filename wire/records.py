"""Record batches, Kafka's message format 2: the header, and the records when they are asked for.

A batch is opaque to the broker: its header is read once, its bytes are stored and sent as they
came. Layout, big-endian, as `org.apache.kafka.common.record.internal.DefaultRecordBatch` has it:

    0  base_offset int64              23  last_offset_delta int32
    8  batch_length int32             27  base_timestamp int64
    12 partition_leader_epoch int32   35  max_timestamp int64
    16 magic int8 (2)                 43  producer_id int64
    17 crc uint32                     51  producer_epoch int16
    21 attributes int16               53  base_sequence int32
                                      57  record_count int32
                                      61  records, compressed as one piece

batch_length counts from byte 12. The CRC covers byte 21 to the end, so base offset and leader
epoch may be patched without touching it; attributes and max_timestamp may not. attributes: bits
0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.wire.codecs import DECOMPRESSED_LIMIT, Buffer, Codec, CodecError, compress, decompress
from ottla.wire.crc import crc32c
from ottla.wire.errors import Error, KafkaError

HEADER_SIZE: Final = 61
#: What comes before the part that batch_length counts: base_offset and batch_length itself.
PREFIX_SIZE: Final = 12
CRC_START: Final = 21
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

_HEADER: Final = Struct(">qiibIhiqqqhii")
_SEALED: Final = Struct(">hiqqqhii")  # what the CRC covers of the header
_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")
_START: Final = Struct(">qii")  # base_offset, batch_length, partition_leader_epoch
_unpack_header = _HEADER.unpack_from
_new_tuple = tuple.__new__


class CorruptBatch(KafkaError):
    """Bytes that are not a whole, sound record batch (CORRUPT_MESSAGE)."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.CORRUPT_MESSAGE, message)


class InvalidRecords(KafkaError):
    """A sound batch whose records do not hold what it says (INVALID_RECORD)."""

    def __init__(self, message: str) -> None:
        super().__init__(Error.INVALID_RECORD, message)


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, as they are; offsets and sequences of the ends are
    derived.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
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

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + PREFIX_SIZE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """A Codec's number, or 5 to 7, which mean nothing."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def log_append_time(self) -> bool:
        """The records' timestamp is max_timestamp, given by the broker."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def has_producer(self) -> bool:
        """Sent by an idempotent or transactional producer."""
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; 2147483647 is followed by 0. -1 without a producer."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header of the batch at `pos`; whether the batch is whole or sound is not looked at.

    Raises CorruptBatch when fewer than 61 bytes are left. Of a batch with magic 0 or 1 (another
    layout) only base_offset, batch_length and magic mean anything.
    """
    if len(buf) - pos < HEADER_SIZE:
        raise CorruptBatch(f"{len(buf) - pos} bytes are too few for a record batch")
    header: BatchHeader = _new_tuple(BatchHeader, _unpack_header(buf, pos))
    return header


def crc_ok(buf: Buffer, header: BatchHeader, pos: int = 0) -> bool:
    """Whether the batch at `pos`, which lies whole in `buf`, has the CRC its header says."""
    end = pos + header.batch_length + PREFIX_SIZE
    return crc32c(memoryview(buf)[pos + CRC_START : end]) == header.crc


def walk(buf: Buffer, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch between `pos` and `end` (the end of `buf`).

    Raises CorruptBatch at a batch that does not fit, so what was yielded before is whole; CRCs
    are not checked.
    """
    if end is None:
        end = len(buf)
    while pos < end:
        if end - pos < HEADER_SIZE:
            raise CorruptBatch(f"{end - pos} bytes at {pos} are too few for a record batch")
        header: BatchHeader = _new_tuple(BatchHeader, _unpack_header(buf, pos))
        size = header.batch_length + PREFIX_SIZE
        if size < HEADER_SIZE or size > end - pos or header.magic != MAGIC:
            raise CorruptBatch(
                f"no whole record batch at {pos}: magic {header.magic}, {size} bytes of {end - pos}"
            )
        yield pos, header
        pos += size


def patch(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `pos` of a writable buffer its place in the log; the CRC does not cover
    these.
    """
    _INT64.pack_into(buf, pos, base_offset)
    _INT32.pack_into(buf, pos + 12, leader_epoch)


def patched_start(header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of a batch as `patch` would make them, for a batch in a buffer that is
    not ours to write.
    """
    return _START.pack(base_offset, header.batch_length, leader_epoch)


def with_log_append_time(
    batch: Buffer, header: BatchHeader, now_ms: int
) -> tuple[bytearray, BatchHeader]:
    """A copy of `batch` whose records all have the timestamp `now_ms`
    (message.timestamp.type=LogAppendTime).

    The records are not opened: readers take max_timestamp when the timestamp type says so.
    """
    attributes = header.attributes | LOG_APPEND_TIME
    return rewritten(batch, header._replace(attributes=attributes, max_timestamp=now_ms))


def rewritten(batch: Buffer, header: BatchHeader) -> tuple[bytearray, BatchHeader]:
    """A copy of `batch` under another header, and that header with the CRC and length it gets."""
    copy = bytearray(batch)
    return copy, _seal(copy, header)


def _seal(batch: bytearray, header: BatchHeader) -> BatchHeader:
    """Write `header` over the start of `batch`, with the length and CRC that are right for it."""
    _SEALED.pack_into(batch, CRC_START, *header[5:])
    length = len(batch) - PREFIX_SIZE
    crc = crc32c(memoryview(batch)[CRC_START:])
    sealed = header._replace(batch_length=length, magic=MAGIC, crc=crc)
    _HEADER.pack_into(batch, 0, *sealed)
    return sealed


# ---------------------------------------------------------------------------------- opening a batch


class Record(NamedTuple):
    """One record: its own bytes, and the offset and timestamp that its batch gives it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class RecordHead(NamedTuple):
    """Where one record lies in an opened batch, and what can be said of it without its contents."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key_length: int  # -1: no key
    key_start: int


def open_records(batch: Buffer, header: BatchHeader, limit: int = DECOMPRESSED_LIMIT) -> Buffer:
    """The records' part of `batch`, decompressed: at most `limit` bytes.

    Raises CorruptBatch for data that its codec cannot read, and beyond the limit.
    """
    try:
        return decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], limit)
    except CodecError as error:
        raise CorruptBatch(f"records cannot be decompressed: {error}") from None


def record_heads(opened: Buffer, count: int) -> Iterator[RecordHead]:
    """Walk the `count` records of an opened batch without copying anything out of them.

    Every length is checked against the bytes left. Raises InvalidRecords at a record that does
    not fit, when there are fewer than `count`, and (after the last one) when bytes are left over.
    Headers and values are stepped over.
    """
    end = len(opened)
    pos = 0
    try:
        for _ in range(count):
            length, body = _varint(opened, pos)
            stop = body + length
            if length < 0 or stop > end:
                raise InvalidRecords(f"a record of {length} bytes where {end - body} are left")
            # after its attributes, which mean nothing
            timestamp_delta, at = _varlong(opened, body + 1)
            offset_delta, at = _varint(opened, at)
            key_length, at = _varint(opened, at)
            if key_length < -1 or at + max(key_length, 0) > stop:
                raise InvalidRecords(f"a key of {key_length} bytes in a record of {length}")
            yield RecordHead(pos, stop, timestamp_delta, offset_delta, key_length, at)
            pos = stop
    except IndexError:
        raise InvalidRecords(f"the records end within one of {count}") from None
    if pos != end:
        raise InvalidRecords(f"{end - pos} bytes are left after {count} records")


def records(
    batch: Buffer, header: BatchHeader | None = None, limit: int = DECOMPRESSED_LIMIT
) -> Iterator[Record]:
    """The records of one whole batch, in order, with their own offsets and timestamps; copies of
    their bytes.

    Control batches are given as any other. Raises CorruptBatch or InvalidRecords on damaged data,
    after the records that come before the damage.
    """
    if header is None:
        header = read_header(batch)
    if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(batch):
        raise CorruptBatch(f"magic {header.magic}, {header.size} bytes of {len(batch)}")
    opened = open_records(batch, header, limit)
    for head in record_heads(opened, header.record_count):
        timestamp = (
            header.max_timestamp
            if header.log_append_time
            else header.base_timestamp + head.timestamp_delta
        )
        key, value, headers = record_body(opened, head)
        yield Record(header.base_offset + head.offset_delta, timestamp, key, value, headers)


def record_body(
    opened: Buffer, head: RecordHead
) -> tuple[bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]:
    """Key, value and headers of the record at `head`, copied. Raises InvalidRecords where they do
    not fill it.
    """
    at = head.key_start
    key: bytes | None = None
    if head.key_length >= 0:
        key = bytes(opened[at : at + head.key_length])
        at += head.key_length
    stop = head.end
    try:
        value, at = _nullable(opened, at, stop)
        count, at = _varint(opened, at)
        if not 0 <= count <= stop - at:
            raise InvalidRecords(f"{count} headers in {stop - at} bytes")
        headers = []
        for _ in range(count):
            name, at = _nullable(opened, at, stop)
            if name is None:
                raise InvalidRecords("a header without a key")
            content, at = _nullable(opened, at, stop)
            headers.append((name, content))
    except IndexError:
        raise InvalidRecords("the records end within one") from None
    if at != stop:
        raise InvalidRecords(f"a record's contents end at {at}, the record at {stop}")
    return key, value, tuple(headers)


def _nullable(buf: Buffer, at: int, stop: int) -> tuple[bytes | None, int]:
    length, at = _varint(buf, at)
    if length == -1:
        return None, at
    if not 0 <= length <= stop - at:
        raise InvalidRecords(f"{length} bytes where {stop - at} are left of the record")
    return bytes(buf[at : at + length]), at + length


def _varint(buf: Buffer, at: int) -> tuple[int, int]:
    """A zigzag varint of up to five bytes and where it ends. IndexError at the end of `buf`."""
    byte = buf[at]
    if byte < 0x80:  # nearly all of them
        return (byte >> 1) ^ -(byte & 1), at + 1
    return _long(buf, at, 32)


def _varlong(buf: Buffer, at: int) -> tuple[int, int]:
    byte = buf[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    return _long(buf, at, 64)


def _long(buf: Buffer, at: int, bits: int) -> tuple[int, int]:
    value = shift = 0
    while shift < bits:
        byte = buf[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise InvalidRecords(f"a varint of more than {bits} bits")


# --------------------------------------------------------------------------------- building a batch


def build_batch(
    items: Iterable[Record],
    *,
    base_offset: int | None = None,
    codec: Codec = Codec.none,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
    last_offset: int | None = None,
) -> bytearray:
    """A batch of `items`, whose offsets rise; `attributes` adds TRANSACTIONAL, CONTROL and the
    like.

    base_offset is that of the first item unless given; last_offset that of the last, unless the
    batch stands for more offsets than it still has records (compaction). Without items both must
    be given.
    """
    rows = list(items)
    first = rows[0].offset if base_offset is None else base_offset
    last = rows[-1].offset if last_offset is None else last_offset
    times = [row.timestamp for row in rows] or [NO_TIMESTAMP]
    header = BatchHeader(
        base_offset=first,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes & ~CODEC_MASK | codec,
        last_offset_delta=last - first,
        base_timestamp=times[0],
        max_timestamp=max(times),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(rows),
    )
    return _assemble(header, _encode(rows, first, times[0]), codec, level)[0]


def recompress(
    batch: Buffer,
    header: BatchHeader,
    codec: Codec,
    level: int | None = None,
    limit: int = DECOMPRESSED_LIMIT,
) -> tuple[bytearray, BatchHeader]:
    """`batch` with its records in another codec; offsets, timestamps and producer fields stay."""
    return repack(header, open_records(batch, header, limit), codec, level)


def repack(
    header: BatchHeader, opened: Buffer, codec: Codec, level: int | None = None
) -> tuple[bytearray, BatchHeader]:
    """A batch of records that are opened already (open_records), compressed in `codec`."""
    return _assemble(
        header._replace(attributes=header.attributes & ~CODEC_MASK | codec), opened, codec, level
    )


def _assemble(
    header: BatchHeader, opened: Buffer, codec: Codec, level: int | None
) -> tuple[bytearray, BatchHeader]:
    batch = bytearray(HEADER_SIZE)
    batch += opened if codec is Codec.none else compress(codec, opened, level)
    return batch, _seal(batch, header)


def _encode(rows: Sequence[Record], first_offset: int, first_timestamp: int) -> bytearray:
    out = bytearray()
    body = bytearray()
    for row in rows:
        body.clear()
        body.append(0)  # attributes
        _put_varint(body, row.timestamp - first_timestamp)
        _put_varint(body, row.offset - first_offset)
        _put_nullable(body, row.key)
        _put_nullable(body, row.value)
        _put_varint(body, len(row.headers))
        for name, content in row.headers:
            _put_nullable(body, name)
            _put_nullable(body, content)
        _put_varint(out, len(body))
        out += body
    return out


def _put_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # -1
    else:
        _put_varint(out, len(data))
        out += data


def _put_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
