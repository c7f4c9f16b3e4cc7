"""Offsets that transactions move, in a whole broker: which commit they wait for, and what is left
when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.harness import Client, Harness
from tests.broker.txnkit import NEW, TxnProducer, group_offset
from tests.group.simulated import commit_request

from ottla.log.errors import WriteFailed
from ottla.log.options import Table
from ottla.log.writer import CommitFailed
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.errors import Error, KafkaError

UNSTABLE = (Error.UNSTABLE_OFFSET_COMMIT, -1)
STABLE_OFFSET = OffsetFetchRequest(
    groups=[
        OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        )
    ],
    require_stable=True,
)


@pytest.fixture
def producer(harness: Harness) -> TxnProducer:
    """It has a transaction open that will move group g from 3 to 7."""
    harness.topic("t")
    client = harness.client()
    client.call(commit_request("g", {0: 3}, topic="t"), 9)
    made = TxnProducer(harness, "a", NEW)
    made.begin()
    assert made.offsets("g", "t", 0, 7) is Error.NONE
    return made


def stable_offset(harness: Harness) -> tuple[Error, int]:
    return group_offset(harness, "g", "t", stable=True)


def answer_of(reader: Client) -> tuple[Error, int] | None:
    answer = reader.receive()
    if answer is None:
        return None
    (partition,) = answer.groups[0].topics[0].partitions
    return Error(partition.error_code), partition.committed_offset


@pytest.mark.parametrize(("committed", "offset"), [(True, 7), (False, 3)])
def test_the_end_moves_them_or_not(
    harness: Harness, producer: TxnProducer, committed: bool, offset: int
) -> None:
    assert stable_offset(harness) == UNSTABLE
    assert group_offset(harness, "g", "t") == (Error.NONE, 3)
    assert producer.end(committed) is Error.NONE
    assert stable_offset(harness) == (Error.NONE, offset)
    assert list(harness.store.scan(Table.PENDING_OFFSETS, b"")) == []


def test_a_reader_behind_the_end_waits_for_its_commit(
    harness: Harness, producer: TxnProducer
) -> None:
    reader = harness.client()
    for connection, frame in (
        (producer.client.connection, producer.client.frame(producer.end_request(True), 5)),
        (reader.connection, reader.frame(STABLE_OFFSET, 8)),
    ):
        connection.feed(frame)
    assert answer_of(reader) is None
    harness.turn()
    assert answer_of(reader) == (Error.NONE, 7)


def test_they_are_pending_after_a_restart(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data")
    harness.topic("t")
    producer = TxnProducer(harness, "a", NEW)
    producer.begin()
    assert producer.offsets("g", "t", 0, 7) is Error.NONE
    harness.store.close()
    harness = Harness(tmp_path / "data")
    try:
        assert stable_offset(harness) == UNSTABLE
        again = TxnProducer(harness, "a", NEW)
        again.id, again.epoch = producer.id, producer.epoch
        assert again.end() is Error.NONE
        assert stable_offset(harness) == (Error.NONE, 7)
    finally:
        harness.store.close()


def test_a_commit_that_fails_ends_nothing(
    harness: Harness, producer: TxnProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit(groups: object) -> None:
        raise CommitFailed(WriteFailed("the disk is gone"), poisoned=False)

    with monkeypatch.context() as broken:
        broken.setattr(harness.store.pipeline.committer, "commit", commit)
        assert producer.end() is not Error.NONE
    harness.pass_time(2_000)
    assert stable_offset(harness) == UNSTABLE
    assert producer.end() is Error.NONE
    assert stable_offset(harness) == (Error.NONE, 7)


def test_an_end_that_could_not_be_admitted_ends_nothing(
    harness: Harness, producer: TxnProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_markers(*arguments: object) -> None:
        raise KafkaError(Error.KAFKA_STORAGE_ERROR, "the disk is full")

    with monkeypatch.context() as full:
        full.setattr(harness.store, "write_markers", write_markers)
        assert producer.end() is Error.COORDINATOR_NOT_AVAILABLE
    assert stable_offset(harness) == UNSTABLE
    assert producer.end() is Error.NONE
    assert stable_offset(harness) == (Error.NONE, 7)


def test_while_groups_are_read_nothing_is_ended(
    harness: Harness, producer: TxnProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = harness.broker.coordinator
    with monkeypatch.context() as loading:
        loading.setattr(coordinator, "_after", b"")
        with pytest.raises(KafkaError) as refused:
            coordinator.end_transaction(producer.id, ["g"], committed=True)
    assert refused.value.error is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert stable_offset(harness) == UNSTABLE
