"""Produced batches: the code for each fault is what Apache Kafka 4.3.1 answered to the same bytes.

Where we differ on purpose the test says so.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.validate import NO_LIMIT, RefusedBatch, Rules, Validated, must_open, validate
from ottla.wire.codecs import Codec
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    CorruptBatch,
    Record,
    build_batch,
    crc_ok,
    read_header,
    records,
    rewritten,
)

NOW = 1_795_000_000_000
HOUR = 3_600_000
TOPIC = Rules()
COMPACTED = Rules(compacted=True)


def rows(*times: int, key: bytes | None = b"k") -> list[Record]:
    return [Record(i, time, key, b"v%d" % i) for i, time in enumerate(times)]


def batch(*times: int, key: bytes | None = b"k", **options: Any) -> bytearray:
    return build_batch(rows(*(times or (NOW, NOW + 1, NOW + 2)), key=key), **options)


def resealed(data: bytearray, **changes: Any) -> bytearray:
    """Other header fields, with the CRC that is right for them."""
    header = read_header(data)._replace(**changes)
    made = rewritten(data, header)[0]
    made[0:8] = pack(">q", header.base_offset)
    return made


def overwritten(data: bytearray, at: int, new: bytes) -> bytearray:
    """Other bytes, with the CRC that was there before."""
    return data[:at] + new + data[at + len(new) :]


def legacy(magic: int, value: bytes = b"v" * 100) -> bytes:
    """One message of format 0 or 1, as clients before Kafka 0.11 wrote them."""
    body = pack(">bb", magic, 0) + (pack(">q", NOW) if magic else b"")
    body += pack(">i", 1) + b"k" + pack(">i", len(value)) + value
    message = pack(">I", zlib.crc32(body)) + body
    return pack(">qi", 0, len(message)) + message


def check(data: Any, rules: Rules = TOPIC, version: int = 13) -> Validated:
    found = validate(data, rules, NOW, version)
    assert read_header(found.batch) == found.header
    assert found.header.size == len(found.batch)
    assert crc_ok(found.batch, found.header)
    return found


def refused(data: Any, error: Error, rules: Rules = TOPIC, version: int = 13) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        check(data, rules, version)
    assert caught.value.error is error
    return caught.value


def blamed(error: KafkaError) -> list[int]:
    assert isinstance(error, RefusedBatch)
    return [index for index, message in error.record_errors if message]


SOUND = batch()
BIG = batch(NOW, key=bytes(1048588))

REFUSED: dict[str, tuple[Any, Error]] = {
    "nothing": (b"", Error.INVALID_RECORD),
    "half a header": (SOUND[:40], Error.INVALID_RECORD),
    "cut by a byte": (SOUND[:-1], Error.INVALID_RECORD),
    "two batches": (SOUND + SOUND, Error.INVALID_RECORD),
    "a batch and zeros": (SOUND + bytes(20), Error.CORRUPT_MESSAGE),
    "zeros": (bytes(100), Error.CORRUPT_MESSAGE),
    "ones": (b"\xff" * 100, Error.CORRUPT_MESSAGE),
    "format 0": (legacy(0), Error.INVALID_RECORD),
    "format 1": (legacy(1), Error.INVALID_RECORD),
    "format 1, short": (legacy(1, b"x"), Error.INVALID_RECORD),
    "format 3": (overwritten(SOUND, 16, b"\x03"), Error.CORRUPT_MESSAGE),
    "format -1": (overwritten(SOUND, 16, b"\xff"), Error.CORRUPT_MESSAGE),
    "length 0": (overwritten(SOUND, 8, pack(">i", 0)), Error.CORRUPT_MESSAGE),
    "length 10": (overwritten(SOUND, 8, pack(">i", 10)), Error.CORRUPT_MESSAGE),
    "length 48": (overwritten(SOUND, 8, pack(">i", 48)), Error.CORRUPT_MESSAGE),
    "length -1": (overwritten(SOUND, 8, pack(">i", -1)), Error.CORRUPT_MESSAGE),
    "length least": (overwritten(SOUND, 8, pack(">i", -(1 << 31))), Error.CORRUPT_MESSAGE),
    # Kafka's sum overflows here: UNKNOWN_SERVER_ERROR.
    "length most": (overwritten(SOUND, 8, pack(">i", (1 << 31) - 1)), Error.INVALID_RECORD),
    "wrong CRC": (overwritten(SOUND, 17, bytes(4)), Error.CORRUPT_MESSAGE),
    "altered record": (overwritten(SOUND, 70, b"X"), Error.CORRUPT_MESSAGE),
    "base offset 5": (resealed(SOUND, base_offset=5), Error.INVALID_RECORD),
    "base offset -1": (resealed(SOUND, base_offset=-1), Error.INVALID_RECORD),
    "more records than offsets": (resealed(SOUND, record_count=4), Error.INVALID_RECORD),
    "fewer records than offsets": (resealed(SOUND, record_count=2), Error.INVALID_RECORD),
    "no records": (resealed(SOUND, record_count=0), Error.INVALID_RECORD),
    "no records, no offsets": (
        resealed(SOUND, record_count=0, last_offset_delta=-1),
        Error.INVALID_RECORD,
    ),
    "-1 records": (resealed(SOUND, record_count=-1), Error.INVALID_RECORD),
    "more offsets than records": (resealed(SOUND, last_offset_delta=5), Error.INVALID_RECORD),
    "offsets backwards": (resealed(SOUND, last_offset_delta=-1), Error.INVALID_RECORD),
    "more records than fit": (
        resealed(SOUND, record_count=1000, last_offset_delta=999),
        Error.INVALID_RECORD,
    ),
    "a record and no bytes": (resealed(batch(NOW)[:61]), Error.INVALID_RECORD),
    "control batch": (resealed(SOUND, attributes=CONTROL), Error.INVALID_RECORD),
    "producer without sequence": (
        resealed(SOUND, producer_id=1000, producer_epoch=0),
        Error.INVALID_RECORD,
    ),
    "too large": (BIG, Error.MESSAGE_TOO_LARGE),
    "too large before its CRC": (overwritten(BIG, 17, bytes(4)), Error.MESSAGE_TOO_LARGE),
    "too far ahead": (batch(NOW + 2 * HOUR), Error.INVALID_TIMESTAMP),
    # Kafka fails to make a codec of it: UNKNOWN_SERVER_ERROR.
    "codec 5": (resealed(SOUND, attributes=5), Error.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (resealed(SOUND, attributes=7), Error.UNSUPPORTED_COMPRESSION_TYPE),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    data, error = REFUSED[case]
    for form in (bytes(data), data, memoryview(data)):
        refused(form, error)


def test_no_records_field_is_refused() -> None:
    """Kafka 4.3.1 gives no answer at all to null records, and the client waits in vain."""
    refused(None, Error.INVALID_RECORD)


TAKEN: dict[str, bytearray] = {
    "plain": SOUND,
    "a leader epoch": overwritten(SOUND, 12, pack(">i", 7)),
    "sequence without producer": resealed(SOUND, base_sequence=5),
    "producer": resealed(SOUND, producer_id=9, producer_epoch=0, base_sequence=0),
    "producer -5": resealed(SOUND, producer_id=-5, producer_epoch=0, base_sequence=0),
    "no timestamp": batch(-1),
    "before 1970": batch(-5),
    "long ago": batch(1000),
    "an hour ahead": batch(NOW + HOUR),
    "as large as may be": batch(NOW, key=bytes(1048588 - 74)),
    "bits nobody knows": resealed(SOUND, attributes=0x7F80),
    "packs well": batch(NOW, key=bytes(4 << 20), codec=Codec.gzip),
    **{codec.name: batch(codec=codec) for codec in Codec},
}


@pytest.mark.parametrize("case", TAKEN)
def test_taken_as_it_is(case: str) -> None:
    data = TAKEN[case]
    found = check(memoryview(data))
    assert found.batch == data
    assert isinstance(found.batch, memoryview)  # nothing was copied


def test_half_a_batch_behind_the_first_is_cut_off() -> None:
    """Clients that fill a buffer may leave the start of another batch in it."""
    for extra in (b"\0", bytes(11), bytes(SOUND[:16]), bytes(SOUND[:-1])):
        assert check(SOUND + extra).batch == SOUND


@pytest.mark.parametrize("version", range(3, 14))
def test_zstd_needs_produce_7(version: int) -> None:
    data = batch(codec=Codec.zstd)
    if version < 7:
        refused(data, Error.UNSUPPORTED_COMPRESSION_TYPE, version=version)
    else:
        check(data, version=version)
    check(batch(codec=Codec.lz4), version=version)


def test_18_one_batch_sound_counts_no_control_no_old_format() -> None:
    for case in ("two batches", "more records than offsets", "control batch", "format 1"):
        refused(*REFUSED[case])


def test_whether_a_transaction_is_open_is_not_asked_here() -> None:
    data = resealed(
        SOUND, attributes=TRANSACTIONAL, producer_id=9, producer_epoch=0, base_sequence=0
    )
    assert check(data).header.is_transactional


def test_23_size_is_compared_as_sent() -> None:
    small = Rules(max_message_bytes=1000)
    packed = batch(NOW, key=bytes(5000), codec=Codec.gzip)
    assert check(packed, small).batch == packed
    refused(batch(NOW, key=bytes(5000)), Error.MESSAGE_TOO_LARGE, small)
    # Checked once more when it has grown; not spared when it would have shrunk.
    plain = Rules(max_message_bytes=1000, compression_type=Codec.none)
    refused(packed, Error.MESSAGE_TOO_LARGE, plain)
    gzip = Rules(max_message_bytes=1000, compression_type=Codec.gzip)
    refused(batch(NOW, key=bytes(5000)), Error.MESSAGE_TOO_LARGE, gzip)


def test_a_batch_larger_than_a_segment() -> None:
    rules = Rules(segment_bytes=1 << 20, max_message_bytes=3 << 20)
    refused(batch(NOW, key=bytes(1 << 20)), Error.RECORD_LIST_TOO_LARGE, rules)


# -------------------------------------------------------------------------------------- timestamps


def test_late_and_early_records_are_named() -> None:
    ahead = batch(NOW, NOW + 2 * HOUR, NOW)
    assert blamed(refused(ahead, Error.INVALID_TIMESTAMP)) == [1]
    rules = Rules(timestamp_before_max_ms=HOUR, timestamp_after_max_ms=1000)
    mixed = batch(NOW, NOW - 2 * HOUR, NOW + 1001, -1, NOW - HOUR, NOW + 1000, -2)
    for codec in Codec:
        data = build_batch(list(records(mixed)), codec=codec)
        assert blamed(refused(data, Error.INVALID_TIMESTAMP, rules)) == [1, 2, 6]


def test_a_max_timestamp_that_is_too_high_is_put_right() -> None:
    found = check(resealed(SOUND, max_timestamp=NOW + 10 * HOUR))
    assert found.header.max_timestamp == NOW + 2
    assert list(records(found.batch)) == list(records(SOUND))


def test_a_max_timestamp_that_is_too_low_is_believed() -> None:
    """Kafka opens every batch and puts it right; only this batch's consumers can tell."""
    data = resealed(SOUND, max_timestamp=5)
    assert check(data).batch == data


