"""A scan in parts sees what a scan sees."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.options import Change, Table
from ottla.log.state import State

keys = st.binary(min_size=1, max_size=2)
changes = st.lists(st.tuples(keys, st.one_of(st.none(), st.binary(max_size=2))), max_size=30)


@given(
    stored=changes,
    frozen=changes,
    fresh=changes,
    prefix=st.binary(max_size=1),
    limit=st.integers(1, 8),
)
def test_pages_together_are_the_scan(
    tmp_path_factory: pytest.TempPathFactory,
    stored: list[tuple[bytes, bytes | None]],
    frozen: list[tuple[bytes, bytes | None]],
    fresh: list[tuple[bytes, bytes | None]],
    prefix: bytes,
    limit: int,
) -> None:
    state = State(Path(tmp_path_factory.mktemp("state")) / "state", sync=False)
    try:
        for part, number in ((stored, 1), (frozen, 2)):
            state.apply(Change(Table.OFFSETS, key, value) for key, value in part)
            being_written = state.freeze()
            if number == 1:
                state.write(being_written, number)
                state.thaw(number)
        state.apply(Change(Table.OFFSETS, key, value) for key, value in fresh)
        state.apply([Change(Table.GROUPS, b"other", b"table")])
        paged: list[tuple[bytes, bytes]] = []
        after: bytes | None = b""
        while after is not None:
            rows, after = state.page(Table.OFFSETS, prefix, after, limit)
            assert len(rows) <= limit
            paged += rows
        assert paged == list(state.scan(Table.OFFSETS, prefix))
    finally:
        state.close()
