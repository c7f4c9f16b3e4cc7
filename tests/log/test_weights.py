"""What is planned for segments by what is alive of them."""

from __future__ import annotations

from ottla.log.folder import FORMAT, SealedName
from ottla.log.rewrite import target
from ottla.log.weights import MERGED, MIGRATED, Weight, plan


class Fake:
    """As much of a sealed segment as planning looks at."""

    def __init__(self, first: int, last: int, size: int, generation: int, time_ms: int) -> None:
        self.name = SealedName(first, last, generation)
        self.first, self.last, self.size, self.time_ms = first, last, size, time_ms
        self.format = FORMAT


def weights(*rows: tuple[int, int, int], gap: int = 0) -> list[Weight]:
    """(live bytes of 1000, extents, generation), one hundred commits and ms each."""
    return [
        Weight(
            Fake(i * 100 + 1, i * 100 + 100 - gap, 1000, generation, i * 100),  # type: ignore[arg-type] # as much as is looked at
            1000,
            live,
            count,
        )
        for i, (live, count, generation) in enumerate(rows)
    ]


def planned(rows: list[Weight], **changes: object) -> list[list[int]]:
    options: dict[str, object] = {"segment_bytes": 1000, "span_ms": -1, "warm": 0, "lost": []}
    options.update(changes)
    groups = plan(rows, **options)  # type: ignore[arg-type] # by name
    return [[rows.index(weight) for weight in group] for group in groups]


def test_what_is_planned() -> None:
    whole, half, fine = (900, 1, 1), (499, 1, 1), (900, 1, 0)
    assert planned(weights(whole, half, fine, (0, 0, 0), whole)) == [[1], [2]]
    assert planned(weights(fine, fine, fine), warm=1) == [[0], [1]]
    assert planned(weights(fine, half), warm=1) == [[0], [1]]
    small = (100, 1, 1)
    assert planned(weights(*[small] * MERGED)) == [list(range(MERGED))]
    assert planned(weights(*[small] * (MERGED - 1))) == [[i] for i in range(MERGED - 1)]
    sound = (100, 1, 2)
    tidy = [weight._replace(total=150) for weight in weights(*[sound] * (MERGED - 1))]
    assert planned(tidy) == []


def test_what_is_not_merged() -> None:
    small = [w._replace(total=150) for w in weights(*[(100, 1, 1)] * (2 * MERGED), gap=10)]
    assert planned(small) == [list(range(10))]  # ten fill a segment; six are too few
    assert planned(small, segment_bytes=10_000) == [list(range(16))]
    assert planned(small, segment_bytes=10_000, span_ms=600) == []
    assert planned(small, segment_bytes=10_000, span_ms=700) == [
        list(range(8)), list(range(8, 16))
    ]  # fmt: skip
    # A file that was set aside between two of them must not be covered.
    assert planned(small, segment_bytes=10_000, lost=[95]) == [list(range(1, 16))]
    assert planned(small, segment_bytes=10_000, lost=[795]) == [
        list(range(8)), list(range(8, 16))
    ]  # fmt: skip


def test_the_name_says_what_it_stands_for() -> None:
    rows = weights((1, 1, 3), (1, 1, 0))
    assert target([row.segment for row in rows]) == SealedName(1, 200, 4)
    assert all(target([row.segment for row in rows]).hides(row.segment.name) for row in rows)


def test_files_of_an_older_format_are_rewritten_a_few_at_a_time() -> None:
    rows = weights(*[(900, 1, 1)] * (MIGRATED + 2))
    for weight in rows[1:]:
        weight.segment.format = FORMAT - 1
    assert planned(rows, warm=2) == [[i] for i in range(1, MIGRATED + 1)]