@pytest.mark.parametrize("codec", Codec)
def test_19_log_append_time(codec: Codec) -> None:
    data = batch(NOW + 100 * HOUR, 5, codec=codec)
    found = check(bytes(data), Rules(log_append_time=True))
    assert found.header.log_append_time
    assert found.header.max_timestamp == NOW
    assert {record.timestamp for record in records(found.batch)} == {NOW}
    assert len(found.batch) == len(data)


def test_a_producer_may_not_claim_log_append_time() -> None:
    claimed = resealed(SOUND, attributes=LOG_APPEND_TIME)
    rules = Rules(log_append_time=True)
    assert blamed(refused(claimed, Error.INVALID_TIMESTAMP, rules)) == [0, 1, 2]
    # With CreateTime the flag is dropped, as long as there is a timestamp.
    found = check(claimed)
    assert found.header.attributes == 0
    assert found.header.max_timestamp == NOW + 2
    nothing = resealed(claimed, max_timestamp=-1)
    assert blamed(refused(nothing, Error.INVALID_TIMESTAMP)) == [0, 1, 2]
    ahead = resealed(claimed, max_timestamp=NOW + 2 * HOUR)
    assert blamed(refused(ahead, Error.INVALID_TIMESTAMP)) == [0, 1, 2]


def test_a_delete_horizon_is_the_cleaners_to_set() -> None:
    """Kafka stores the flag as sent, and its cleaner would take base_timestamp for a deadline."""
    found = check(resealed(SOUND, attributes=DELETE_HORIZON))
    assert found.header.attributes == 0
    assert list(records(found.batch)) == list(records(SOUND))


