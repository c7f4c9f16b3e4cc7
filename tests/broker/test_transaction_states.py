"""Each cell of the state table, against Kafka's TransactionCoordinator and TransactionMetadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.transaction_rows import decode_row, encode_row, row_key, row_number
from ottla.broker.transaction_states import (
    LAST_EPOCH,
    STATE_OF,
    Producer,
    State,
    Transaction,
    added,
    check_expected,
    check_producer,
    ended,
    fresh,
    initialized,
    may_end,
)
from ottla.wire.errors import Error, KafkaError

NEW_ID = 99
LIVE = [State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT]
RESTING = [state for state in LIVE if state is not State.ONGOING]


def new_id() -> int:
    return NEW_ID


def none_left() -> int:
    raise AssertionError("no new producer id is due")


def txn(state: State = State.EMPTY, epoch: int = 5, **fields: object) -> Transaction:
    made = Transaction(
        "t", producer_id=7, updated_ms=1000, state=state, producer_epoch=epoch, timeout_ms=60_000
    )
    if state is State.ONGOING:
        made = replace(made, start_ms=900, partitions=frozenset((1, 2)), groups=frozenset(("g",)))
    return replace(made, **fields)  # type: ignore[arg-type] # by name


def refusal(fn: object, *args: object) -> Error:
    with pytest.raises(KafkaError) as caught:
        fn(*args)  # type: ignore[operator] # a function
    return caught.value.error


def test_states_are_spelt_as_kafka_spells_them() -> None:
    assert sorted(STATE_OF) == [
        "CompleteAbort",
        "CompleteCommit",
        "Dead",
        "Empty",
        "Ongoing",
        "PrepareAbort",
        "PrepareCommit",
        "PrepareEpochFence",
    ]


# ---------------------------------------------------------------------------------- InitProducerId


@pytest.mark.parametrize("expected", [None, Producer(1, 3)])
def test_a_new_id_begins_with_epoch_0(expected: Producer | None) -> None:
    """Also for a producer that names what it had: the coordinator has forgotten it."""
    made = fresh("t", 7, 1000)
    check_expected(made, expected)
    got = initialized(made, expected, 500, 1000, none_left)
    assert (got.state, got.producer_id, got.producer_epoch) == (State.EMPTY, 7, 0)
    assert (got.last_producer_epoch, got.timeout_ms, got.start_ms) == (-1, 500, -1)


@pytest.mark.parametrize("state", RESTING)
@pytest.mark.parametrize(
    ("expected", "epoch", "last_epoch"),
    [(None, 6, -1), (Producer(7, 5), 6, 5), (Producer(7, 4), 5, 4)],
    ids=["another instance", "goes on", "asks again"],
)
def test_the_next_epoch(
    state: State, expected: Producer | None, epoch: int, last_epoch: int
) -> None:
    before = txn(state, last_producer_epoch=4, start_ms=900)
    check_expected(before, expected)
    got = initialized(before, expected, 500, 2000, none_left)
    assert (got.state, got.producer_id, got.producer_epoch) == (State.EMPTY, 7, epoch)
    assert (got.last_producer_epoch, got.timeout_ms, got.start_ms) == (last_epoch, 500, -1)
    assert got.updated_ms == 2000


@pytest.mark.parametrize("epoch", [0, 3, 6, 32767])
def test_who_names_another_epoch_is_fenced(epoch: int) -> None:
    before = txn(last_producer_epoch=4)
    asking = Producer(7, epoch)
    assert refusal(initialized, before, asking, 500, 0, none_left) is Error.PRODUCER_FENCED


def test_after_another_instance_the_previous_epoch_is_no_repetition() -> None:
    before = txn(last_producer_epoch=-1)
    asking = Producer(7, 4)
    assert refusal(initialized, before, asking, 500, 0, none_left) is Error.PRODUCER_FENCED


@pytest.mark.parametrize("asking", [Producer(8, 5), Producer(6, 5), Producer(6, 32765)])
def test_who_names_another_producer_id_is_fenced(asking: Producer) -> None:
    before = txn(previous_producer_id=6)
    assert refusal(check_expected, before, asking) is Error.PRODUCER_FENCED


@pytest.mark.parametrize("expected", [None, Producer(7, LAST_EPOCH)])
def test_behind_the_last_epoch_comes_another_producer_id(expected: Producer | None) -> None:
    got = initialized(txn(epoch=LAST_EPOCH), expected, 500, 0, new_id)
    assert (got.producer_id, got.producer_epoch, got.previous_producer_id) == (NEW_ID, 0, 7)
    assert got.last_producer_epoch == (-1 if expected is None else LAST_EPOCH)


def test_the_last_epochs_owner_asks_again_and_gets_the_same_new_id() -> None:
    before = initialized(txn(epoch=LAST_EPOCH), Producer(7, LAST_EPOCH), 500, 0, new_id)
    check_expected(before, Producer(7, LAST_EPOCH))
    got = initialized(before, Producer(7, LAST_EPOCH), 500, 0, none_left)
    assert (got.producer_id, got.producer_epoch) == (NEW_ID, 0)


# ----------------------------------------------------------------------------------------- adding


@pytest.mark.parametrize("state", LIVE)
def test_adding(state: State) -> None:
    before = txn(state, start_ms=900)
    got = added(before, (2, 3), ("h",), 2000)
    ongoing = state is State.ONGOING
    assert got.state is State.ONGOING
    assert got.partitions == ({1, 2, 3} if ongoing else {2, 3})
    assert got.groups == ({"g", "h"} if ongoing else {"h"})
    assert got.start_ms == (900 if ongoing else 2000)
    assert (got.producer_epoch, got.updated_ms) == (5, 2000)


def test_adding_what_is_there_changes_nothing() -> None:
    before = txn(State.ONGOING)
    assert added(before, (1,), ("g",), 2000) is before


@pytest.mark.parametrize("state", LIVE)
def test_who_may_add(state: State) -> None:
    assert check_producer(txn(state), Producer(7, 5)).state is state
    for epoch in (4, 6):
        assert refusal(check_producer, txn(state), Producer(7, epoch)) is Error.PRODUCER_FENCED
    other = refusal(check_producer, txn(state), Producer(8, 5))
    assert other is refusal(check_producer, None, Producer(7, 5))
    assert other is Error.INVALID_PRODUCER_ID_MAPPING


# ----------------------------------------------------------------------------------------- ending

END, DONE = "end", "done"
INVALID, FENCED = Error.INVALID_TXN_STATE, Error.PRODUCER_FENCED
Outcome = Literal["end", "done"] | Error


def outcome(before: Transaction | None, asking: Producer, commit: bool, version: int) -> Outcome:
    try:
        ending = may_end(before, asking, commit, version)  # type: ignore[arg-type] # 1 or 2
    except KafkaError as error:
        return error.error
    assert ending is None or ending is before
    return DONE if ending is None else END


# The table of endTransaction for version 2 (epoch before / this epoch, abort and commit), and its
# sentences for version 1.
@pytest.mark.parametrize(
    ("version", "state", "abort", "commit"),
    [
        (1, State.EMPTY, (FENCED, INVALID), (FENCED, INVALID)),
        (1, State.ONGOING, (FENCED, END), (FENCED, END)),
        (1, State.COMPLETE_ABORT, (FENCED, DONE), (FENCED, INVALID)),
        (1, State.COMPLETE_COMMIT, (FENCED, INVALID), (FENCED, DONE)),
        (2, State.EMPTY, (FENCED, END), (FENCED, INVALID)),
        (2, State.ONGOING, (FENCED, END), (FENCED, END)),
        (2, State.COMPLETE_ABORT, (DONE, END), (INVALID, INVALID)),
        (2, State.COMPLETE_COMMIT, (INVALID, END), (DONE, INVALID)),
    ],
)
def test_who_may_end_what(
    version: int, state: State, abort: tuple[Outcome, Outcome], commit: tuple[Outcome, Outcome]
) -> None:
    for committed, cells in ((False, abort), (True, commit)):
        for epoch, wanted in zip((4, 5), cells, strict=True):
            got = outcome(txn(state), Producer(7, epoch), committed, version)
            assert got == wanted, (committed, epoch)
        for epoch in (3, 6):
            assert outcome(txn(state), Producer(7, epoch), committed, version) is FENCED
        for before, producer in ((None, Producer(7, 5)), (txn(state), Producer(8, 5))):
            got = outcome(before, producer, committed, version)
            assert got is Error.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("state", [State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_an_end_that_gave_a_new_producer_id_is_asked_for_again(
    state: State, committed: bool
) -> None:
    before = txn(state, epoch=0, previous_producer_id=6)
    same = committed == (state is State.COMPLETE_COMMIT)
    assert outcome(before, Producer(6, LAST_EPOCH), committed, 2) == (DONE if same else INVALID)
    assert outcome(before, Producer(6, 4), committed, 2) is Error.INVALID_PRODUCER_ID_MAPPING
    assert (
        outcome(before, Producer(6, LAST_EPOCH), committed, 1) is Error.INVALID_PRODUCER_ID_MAPPING
    )


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_version_1_keeps_the_epoch(committed: bool) -> None:
    got, marker_epoch = ended(txn(State.ONGOING), committed, 1, 2000, none_left)
    assert got.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert (got.producer_epoch, marker_epoch, got.partitions, got.groups) == (5, 5, set(), set())
    assert (got.start_ms, got.updated_ms) == (900, 2000)


@pytest.mark.parametrize("committed", [True, False])
def test_the_end_of_version_2_raises_it(committed: bool) -> None:
    got, marker_epoch = ended(txn(State.ONGOING), committed, 2, 2000, none_left)
    assert got.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)
    assert (got.producer_epoch, marker_epoch, got.last_producer_epoch) == (6, 6, 5)


@pytest.mark.parametrize("state", RESTING)
def test_an_abort_of_nothing_raises_it_too(state: State) -> None:
    got, marker_epoch = ended(txn(state), False, 2, 2000, none_left)
    assert (got.state, got.producer_epoch, marker_epoch) == (State.COMPLETE_ABORT, 6, 6)
    assert got.start_ms == 2000


@pytest.mark.parametrize("epoch", [LAST_EPOCH, LAST_EPOCH + 1])
def test_the_last_epoch_is_left_to_the_marker(epoch: int) -> None:
    got, marker_epoch = ended(txn(State.ONGOING, epoch), True, 2, 2000, new_id)
    assert (marker_epoch, got.producer_id, got.producer_epoch) == (LAST_EPOCH + 1, NEW_ID, 0)
    assert got.previous_producer_id == 7


@pytest.mark.parametrize("epoch", [0, 5, LAST_EPOCH - 1, LAST_EPOCH])
def test_an_end_is_known_when_it_is_asked_for_again(epoch: int) -> None:
    for committed in (True, False):
        got, _ = ended(txn(State.ONGOING, epoch), committed, 2, 2000, new_id)
        assert outcome(got, Producer(7, epoch), committed, 2) == DONE
        assert outcome(got, Producer(7, epoch), not committed, 2) is INVALID


# ------------------------------------------------------------------------------------------- rows


@given(
    st.builds(
        Transaction,
        transactional_id=st.text(min_size=1, max_size=300),
        producer_id=st.integers(0, (1 << 63) - 1),
        updated_ms=st.integers(0, (1 << 63) - 1),
        state=st.sampled_from(LIVE),
        producer_epoch=st.integers(0, 32767),
        previous_producer_id=st.integers(-1, (1 << 63) - 1),
        last_producer_epoch=st.integers(-1, 32767),
        timeout_ms=st.integers(1, (1 << 31) - 1),
        start_ms=st.integers(-1, (1 << 63) - 1),
        partitions=st.frozensets(st.integers(0, (1 << 31) - 1), max_size=200),
        groups=st.frozensets(st.text(max_size=20), max_size=5),
    )
)
def test_a_row_keeps_all_of_it(made: Transaction) -> None:
    assert decode_row(encode_row(made)) == made


def test_a_row_of_a_newer_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version"):
        decode_row(b"\x63" + encode_row(txn())[1:])


def test_keys_are_in_the_order_of_their_numbers() -> None:
    numbers = [0, 1, 255, 256, 1 << 31]
    assert sorted(map(row_key, numbers)) == list(map(row_key, numbers))
    assert [row_number(row_key(number)) for number in numbers] == numbers
