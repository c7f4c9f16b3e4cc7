"""The commit value, the page walker and the index, each against plain data."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.logkit import make_batch, scratch

from ottla.log import pages
from ottla.log.commit import IDEMPOTENT, KEY, BadCommit, Group, encode, parse
from ottla.log.extents import BadIndex, IndexBuilder, SealedIndex, read_footer
from ottla.log.options import Change, Table
from ottla.log.segment import map_file

LARGE = 1000
SALT = 0x0123_4567_89AB_CDEF

changes = st.builds(
    Change,
    st.sampled_from(list(Table)),
    st.binary(max_size=500),
    st.none() | st.binary(max_size=3000),
)
appends = st.tuples(st.integers(1, 4), st.sampled_from([10, 200, 999, 1500]), st.booleans())


class Admitted:
    """Gives out offsets, gathers what was admitted by partition."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        self.bytes: dict[int, bytes] = {}
        self.groups: list[Group] = []
        self.changes: list[Change] = []

    def group(self, batches: list[tuple[int, int, bool]], rows: list[Change]) -> Group:
        group = Group(LARGE)
        for partition, size, idempotent in batches:
            end = self.ends.get(partition, 0)
            batch = bytes(make_batch(2, size=size, fill=end))
            flags = IDEMPOTENT if idempotent else 0
            group.add(partition, flags, end, end + 1, end, len(batch), batch)
            self.ends[partition] = end + 2
            self.bytes[partition] = self.bytes.get(partition, b"") + batch
        group.changes.extend(rows)
        self.changes += rows
        self.groups.append(group)
        return group


@settings(deadline=None)
@given(
    turns=st.lists(
        st.tuples(st.lists(appends, max_size=8), st.lists(changes, max_size=4)),
        min_size=1,
        max_size=5,
    ),
    number=st.integers(1, (1 << 64) - 1),
)
def test_groups_become_one_commit_and_back(
    turns: list[tuple[list[tuple[int, int, bool]], list[Change]]], number: int
) -> None:
    admitted = Admitted()
    for batches, rows in turns:
        admitted.group(batches, rows)
    sizes = [group.size for group in admitted.groups]
    merged = Group(LARGE)
    for group in admitted.groups:
        merged.merge(group)
    assert merged.size == sum(sizes)
    puts, rows_out = encode(number, 77, merged.extents, merged.changes, LARGE, SALT)
    keys = [key for key, _ in puts]
    assert keys == sorted(keys)
    assert [KEY.unpack(key) for key in keys] == [(number, slot) for slot in range(len(keys))]
    values = [bytes(value) for _, value in puts]
    commit = parse(values[0], number)
    assert (commit.number, commit.time_ms) == (number, 77)
    assert commit.rows == rows_out
    assert list(commit.changes()) == admitted.changes
    found: dict[int, bytes] = {}
    ends: dict[int, int] = {}
    for row in commit.rows:
        data = values[row.slot][row.position : row.position + row.length]
        assert len(data) == row.length
        assert data[17:21] == row.crc
        assert (row.slot > 0) == (row.length >= LARGE and row.position == 0)
        found[row.partition] = found.get(row.partition, b"") + data
        assert row.first == ends.get(row.partition, 0)
        assert row.max_timestamp == row.last - 1
        ends[row.partition] = row.last + 1
    assert found == admitted.bytes
    assert ends == admitted.ends


@given(data=st.data())
def test_altered_commits_are_told(data: st.DataObject) -> None:
    admitted = Admitted()
    group = admitted.group([(1, 10, True), (2, 300, False)], [Change(Table.TOPICS, b"k", b"v")])
    puts, rows = encode(9, 0, group.extents, group.changes, LARGE, SALT)
    value = bytearray(puts[0][1])
    journal_end = rows[0].position
    position = data.draw(st.integers(0, journal_end - 1))
    value[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadCommit):
        parse(bytes(value), 9)


@given(size=st.integers(0, 400), noise=st.binary(max_size=200))
def test_cut_commits_and_noise_are_told(size: int, noise: bytes) -> None:
    admitted = Admitted()
    group = admitted.group([(1, 300, True)], [])
    value = bytes(encode(9, 0, group.extents, group.changes, LARGE, SALT)[0][0][1])
    if size < len(value):
        with pytest.raises(BadCommit):
            parse(value[:size], 9)
    with pytest.raises(BadCommit):
        parse(noise)
    with pytest.raises(BadCommit):
        parse(value, 8)


# --------------------------------------------------------------------------------------- pages


