"""Cutting work into pieces: how much one trigger takes, and which task reads what."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from pyspark_ottla.offsets import Offsets, Partition


@dataclass(frozen=True)
class Range(InputPartition):
    """Offsets `start` up to `end` (exclusive) of one partition, read by one task.

    number: that partition's number in the log's files, to read them without the broker.
    """

    topic: str
    partition: int
    start: int
    end: int
    number: int | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from {self.start} to {self.end}"

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def of(self) -> Partition:
        return Partition(self.topic, self.partition)

    def part(self, start: int, end: int) -> Range:
        """Other offsets of the same partition."""
        return replace(self, start=start, end=end)

    def at(self, number: int) -> Range:
        """The same offsets, in the files."""
        return replace(self, number=number)


def split(ranges: Iterable[Range], least: int | None, most_records: int | None) -> list[Range]:
    """The ranges that hold something, cut so that none has more than `most_records` offsets and
    that there are at least `least` (large ones are cut, in proportion to their size)."""
    found = [range_ for range_ in ranges if range_.size > 0]
    if most_records is not None:
        found = [
            piece
            for range_ in found
            for piece in cut(range_, math.ceil(range_.size / most_records))
        ]
    if least is None or not 0 < len(found) < least:
        return found
    # Ranges that are due one piece or less keep it whole; the others share what is left.
    whole: list[Range] = []
    large = found
    while True:
        share = sum(range_.size for range_ in large) / max(least - len(whole), 1)
        small = [range_ for range_ in large if range_.size <= share]
        if not small or len(small) == len(large):
            break
        whole += small
        large = [range_ for range_ in large if range_.size > share]
    pieces = {
        range_: piece
        for range_ in large
        for piece in [cut(range_, math.ceil(range_.size / share - 1e-9))]
    }
    return [piece for range_ in found for piece in pieces.get(range_, [range_])]


def cut(range_: Range, count: int) -> list[Range]:
    """`count` pieces of about the same size, as many as there are offsets at most."""
    count = max(1, min(count, range_.size))
    edges = [range_.start + range_.size * index // count for index in range(count + 1)]
    return [range_.part(start, end) for start, end in pairwise(edges)]


def limited(start: Offsets, end: Offsets, limit: int) -> Offsets:
    """As much of `start` to `end` as `limit` records allow, shared in proportion to what each
    partition has (and at least one where there is any), as the connector shares it."""
    sizes = {p: max(end[p] - start.get(p, 0), 0) for p in end}
    total = sum(sizes.values())
    if total <= limit:
        return end
    taken = {}
    for partition, until in end.items():
        begin = start.get(partition, 0)
        share = limit * (sizes[partition] / total)
        # small partitions are not starved
        step = math.ceil(share) if share < 1 else math.floor(share)
        taken[partition] = until if until < begin else min(begin + step, until)
    return taken


def available(start: Offsets, end: Mapping[Partition, int]) -> int:
    """How many offsets lie between."""
    return sum(max(until - start.get(partition, 0), 0) for partition, until in end.items())