# -------------------------------------------------------------------------- keys, other opened ones


@pytest.mark.parametrize("codec", Codec)
def test_24_compacted_topics_refuse_records_without_a_key(codec: Codec) -> None:
    found = [*rows(NOW, NOW, NOW, NOW)]
    for index, key in ((1, None), (2, b""), (3, None)):
        found[index] = found[index]._replace(key=key)
    error = refused(build_batch(found, codec=codec), Error.INVALID_RECORD, COMPACTED)
    assert blamed(error) == [1, 3]
    check(build_batch(found, codec=codec))
    keyed = build_batch(rows(NOW, NOW, key=b""), codec=codec)
    assert check(keyed, COMPACTED).batch == keyed


def test_a_bad_timestamp_outweighs_a_missing_key() -> None:
    mixed = [*rows(NOW), Record(1, NOW, None, b""), Record(2, NOW + 2 * HOUR, b"k", b"")]
    assert blamed(refused(build_batch(mixed), Error.INVALID_TIMESTAMP, COMPACTED)) == [1, 2]


OPENED: Sequence[Rules] = (COMPACTED, Rules(timestamp_before_max_ms=HOUR))


@pytest.mark.parametrize("rules", OPENED, ids=["compacted", "before.max.ms"])
@pytest.mark.parametrize("codec", Codec)
def test_an_opened_batch_must_hold_what_it_says(rules: Rules, codec: Codec) -> None:
    data = batch(codec=codec)
    check(data, rules)
    refused(resealed(data, record_count=2, last_offset_delta=1), Error.INVALID_RECORD, rules)
    refused(resealed(data, record_count=4, last_offset_delta=3), Error.INVALID_RECORD, rules)
    # Kafka takes this uncompressed, and its consumers see the offset 5 twice.
    skipping = [*rows(NOW), Record(5, NOW, b"k", b""), Record(2, NOW, b"k", b"")]
    refused(build_batch(skipping, codec=codec), Error.INVALID_RECORD, rules)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_data_its_codec_cannot_read(codec: Codec) -> None:
    data = resealed(SOUND, attributes=codec)
    with pytest.raises(CorruptBatch):
        check(data, COMPACTED)
    # Unopened it is taken: Kafka opens it, and answers UNKNOWN_SERVER_ERROR.
    assert check(data).batch == data


