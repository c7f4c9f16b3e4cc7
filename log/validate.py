"""The checks of a produced batch, before it may be admitted to a partition.

Kafka makes them in three places and in this order, and clients tell the failures apart by their
codes: `ProduceRequest.validateRecords` (one whole batch, magic 2), `UnifiedLog` (base offset, size
as sent, CRC) and `LogValidator` (counts, flags, then records). Sequence numbers come after all of
them, when the batch is admitted.

Kafka walks through the records of every batch. Here a batch is opened only when its header cannot
answer a question that the topic's settings ask:

- the topic is compacted, so each record must have a key;
- message.timestamp.before.max.ms is set, or max_timestamp is too far ahead, so somebody must say
  which records are at fault (or that the header is wrong);
- compression.type names another codec than the batch has;
- the producer set a flag that is the broker's to set.

That takes a microsecond a record or more, so a large one is for a thread (Large).

What that gives up: a producer that lies about the records behind a sound CRC (fewer of them than
its header says, an older max_timestamp) is found out by its consumers, not by the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from ottla.wire.codecs import Buffer, Codec
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    crc_ok,
    open_records,
    read_header,
    record_heads,
    repack,
    rewritten,
    with_log_append_time,
)

NO_LIMIT: Final = (1 << 63) - 1

#: The oldest Produce that may carry zstd (KIP-110): a consumer as old could not read it.
ZSTD_PRODUCE_VERSION: Final = 7

#: Records refused that are named, in one request. Kafka names all of them: a request of a megabyte
#: could have an answer of a hundred.
MAX_RECORD_ERRORS: Final = 1000

#: Batches of more bytes (as sent; decompressed) or records than this are not opened on the loop.
SMALL_BYTES: Final = 16 * 1024
SMALL_OPENED_BYTES: Final = 64 * 1024
SMALL_RECORDS: Final = 500

#: What the shortest record takes: seven varints of one byte.
_SHORTEST_RECORD: Final = 7
_SHORTEST_LEGACY_BATCH: Final = 14
#: batch_length of a batch that ends with its header.
_LEAST_LENGTH: Final = HEADER_SIZE - PREFIX_SIZE
_ZSTD: Final = int(Codec.zstd)  # comparing members costs on the way of every batch
_MAGIC_AT: Final = 16
_LENGTH: Final = Struct(">i")
_new_tuple: Final = tuple.__new__  # what Validated(...) does in twice the time
_BROKERS_FLAGS: Final = LOG_APPEND_TIME | DELETE_HORIZON


@dataclass(frozen=True, slots=True)
class Rules:
    """What a topic's settings ask of a batch; names and defaults are Kafka's, with '_' for '.'.

    Times in milliseconds, sizes in bytes. `compression_type` None is `producer`: keep what was
    sent. `compression_level` None is the codec's default. `compacted` is whether cleanup.policy
    holds `compact`.
    """

    max_message_bytes: int = 1048588
    segment_bytes: int = 1 << 30
    compression_type: Codec | None = None
    compression_level: int | None = None
    log_append_time: bool = False
    timestamp_before_max_ms: int = NO_LIMIT
    timestamp_after_max_ms: int = 3_600_000
    compacted: bool = False


class RecordError(NamedTuple):
    """Why one record, by its place in the batch, was refused."""

    batch_index: int
    message: str


class RefusedBatch(KafkaError):
    """The batch is not taken; `record_errors` says which records are to blame, where any are.

    A Java producer fails the records that are named, and tells the others of the batch that they
    were in bad company.
    """

    def __init__(
        self, error: Error, message: str, record_errors: tuple[RecordError, ...] = ()
    ) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors


class Large(Exception):
    """The batch has to be opened and is not small: to be validated on a thread."""


class Validated(NamedTuple):
    """A batch as it is to be stored (offset and leader epoch are not given yet) and its header."""

    batch: Buffer
    header: BatchHeader


def validate(
    data: Buffer | None,
    rules: Rules,
    now_ms: int,
    produce_version: int = ZSTD_PRODUCE_VERSION,
    *,
    open_large: bool = True,
) -> Validated:
    """The one batch in `data`, the records field of a Produce request for one partition.

    Without rewriting the result is a view of `data`. Raises RefusedBatch or CorruptBatch, both
    KafkaError: INVALID_RECORD, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
    INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE. Unless `open_large`, raises Large instead of
    opening a batch that is not small.
    """
    batch, header = _only_batch(data)
    _check_as_sent(batch, header, rules, produce_version)
    _check_header(header)
    if must_open(header, rules, now_ms):
        batch, header = _opened(batch, header, _records(batch, header, open_large), rules, now_ms)
    if rules.log_append_time:
        batch, header = with_log_append_time(batch, header, now_ms)
    if header.batch_length + PREFIX_SIZE > rules.segment_bytes:
        raise RefusedBatch(Error.RECORD_LIST_TOO_LARGE, "the batch is larger than segment.bytes")
    return _new_tuple(Validated, (batch, header))


def must_open(header: BatchHeader, rules: Rules, now_ms: int) -> bool:
    """Whether a batch has to be decompressed and walked through, record by record."""
    if rules.compacted or header.attributes & _BROKERS_FLAGS:
        return True
    codec = rules.compression_type
    if codec is not None and header.attributes & CODEC_MASK != codec:
        return True
    return not rules.log_append_time and (
        header.max_timestamp > now_ms + rules.timestamp_after_max_ms
        or rules.timestamp_before_max_ms < NO_LIMIT
    )


# ----------------------------------------------------------------------- one whole batch of magic 2


def _only_batch(data: Buffer | None) -> tuple[Buffer, BatchHeader]:
    if data is None:
        raise RefusedBatch(Error.INVALID_RECORD, "no record batch")
    if len(data) >= HEADER_SIZE:
        header = read_header(data)
        if header.batch_length + PREFIX_SIZE == len(data) and header.magic == MAGIC:
            return data, header
    size = _size_at(data, 0)
    if size is None:
        raise RefusedBatch(Error.INVALID_RECORD, "no whole record batch")
    if data[_MAGIC_AT] != MAGIC:
        raise RefusedBatch(
            Error.INVALID_RECORD, f"message format {data[_MAGIC_AT]}: only format 2 is taken"
        )
    if _size_at(data, size) is not None:
        raise RefusedBatch(Error.INVALID_RECORD, "more than one record batch for the partition")
    if size < HEADER_SIZE:
        raise CorruptBatch(f"{size} bytes are too few for a record batch")
    batch = memoryview(data)[:size]  # what follows is the start of a batch that was cut off
    return batch, read_header(batch)


def _size_at(data: Buffer, pos: int) -> int | None:
    """Bytes of the batch at `pos`, or None when it is not all there."""
    left = len(data) - pos
    if left < PREFIX_SIZE:
        return None
    (length,) = _LENGTH.unpack_from(data, pos + 8)
    if length < _SHORTEST_LEGACY_BATCH:
        raise CorruptBatch(f"a record batch of {length} bytes")
    if left <= _MAGIC_AT:
        return None
    if data[pos + _MAGIC_AT] > MAGIC:
        raise CorruptBatch(f"message format {data[pos + _MAGIC_AT]} is unknown")
    size: int = length + PREFIX_SIZE
    return size if size <= left else None


# -------------------------------------------------------------------------- what the header can say


def _check_as_sent(batch: Buffer, header: BatchHeader, rules: Rules, produce_version: int) -> None:
    codec = header.attributes & CODEC_MASK
    if codec >= _ZSTD and (codec > _ZSTD or produce_version < ZSTD_PRODUCE_VERSION):
        raise RefusedBatch(
            Error.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} in Produce {produce_version}"
        )
    if header.base_offset != 0:
        raise _invalid(f"base offset {header.base_offset} in a produced batch")
    if len(batch) > rules.max_message_bytes:
        raise _too_large(len(batch), rules)
    if not crc_ok(batch, header):
        raise CorruptBatch("the CRC does not match")


def _check_header(header: BatchHeader) -> None:
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise _invalid(f"{count} records over {header.last_offset_delta + 1} offsets")
    attributes = header.attributes
    if (
        attributes & CODEC_MASK == 0
        and count * _SHORTEST_RECORD > header.batch_length - _LEAST_LENGTH
    ):
        raise _invalid(f"{count} records in {header.size - HEADER_SIZE} bytes")
    if attributes & CONTROL:
        raise _invalid("control records are the broker's to write")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(f"sequence {header.base_sequence} of producer {header.producer_id}")


def _invalid(message: str) -> RefusedBatch:
    return RefusedBatch(Error.INVALID_RECORD, message)


def _too_large(size: int, rules: Rules) -> RefusedBatch:
    return RefusedBatch(
        Error.MESSAGE_TOO_LARGE,
        f"a batch of {size} bytes where max.message.bytes is {rules.max_message_bytes}",
    )


# ------------------------------------------------------------------------------- what records say


def _records(batch: Buffer, header: BatchHeader, open_large: bool) -> Buffer:
    """The batch's records, decompressed. Raises Large when that is not a small piece of work."""
    if open_large:
        return open_records(batch, header)
    if len(batch) > SMALL_BYTES or header.record_count > SMALL_RECORDS:
        raise Large
    try:
        return open_records(batch, header, SMALL_OPENED_BYTES)
    except CorruptBatch:
        raise Large from None  # it grows beyond that, or is damaged: the thread will say


