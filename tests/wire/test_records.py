"""Record batches: our bytes before others' readers, others' before ours, and garbage."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as PyBuilder
from kafka.record.memory_records import MemoryRecords as PyRecords

from ottla.wire.codecs import Codec
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    InvalidRecords,
    Record,
    build_batch,
    crc_ok,
    patch,
    patched_start,
    read_header,
    recompress,
    records,
    rewritten,
    walk,
    with_log_append_time,
)

optional = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5).map(str.encode), optional), max_size=3).map(tuple)
times = st.integers(0, 1 << 45)


@st.composite
def rows(draw: st.DrawFn, gaps: bool = False) -> list[Record]:
    offset = draw(st.integers(0, 1 << 50))
    found = []
    for _ in range(draw(st.integers(1, 12))):
        found.append(Record(offset, draw(times), draw(optional), draw(optional), draw(headers)))
        offset += draw(st.integers(1, 1000)) if gaps else 1
    return found


EXAMPLE = [
    Record(40 + i, 1_700_000_000_000 + 7 * i - i % 3, b"k%d" % i, b"v" * (17 * i), ((b"h", None),))
    for i in range(30)
]


def seen_by_others(batch: Any) -> list[Record]:
    assert batch.validate_crc()
    return [
        Record(r.offset, r.timestamp, r.key, r.value, tuple((k.encode(), v) for k, v in r.headers))
        for r in batch
    ]


@given(rows(gaps=True))
def test_what_is_built_is_read_again(items: list[Record]) -> None:
    batch = build_batch(items)
    header = read_header(batch)
    assert crc_ok(batch, header)
    assert list(records(batch)) == items
    assert header.last_offset == items[-1].offset
    assert header.next_offset == items[-1].offset + 1
    assert header.max_timestamp == max(item.timestamp for item in items)


@given(rows())
def test_kafka_python_reads_what_is_built(items: list[Record]) -> None:
    assert seen_by_others(PyRecords(bytes(build_batch(items))).next_batch()) == items


@pytest.mark.parametrize("codec", Codec)
def test_aiokafka_reads_every_codec(codec: Codec) -> None:
    batch = build_batch(EXAMPLE, codec=codec)
    assert read_header(batch).codec == codec
    assert seen_by_others(AioRecords(bytes(batch)).next_batch()) == EXAMPLE
    assert list(records(batch)) == EXAMPLE


@given(rows())
def test_same_bytes_as_kafka_python(items: list[Record]) -> None:
    builder = PyBuilder(2, 0, False, 77, 3, 1000, 1 << 20)
    for i, item in enumerate(items):
        named = [(name.decode(), value) for name, value in item.headers]
        builder.append(i, item.timestamp, item.key, item.value, named)
    moved = [item._replace(offset=i) for i, item in enumerate(items)]
    ours = build_batch(moved, producer_id=77, producer_epoch=3, base_sequence=1000)
    theirs = bytearray(builder.build())
    patch(ours, 0, 0, 0)
    patch(theirs, 0, 0, 0)
    assert ours == theirs


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_aiokafka_are_read(codec: Codec) -> None:
    builder = AioBuilder(2, codec, 1, 9, 0, 0, 1 << 20)
    for i, item in enumerate(EXAMPLE):
        named = [(name.decode(), value) for name, value in item.headers]
        builder.append(i, item.timestamp, item.key, item.value, named)
    batch = builder.build()
    header = read_header(batch)
    assert crc_ok(batch, header)
    assert (header.codec, header.producer_id, header.record_count) == (codec, 9, len(EXAMPLE))
    assert header.is_transactional
    assert [r._replace(offset=r.offset + 40) for r in records(batch)] == EXAMPLE


@pytest.mark.parametrize("before", Codec)
@pytest.mark.parametrize("after", Codec)
def test_recompression_keeps_all_but_the_codec(before: Codec, after: Codec) -> None:
    batch = build_batch(
        EXAMPLE, codec=before, producer_id=5, producer_epoch=1, base_sequence=2, leader_epoch=3
    )
    header = read_header(batch)
    other, changed = recompress(batch, header, after)
    assert read_header(other) == changed
    assert crc_ok(other, changed)
    assert changed.codec == after
    assert list(records(other)) == EXAMPLE
    kept = ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id")
    for name in (*kept, "producer_epoch", "base_sequence", "record_count"):
        assert getattr(changed, name) == getattr(header, name)


def test_offset_and_leader_epoch_lie_outside_the_crc() -> None:
    batch = build_batch(EXAMPLE)
    sent = bytes(batch)
    patch(memoryview(batch), 0, 123456789012, 7)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (123456789012, 7)
    assert crc_ok(batch, header)
    assert patched_start(read_header(sent), 123456789012, 7) + sent[16:] == batch


def test_log_append_time_makes_a_new_crc() -> None:
    batch = bytes(build_batch(EXAMPLE, codec=Codec.zstd))
    copy, header = with_log_append_time(batch, read_header(batch), 99)
    assert header.log_append_time
    assert header == read_header(copy)
    assert crc_ok(copy, header)
    assert header.crc != read_header(batch).crc
    assert header.base_timestamp == read_header(batch).base_timestamp
    assert {record.timestamp for record in records(copy)} == {99}
    assert not read_header(batch).log_append_time


def test_walk_finds_every_batch_and_stops_at_half_a_one() -> None:
    one, two = bytes(build_batch(EXAMPLE[:3])), bytes(build_batch(EXAMPLE[3:]))
    found = list(walk(memoryview(one + two)))
    assert [at for at, _ in found] == [0, len(one)]
    assert [header.base_offset for _, header in found] == [40, 43]
    assert [at for at, _ in walk(one + two, end=len(one))] == [0]
    assert [at for at, _ in walk(one + two, pos=len(one))] == [len(one)]
    assert list(walk(b"")) == []
    for cut in (1, 60, 61, len(two) - 1):
        walking = walk(one + two[:cut])
        assert next(walking)[0] == 0
        with pytest.raises(CorruptBatch):
            next(walking)


def test_walk_never_stands_still() -> None:
    batch = build_batch(EXAMPLE)
    for length in (-(1 << 31), -13, -12, -1, 0, 48):
        batch[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptBatch):
            list(walk(batch))


@pytest.mark.parametrize(
    ("first", "records_in", "last"),
    [(0, 1, 0), (0, 5, 4), (2147483647, 1, 2147483647), (2147483647, 2, 0), (2147483646, 4, 1)],
)
def test_sequences_wrap_to_zero(first: int, records_in: int, last: int) -> None:
    items = [Record(i, 0, b"k", b"v") for i in range(records_in)]
    header = read_header(build_batch(items, producer_id=1, producer_epoch=0, base_sequence=first))
    assert header.has_producer
    assert header.last_sequence == last
    assert read_header(build_batch(items)).last_sequence == -1


def test_flags_are_told() -> None:
    header = read_header(build_batch(EXAMPLE, attributes=TRANSACTIONAL | CONTROL))
    assert header.is_transactional
    assert header.is_control
    assert not header.log_append_time
    assert not header.has_producer


def test_a_batch_may_stand_for_more_offsets_than_it_has_records() -> None:
    empty = build_batch([], base_offset=10, last_offset=19)
    header = read_header(empty)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 19, 0)
    assert list(records(empty)) == []
    tail = read_header(build_batch(EXAMPLE[:2], base_offset=38, last_offset=50))
    assert (tail.base_offset, tail.last_offset) == (38, 50)


# ------------------------------------------------------------------------------------ damaged bytes


def resealed(batch: bytearray, **changes: Any) -> tuple[bytearray, BatchHeader]:
    return rewritten(batch, read_header(batch)._replace(**changes))


def test_a_flipped_bit_anywhere_under_the_crc_is_seen() -> None:
    batch = build_batch(EXAMPLE[:2])
    for at in range(17, len(batch)):
        for bit in (1, 128):
            batch[at] ^= bit
            assert not crc_ok(batch, read_header(batch))
            batch[at] ^= bit


@pytest.mark.parametrize("count", [0, 1, 29, 31, 1 << 30, -1])
def test_a_wrong_count_is_seen(count: int) -> None:
    batch, header = resealed(build_batch(EXAMPLE), record_count=count)
    with pytest.raises(InvalidRecords) as caught:
        list(records(batch, header))
    assert caught.value.error is Error.INVALID_RECORD


@given(st.sampled_from(Codec), st.binary(max_size=200))
def test_garbage_behind_a_sound_header(codec: Codec, garbage: bytes) -> None:
    batch = build_batch(EXAMPLE[:1])[:61] + garbage
    batch, header = resealed(bytearray(batch), attributes=codec, record_count=3)
    with pytest.raises(KafkaError):
        list(records(batch, header, limit=1 << 20))


@given(st.data())
def test_altered_batches_give_records_or_kafka_errors(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(Codec))
    batch = build_batch(EXAMPLE[:4], codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(batch)))
    for damaged in (batch, batch[:cut]):
        try:
            for record in records(damaged, limit=1 << 20):
                assert len(record.key or b"") < len(batch) * 300
        except KafkaError as error:
            assert error.error in (Error.CORRUPT_MESSAGE, Error.INVALID_RECORD)  # noqa: PT017