@pytest.mark.parametrize("target", Codec)
@pytest.mark.parametrize("source", Codec)
def test_compression_type_other_than_producer(source: Codec, target: Codec) -> None:
    sent = resealed(
        batch(*(NOW - i for i in range(20)), codec=source),
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
    )
    found = check(bytes(sent), Rules(compression_type=target))
    assert found.header.codec == target
    assert list(records(found.batch)) == list(records(sent))
    for name in ("producer_id", "producer_epoch", "base_sequence", "record_count"):
        assert getattr(found.header, name) == getattr(read_header(sent), name)
    if source == target:
        assert found.batch == sent


def test_compression_level() -> None:
    text = b"".join(b"some %d text " % i for i in range(3000))
    sizes = [
        len(check(batch(NOW, key=text), Rules(compression_type=Codec.gzip, compression_level=n))[0])
        for n in (1, 9)
    ]
    assert sizes[0] > sizes[1]


def test_recompressed_with_log_append_time() -> None:
    rules = Rules(compression_type=Codec.lz4, log_append_time=True)
    found = check(batch(NOW, 5), rules)
    assert (found.header.codec, found.header.log_append_time) == (Codec.lz4, True)
    assert [record.timestamp for record in records(found.batch)] == [NOW, NOW]


def test_nothing_is_opened_in_the_usual_case() -> None:
    for codec in Codec:
        header = read_header(batch(codec=codec))
        assert not must_open(header, TOPIC, NOW)
        assert not must_open(header, Rules(log_append_time=True), NOW)
        assert not must_open(header, Rules(compression_type=codec), NOW)
        assert must_open(header, COMPACTED, NOW)
        assert must_open(header, Rules(timestamp_before_max_ms=NO_LIMIT - 1), NOW)


@given(st.data())
def test_whatever_comes_is_taken_or_refused(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(Codec))
    sent = batch(codec=codec)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(sent) - 1))
        sent[at] = data.draw(st.integers(0, 255))
    if len(sent) >= 61 and data.draw(st.booleans()):
        sent = resealed(sent)
    sent = sent[: data.draw(st.integers(0, len(sent)))] if data.draw(st.booleans()) else sent
    rules = data.draw(
        st.sampled_from(
            (TOPIC, COMPACTED, Rules(log_append_time=True), Rules(compression_type=Codec.zstd))
        )
    )
    try:
        check(sent, rules)
    except KafkaError as error:
        assert error.error is not Error.UNKNOWN_SERVER_ERROR  # noqa: PT017