def _opened(
    batch: Buffer, header: BatchHeader, opened: Buffer, rules: Rules, now_ms: int
) -> Validated:
    """The batch with its records looked at, and in the codec and with the flags it should have."""
    errors: list[RecordError] = []
    latest = NO_TIMESTAMP
    untimely = False
    for index, (timestamp, has_key) in enumerate(_stamped(opened, header)):
        if len(errors) == MAX_RECORD_ERRORS:
            break
        latest = max(latest, timestamp)
        if rules.compacted and not has_key:
            errors.append(RecordError(index, "a compacted topic takes no record without a key"))
            continue
        problem = _timestamp_problem(timestamp, header, rules, now_ms)
        if problem is not None:
            untimely = True
            errors.append(RecordError(index, problem))
    if errors:
        raise _refused(errors, untimely)
    codec = header.codec if rules.compression_type is None else rules.compression_type
    kept = header.attributes & TRANSACTIONAL
    if codec != header.codec:
        changed = header._replace(attributes=kept, max_timestamp=latest)
        batch, header = repack(changed, opened, Codec(codec), rules.compression_level)
        if len(batch) > rules.max_message_bytes:
            raise _too_large(len(batch), rules)
    elif header.attributes & _BROKERS_FLAGS or latest != header.max_timestamp:
        batch, header = rewritten(
            batch, header._replace(attributes=kept | codec, max_timestamp=latest)
        )
    return Validated(batch, header)


