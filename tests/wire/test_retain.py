"""Batches that lose records: what is left is a batch that any reader of Kafka's format takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.codecs import Codec
from ottla.wire.records import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    build_batch,
    crc_ok,
    open_records,
    read_header,
    record_heads,
    records,
)
from ottla.wire.retain import delete_horizon, is_tombstone, keep_header, keep_records

TIMES = st.integers(-1, 1 << 41)
BODIES = st.one_of(st.none(), st.binary(max_size=200))
HEADERS = st.lists(st.tuples(st.binary(max_size=5), BODIES), max_size=2).map(tuple)
ROWS = st.lists(
    st.tuples(TIMES, BODIES, BODIES, HEADERS, st.booleans()), min_size=1, max_size=20
).filter(lambda rows: any(row[-1] for row in rows))


@given(
    rows=ROWS,
    codec=st.sampled_from(Codec),
    horizon=st.one_of(st.none(), st.integers(0, 1 << 42)),
    flags=st.sampled_from([0, LOG_APPEND_TIME, TRANSACTIONAL]),
)
def test_the_records_kept_are_as_they_were(
    rows: list[
        tuple[int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...], bool]
    ],
    codec: Codec,
    horizon: int | None,
    flags: int,
) -> None:
    before = [Record(90 + i, *row[:-1]) for i, row in enumerate(rows)]
    batch = build_batch(
        before, base_offset=90, codec=codec, leader_epoch=4, producer_id=7, producer_epoch=2,
        base_sequence=2147483640, attributes=flags,
    )  # fmt: skip
    header = read_header(batch)
    opened = open_records(batch, header)
    heads = list(record_heads(opened, header.record_count))
    assert [is_tombstone(opened, head) for head in heads] == [row[2] is None for row in rows]
    stays = [row[-1] for row in rows]
    kept, after = keep_records(
        header, opened, [head for head, stay in zip(heads, stays, strict=True) if stay], horizon
    )
    assert after == read_header(kept)
    assert after.size == len(kept)
    assert crc_ok(kept, after)
    wanted = [r for r, stay in zip(records(batch), stays, strict=True) if stay]
    assert list(records(kept)) == wanted
    assert (after.base_offset, after.last_offset) == (header.base_offset, header.last_offset)
    assert after[2] == 4
    assert after[9:12] == header[9:12]
    assert after.last_sequence == header.last_sequence
    assert after.codec == codec
    assert delete_horizon(after) == horizon
    assert after.attributes & ~DELETE_HORIZON == header.attributes
    assert after.max_timestamp == max(r.timestamp for r in wanted)


@given(flags=st.sampled_from([0, LOG_APPEND_TIME, TRANSACTIONAL, TRANSACTIONAL | CONTROL]))
def test_an_empty_batch_still_says_whose_it_was(flags: int) -> None:
    rows = [Record(5 + i, 100 + i, b"k", None) for i in range(3)]
    batch = build_batch(
        rows, codec=Codec.gzip, producer_id=7, producer_epoch=2, base_sequence=9, leader_epoch=1,
        attributes=flags | DELETE_HORIZON,
    )  # fmt: skip
    header = read_header(batch)
    kept, after = keep_header(header)
    assert len(kept) == 61
    assert after == read_header(kept)
    assert crc_ok(kept, after)
    assert list(records(kept)) == []
    assert after.attributes == flags
    assert (after.base_offset, after.last_offset, after.record_count) == (5, 7, 0)
    assert (after.max_timestamp, after.base_timestamp) == (102, -1)
    assert after[9:12] == header[9:12]