def write_file(path: Path, sizes: list[int]) -> dict[bytes, bytes]:
    wanted = {}
    env = lmdb.open(str(path), map_size=1 << 30, subdir=False, lib_version=0, sync=False)
    for number, size in enumerate(sizes, 1):
        with env.begin(write=True) as txn:
            key, value = KEY.pack(number, 0), os.urandom(size)
            txn.put(key, value, append=True)
            wanted[key] = value
            if number % 7 == 0:
                key, value = KEY.pack(number, 1), os.urandom(3 * size)
                txn.put(key, value, append=True)
                wanted[key] = value
    env.close()
    return wanted


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.sampled_from([0, 50, 700, 2030, 2040, 5000, 70_000]), max_size=120))
def test_walk_finds_what_lmdb_wrote(sizes: list[int]) -> None:
    root = scratch("ottla-pages-")
    try:
        wanted = write_file(root / "file", sizes)
        file = map_file(root / "file")
        found = {
            value.key: bytes(file[value.position : value.position + value.size])
            for value in pages.walk(file, pages.read_meta(file))
        }
        assert found == wanted
        assert list(found) == sorted(wanted)
        loose: dict[bytes, set[bytes]] = {}
        for value in pages.loose(file).values:
            data = bytes(file[value.position : value.position + value.size])
            loose.setdefault(value.key, set()).add(data)
        assert all(data in loose[key] for key, data in wanted.items())
        assert pages.verify(root / "file") is None
    finally:
        shutil.rmtree(root)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_walk_of_damaged_files_ends_with_an_error_or_well(data: st.DataObject) -> None:
    root = scratch("ottla-pages-")
    try:
        write_file(root / "file", [300, 2000, 9000] * 30)
        raw = bytearray((root / "file").read_bytes())
        for _ in range(data.draw(st.integers(1, 20))):
            position = data.draw(st.integers(0, len(raw) - 1))
            raw[position] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):
            del raw[data.draw(st.integers(1, len(raw))) :]
        file = memoryview(bytes(raw))
        with suppress(pages.BadPages):
            for value in pages.walk(file, pages.read_meta(file)):
                assert 0 <= value.position <= value.position + value.size <= len(raw)
        for value in pages.loose(file).values:
            assert value.position >= 0
    finally:
        shutil.rmtree(root)


# --------------------------------------------------------------------------------------- index

rows = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5), st.integers(0, 99)), min_size=1)


@given(partitions=st.dictionaries(st.integers(0, (1 << 32) - 1), rows, max_size=8))
def test_index_is_read_as_it_was_built(
    partitions: dict[int, list[tuple[int, int, int]]],
) -> None:
    builder = IndexBuilder()
    wanted = {}
    for number in sorted(partitions):
        extents = []
        offset = 0
        for count, gap, time in partitions[number]:
            first = offset + gap
            offset = first + count
            extents.append((offset - 1, time, first, 1000 + first, count * 10, count & 1))
        wanted[number] = extents
        builder.add(number, iter(extents))
    data = memoryview(bytes(4096) + builder.build(5, 9, 77, 1, 4096, 2))
    footer = read_footer(data)
    assert (footer.first_commit, footer.last_commit, footer.time_ms) == (5, 9, 77)
    index = SealedIndex(data, footer)
    index.check()
    assert list(index.numbers()) == sorted(wanted)
    for number, extents in wanted.items():
        totals = index.totals(number)
        assert totals is not None
        assert totals.rows == len(extents)
        assert totals.length == sum(e[4] for e in extents)
        assert (totals.first, totals.last) == (extents[0][2], extents[-1][0])
        assert totals.max_timestamp == max(e[1] for e in extents)
        assert totals.flags == (1 if any(e[5] for e in extents) else 0)
        for offset in range(extents[-1][0] + 3):
            at = index.locate(totals, offset) - totals.start
            expected = next((i for i, e in enumerate(extents) if e[0] >= offset), len(extents))
            assert at == expected
        for row, extent in enumerate(extents, totals.start):
            assert (
                index.lasts[row],
                index.times[row],
                index.firsts[row],
                index.positions[row],
                index.lengths[row],
                index.row_flags[row],
            ) == extent
    assert index.totals(max(wanted, default=0) + 1) is None


@given(data=st.data())
def test_altered_index_is_told(data: st.DataObject) -> None:
    builder = IndexBuilder()
    for number in (3, 8):
        builder.add(number, iter([(9, 1, 0, 4096, 100, 0), (19, 2, 10, 4196, 100, 1)]))
    raw = bytearray(bytes(4096) + builder.build(1, 2, 3, 1, 4096, 2))
    raw[data.draw(st.integers(4096, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file = memoryview(bytes(raw))
    with pytest.raises(BadIndex):
        SealedIndex(file, read_footer(file)).check()
