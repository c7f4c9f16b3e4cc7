"""What consumers say in bytes that are theirs."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.group.simulated import subscription

from ottla.group.subscription import partitions, topics

names = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)


@given(st.lists(names, max_size=5), st.binary(max_size=10))
def test_topics_of_any_version_are_read(wanted: list[str], rest: bytes) -> None:
    text = b"".join(len(n.encode()).to_bytes(2) + n.encode() for n in wanted)
    assert topics((7).to_bytes(2) + len(wanted).to_bytes(4) + text + rest) == wanted


@given(
    st.dictionaries(names, st.lists(st.integers(0, 2**31 - 1), max_size=4), max_size=4),
    st.binary(max_size=10),
)
def test_assignments_of_any_version_are_read(wanted: dict[str, list[int]], rest: bytes) -> None:
    text = b"".join(
        len(n.encode()).to_bytes(2)
        + n.encode()
        + len(indexes).to_bytes(4)
        + b"".join(index.to_bytes(4) for index in indexes)
        for n, indexes in wanted.items()
    )
    assert partitions((1).to_bytes(2) + len(wanted).to_bytes(4) + text + rest) == wanted


def test_an_empty_assignment_is_nothing() -> None:
    assert partitions(b"") == {}


@given(st.binary(max_size=40))
def test_garbage_is_refused_or_read_but_never_worse(data: bytes) -> None:
    for read in (topics, partitions):
        with contextlib.suppress(ValueError):
            read(data)


@pytest.mark.parametrize("cut", range(9))
def test_what_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match=r"topics|topic"):
        topics(subscription("orders")[:cut])


def test_counts_larger_than_the_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="topics"):
        topics(b"\x00\x00\x7f\xff\xff\xff")
    with pytest.raises(ValueError, match="partitions"):
        partitions(b"\x00\x00\x00\x00\x00\x01\x00\x01t\x7f\xff\xff\xff")