def _stamped(opened: Buffer, header: BatchHeader) -> Iterator[tuple[int, bool]]:
    """Timestamp, and whether there is a key, of each record; their offsets must follow on."""
    claimed = header.max_timestamp if header.log_append_time else None
    for index, head in enumerate(record_heads(opened, header.record_count)):
        if head.offset_delta != index:
            raise _invalid(f"record {index} has the offset delta {head.offset_delta}")
        timestamp = header.base_timestamp + head.timestamp_delta if claimed is None else claimed
        yield timestamp, head.key_length >= 0


def _timestamp_problem(
    timestamp: int, header: BatchHeader, rules: Rules, now_ms: int
) -> str | None:
    if not rules.log_append_time and timestamp != NO_TIMESTAMP:
        if timestamp > now_ms + rules.timestamp_after_max_ms:
            return f"timestamp {timestamp} is over {rules.timestamp_after_max_ms} ms from now"
        if timestamp < now_ms - rules.timestamp_before_max_ms:
            return f"timestamp {timestamp} is over {rules.timestamp_before_max_ms} ms ago"
    elif header.log_append_time:
        return "a producer may not set the timestamp type to LogAppendTime"
    return None


def _refused(errors: list[RecordError], untimely: bool) -> RefusedBatch:
    """INVALID_TIMESTAMP wins over INVALID_RECORD, as with Kafka."""
    error = Error.INVALID_TIMESTAMP if untimely else Error.INVALID_RECORD
    first = errors[0]
    count = f"{len(errors)} or more" if len(errors) == MAX_RECORD_ERRORS else f"{len(errors)}"
    return RefusedBatch(
        error,
        f"{count} records are refused, the first at {first.batch_index}: {first.message}",
        tuple(errors),
    )
