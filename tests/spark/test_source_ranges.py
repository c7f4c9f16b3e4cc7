"""Cutting work into tasks, and how much one trigger takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_ottla.offsets import Offsets, Partition
from pyspark_ottla.ranges import Range, available, limited, split

SIZES = st.lists(st.integers(0, 1000), max_size=8)


def ranges(*sizes: int) -> list[Range]:
    return [Range("t", number, 100, 100 + size, 7) for number, size in enumerate(sizes)]


def covered(found: list[Range]) -> dict[int, list[tuple[int, int]]]:
    """The pieces of each partition."""
    pieces: dict[int, list[tuple[int, int]]] = {}
    for range_ in found:
        pieces.setdefault(range_.partition, []).append((range_.start, range_.end))
    return pieces


def test_a_partition_is_a_task() -> None:
    assert split(ranges(5, 0, 7), None, None) == ranges(5, 0, 7)[::2]
    assert split(ranges(5, 5), 2, None) == ranges(5, 5)
    assert split([], 4, 10) == []


def test_large_ones_are_cut_in_proportion() -> None:
    found = split(ranges(10, 3000), 4, None)
    assert covered(found) == {0: [(100, 110)], 1: [(100, 1100), (1100, 2100), (2100, 3100)]}


def test_no_task_is_larger_than_allowed() -> None:
    assert [r.size for r in split(ranges(10, 25), None, 10)] == [10, 8, 8, 9]


@given(SIZES, st.none() | st.integers(1, 30), st.none() | st.integers(1, 50))
def test_nothing_is_lost_or_doubled(sizes: list[int], least: int | None, most: int | None) -> None:
    found = split(ranges(*sizes), least, most)
    pieces = covered(found)
    for number, size in enumerate(sizes):
        mine = pieces.get(number, [])
        edges = [edge for piece in mine for edge in piece]
        assert edges == sorted(edges)
        assert sum(end - start for start, end in mine) == size
        if mine:
            assert (edges[0], edges[-1]) == (100, 100 + size)
            assert edges[1:-1:2] == edges[2::2]
    assert all(range_.size > 0 and range_.number == 7 for range_ in found)
    if most is not None:
        assert all(range_.size <= most for range_ in found)
    if least is not None and found:
        assert len(found) >= min(least, sum(sizes))


def offsets(*values: int) -> Offsets:
    return {Partition("t", number): value for number, value in enumerate(values)}


@pytest.mark.parametrize(
    ("start", "end", "limit", "taken"),
    [
        ((0, 0), (10, 30), 100, (10, 30)),
        ((0, 0), (10, 30), 20, (5, 15)),
        ((0, 0), (1, 999), 10, (1, 9)),  # a small one is not starved
        ((5, 5), (5, 25), 10, (5, 15)),
        ((5, 8), (9, 4), 2, (7, 4)),  # what has gone back stays where it is
    ],
)
def test_a_limit_is_shared(
    start: tuple[int, ...], end: tuple[int, ...], limit: int, taken: tuple[int, ...]
) -> None:
    assert limited(offsets(*start), offsets(*end), limit) == offsets(*taken)


@given(SIZES, st.integers(1, 500))
def test_a_limit_leads_to_the_end(sizes: list[int], limit: int) -> None:
    start, end = offsets(*[0] * len(sizes)), offsets(*sizes)
    for _ in range(5000):
        now = limited(start, end, limit)
        step = available(start, now)
        assert step <= limit + len(sizes)
        if now == start:
            break
        start = now
    assert start == end
