"""Columns in the place of a list of structs: the same bytes."""

from __future__ import annotations

from array import array

import pytest

from ottla.wire.api.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.wire.compile import encode
from ottla.wire.packed import Packed

ROWS = [(7, 0), (-1, 1 << 40), ((1 << 63) - 1, -(1 << 63)), *((i, i * i) for i in range(300))]


def answer(transactions: list[AbortedTransaction] | Packed) -> FetchResponse:
    data = PartitionData(partition_index=3, records=b"xy", aborted_transactions=transactions)
    return FetchResponse(responses=[FetchableTopicResponse(partitions=[data, data])])


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("count", [0, 1, 126, 127, len(ROWS)])
def test_the_same_bytes_as_a_list(version: int, count: int) -> None:
    rows = ROWS[:count]
    listed = [AbortedTransaction(producer_id=one, first_offset=two) for one, two in rows]
    columns = [array("q", [row[at] for row in rows]) for at in range(2)]
    packed = b"".join(encode(answer(Packed(columns)), version))
    assert packed == b"".join(encode(answer(listed), version))
