"""Records of sealed segments, as the wire's own reader has them; and who reads what the files
cannot tell."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_ottla import sealed
from pyspark_ottla.opened import BadRecords, add_records
from pyspark_ottla.ranges import Range
from pyspark_ottla.rows import Rows
from pyspark_ottla.source import columns

from ottla.broker.metadata_rows import topic_row
from ottla.log.outside import Extent
from ottla.wire.codecs import Codec
from ottla.wire.records import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    build_batch,
    open_records,
    read_header,
)

TEXT = st.binary(max_size=200) | st.binary(min_size=9000, max_size=9001)
HEADERS = st.lists(
    st.tuples(st.text(max_size=9).map(str.encode), st.none() | st.binary(max_size=9)), max_size=3
)


@given(
    st.lists(
        st.tuples(st.integers(-(1 << 40), 1 << 40), st.none() | TEXT, st.none() | TEXT, HEADERS),
        min_size=1,
        max_size=90,
    ),
    st.integers(1, 1 << 40),
    st.data(),
)
def test_columns_are_the_records(
    items: list[tuple[int, bytes | None, bytes | None, Any]], base: int, data: st.DataObject
) -> None:
    records = [
        Record(base + 2 * index, (1 << 41) + time, key, value, tuple(headers))
        for index, (time, key, value, headers) in enumerate(items)
    ]
    batch = build_batch(records)
    header = read_header(batch)
    start = data.draw(st.integers(base - 1, records[-1].offset + 1))
    end = data.draw(st.integers(start, records[-1].offset + 2))
    rows = Rows(columns(True), "t", 0)
    opened = bytes(open_records(batch, header))
    added = add_records(
        rows, opened, header.record_count, header.base_offset, header.base_timestamp, start, end
    )
    wanted = [record for record in records if start <= record.offset < end]
    assert added == len(wanted) == len(rows)
    assert rows.keys == [record.key for record in wanted]
    assert rows.values == [record.value for record in wanted]
    assert rows.offsets == [record.offset for record in wanted]
    assert rows.times == [record.timestamp for record in wanted]
    assert rows.headers == [
        [(name.decode(), value) for name, value in record.headers] or None for record in wanted
    ]


def test_damaged_records_add_nothing() -> None:
    batch = build_batch([Record(i, 1000, b"k", b"v" * 50) for i in range(9)])
    opened = bytes(open_records(batch, read_header(batch)))
    for cut in (0, 1, 30, len(opened) - 1):
        rows = Rows(columns(True), "t", 0)
        with pytest.raises(BadRecords):
            add_records(rows, opened[:cut], 9, 0, 1000, 0, 9)
        assert len(rows) == len(rows.keys) == len(rows.values) == len(rows.times) == 0


class Files:
    """Stands in for a data folder."""

    def __init__(self, *extents: Extent | Exception) -> None:
        self._extents = extents

    def extents(self, number: int, offset: int, end: int) -> Iterator[Extent]:
        assert number == 5
        for extent in self._extents:
            if isinstance(extent, Exception):
                raise extent
            yield extent


class Broker:
    """Stands in for the fetcher: notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def into(self, rows: Rows, range_: Range) -> Iterator[Any]:
        self.asked.append((range_.start, range_.end))
        rows.keys += [None] * range_.size
        rows.values += [b"broker"] * range_.size
        rows.offsets += range(range_.start, range_.end)
        rows.times += [0] * range_.size
        rows.time_types += [0] * range_.size
        yield from ()


def extent(first: int, count: int, *, follows: bool = True, attributes: int = 0) -> Extent:
    records = [Record(first + i, 1000 + i, b"k", b"file") for i in range(count)]
    batch = build_batch(records, attributes=attributes, codec=Codec.lz4)
    return Extent(memoryview(bytes(batch)), first, first + count - 1, follows)


def read(
    monkeypatch: pytest.MonkeyPatch, files: Files, *, committed: bool = False
) -> tuple[list[tuple[int, bytes]], list[tuple[int, int]]]:
    """Offsets 10 to 50: what was read, and what of it through the broker."""
    monkeypatch.setattr(sealed, "folder", lambda _: files)
    broker = Broker()
    level = "read_committed" if committed else "read_uncommitted"
    reader = sealed.SealedReader("d", level, columns(False), broker)  # type: ignore[arg-type] # a stand-in
    batches = reader.read(Range("t", 0, 10, 50, 5))
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["offset"], row["value"]) for row in rows], broker.asked


def test_what_is_not_sealed_comes_from_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = read(monkeypatch, Files(extent(8, 12, follows=False), extent(20, 10)))
    assert [offset for offset, _ in found] == list(range(10, 50))
    assert asked == [(30, 50)]
    assert {value for offset, value in found if offset < 30} == {b"file"}


def test_all_of_it_from_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = read(monkeypatch, Files(extent(10, 30), extent(40, 30)))
    assert [offset for offset, _ in found] == list(range(10, 50))
    assert asked == []


def test_a_gap_within_the_files_is_compactions(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = read(monkeypatch, Files(extent(10, 10), extent(30, 30, follows=True)))
    assert [offset for offset, _ in found] == [*range(10, 20), *range(30, 50)]
    assert asked == []


def test_what_may_lie_in_a_missing_file_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = read(monkeypatch, Files(extent(10, 10), extent(30, 30, follows=False)))
    assert asked == [(20, 30)]
    assert [offset for offset, _ in found] == list(range(10, 50))


@pytest.mark.parametrize(
    "problem", [sealed.LogError("altered"), FileNotFoundError("gone"), BadRecords("short")]
)
def test_damage_is_the_brokers_business(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pyspark_ottla")
    found, asked = read(monkeypatch, Files(extent(10, 10), problem))
    assert asked == [(20, 50)]
    assert [offset for offset, _ in found] == list(range(10, 50))
    assert str(problem) in caplog.text


def test_transactions_are_the_brokers_business_when_they_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def files() -> Files:
        marker = extent(35, 1, attributes=TRANSACTIONAL | CONTROL)
        return Files(
            extent(10, 20), extent(30, 5, attributes=TRANSACTIONAL), marker, extent(36, 20)
        )

    found, asked = read(monkeypatch, files(), committed=True)
    assert asked == [(30, 50)]
    assert [value for _, value in found][:20] == [b"file"] * 20
    found, asked = read(monkeypatch, files())
    assert asked == []
    assert [offset for offset, _ in found] == [*range(10, 35), *range(36, 50)]


def test_the_brokers_time_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(extent(10, 40, attributes=LOG_APPEND_TIME))
    monkeypatch.setattr(sealed, "folder", lambda _: files)
    reader = sealed.SealedReader("d", "", columns(False), Broker())  # type: ignore[arg-type] # a stand-in
    (batch,) = reader.read(Range("t", 0, 10, 50, 5))
    rows = batch.to_pylist()
    assert {row["timestampType"] for row in rows} == {1}
    assert {row["timestamp"].timestamp() for row in rows} == {1.039}


def test_a_topics_row_is_read_as_it_is_written() -> None:
    topic_id = bytes([0xFB, 0xEF, 0xFF] * 5 + [1])
    change = topic_row("t", topic_id, [7, 9])
    # librdkafka's way to write it, and Kafka's
    for shown in ("++//++//++//++//++//AQ==", "--__--__--__--__--__AQ"):
        assert sealed._numbers(change.value, shown) == (7, 9)
    assert sealed._numbers(change.value, "another") == ()
    assert sealed._numbers(None, "another") == ()


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(sealed.BadOption, match=r"^ottla\.log\.dir: .*is not an Ottla data folder"):
        sealed.folder(str(tmp_path))
