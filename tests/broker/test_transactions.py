"""Transactions by their requests: what is answered, what is committed with it, what readers see."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Harness
from tests.broker.txnkit import NEW, OLD, TxnProducer, both_versions, ready, seen

from ottla.log.options import Table
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.errors import Error

# ------------------------------------------------------------------------------------- the ordinary


@both_versions
@pytest.mark.parametrize("commit", [True, False])
def test_all_of_it_is_seen_or_nothing(
    harness: Harness, topic: str, new: bool, commit: bool
) -> None:
    producer = ready(harness, new)
    assert producer.send(topic, 0, b"a", b"b") is Error.NONE
    assert producer.send(topic, 1, b"c") is Error.NONE
    assert producer.send(topic, 0, b"d") is Error.NONE
    assert seen(harness, topic) == []
    assert seen(harness, topic, committed=False) == [b"a", b"b", b"d"]
    assert producer.end(commit) is Error.NONE
    assert seen(harness, topic, 0) == ([b"a", b"b", b"d"] if commit else [])
    assert seen(harness, topic, 1) == ([b"c"] if commit else [])
    assert producer.send(topic, 0, b"e") is Error.NONE
    assert producer.end() is Error.NONE
    assert seen(harness, topic)[-1] == b"e"


def test_only_version_2_raises_the_epoch_at_each_end(harness: Harness, topic: str) -> None:
    for new, epochs in ((NEW, [1, 2, 3]), (OLD, [0, 0, 0])):
        producer = ready(harness, new, str(new))
        found = []
        for commit in (True, False, True):
            assert producer.send(topic, 0, b"a") is Error.NONE
            assert producer.end(commit) is Error.NONE
            found.append(producer.describe().producer_epoch)
        assert found == epochs


@both_versions
def test_an_end_is_one_commit(harness: Harness, topic: str, new: bool) -> None:
    producer = ready(harness, new)
    producer.send(topic, 0, b"a")
    producer.send(topic, 1, b"b")
    before = harness.store.committed
    assert producer.end() is Error.NONE
    assert harness.store.committed == before + 1


def test_a_write_of_version_2_and_its_partition_are_one_commit(
    harness: Harness, topic: str
) -> None:
    producer = ready(harness, NEW)
    before = harness.store.committed
    assert producer.send(topic, 0, b"a") is Error.NONE
    assert harness.store.committed == before + 1


def test_partitions_of_one_request_are_added_in_one_row(harness: Harness) -> None:
    """Row by row, thousands of partitions would write each other thousands of times."""
    harness.topic("wide", 3)
    producer = ready(harness, NEW)
    asked = [producer.produce_request("wide", index, b"a").topic_data[0] for index in range(3)]
    request = producer.produce_request("wide", 0, b"a")
    request.topic_data = asked
    rows: list[bytes] = []
    harness.store.listen(
        lambda commit: rows.extend(
            key for table, key, _ in commit.changes if table is Table.TRANSACTIONS
        )
    )
    answer = producer.client.call(request, 12)
    codes = [one.error_code for topic in answer.responses for one in topic.partition_responses]
    assert codes == [Error.NONE] * 3
    assert len(rows) == 1
    assert producer.describe().topics[0].partitions == [0, 1, 2]


@both_versions
def test_an_end_asked_for_again_is_answered_and_not_done_again(
    harness: Harness, topic: str, new: bool
) -> None:
    producer = ready(harness, new)
    producer.send(topic, 0, b"a")
    request = producer.end_request(True)
    version = 5 if new else 4
    first = producer.client.call(request, version)
    end = harness.broker.topics.partition(topic, 0).high_watermark
    assert producer.client.call(request, version) == first
    assert first.error_code == 0
    assert harness.broker.topics.partition(topic, 0).high_watermark == end
    request.committed = False
    other = producer.client.call(request, version)
    assert (other.error_code, other.producer_id) == (Error.INVALID_TXN_STATE, -1)


@both_versions
def test_the_next_transaction_begins_behind_an_end_that_is_not_committed(
    harness: Harness, topic: str, new: bool
) -> None:
    """Nobody is told CONCURRENT_TRANSACTIONS: who comes early waits for the commit."""
    producer = ready(harness, new)
    assert producer.send(topic, 0, b"a") is Error.NONE
    other = harness.client()
    end = producer.client.frame(producer.end_request(True), 5 if new else 4)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch + new,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[1])],
    )
    asked = other.frame(add, 3)
    committed = harness.store.committed
    producer.client.connection.feed(end)
    other.connection.feed(asked)
    assert harness.store.committed == committed
    assert producer.client.connection.unanswered == other.connection.unanswered == 1
    harness.turn()
    assert harness.store.committed == committed + 1
    assert producer.client.receive().error_code == 0
    (found,) = other.receive().results_by_topic_v3_and_below
    assert found.results_by_partition[0].partition_error_code == 0
    assert producer.describe().transaction_state == "Ongoing"
    assert seen(harness, topic) == [b"a"]


def test_an_abort_of_nothing(harness: Harness) -> None:
    new, old = ready(harness, NEW, "new"), ready(harness, OLD, "old")
    assert new.end(False) is Error.NONE
    assert (new.epoch, new.describe().transaction_state) == (1, "CompleteAbort")
    assert old.end(False) is Error.INVALID_TXN_STATE
    for producer in (new, old):
        assert producer.end(True) is Error.INVALID_TXN_STATE


@both_versions
def test_a_topic_that_is_deleted_does_not_hold_up_the_end(
    harness: Harness, topic: str, new: bool
) -> None:
    harness.topic("gone")
    producer = ready(harness, new)
    assert producer.send("gone", 0, b"a") is Error.NONE
    assert producer.send(topic, 0, b"b") is Error.NONE
    harness.delete_topic("gone")
    assert [t.topic for t in producer.describe().topics] == [topic]
    assert producer.end() is Error.NONE
    assert seen(harness, topic) == [b"b"]


# ----------------------------------------------------------------------------- adding and verifying


def test_a_partition_that_was_not_added(harness: Harness, topic: str) -> None:
    producer = ready(harness, OLD)
    assert producer.add(topic, 1) is Error.NONE
    assert producer.produce(topic, 0, b"a", version=9) is Error.INVALID_TXN_STATE
    assert producer.produce(topic, 0, b"a", version=11) is Error.TRANSACTION_ABORTABLE
    assert producer.produce(topic, 0, b"a", version=12) is Error.NONE


def test_no_partition_is_added_beside_one_that_does_not_exist(harness: Harness, topic: str) -> None:
    producer = ready(harness, OLD)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=[0, 2]),
            AddPartitionsToTxnTopic(name="no", partitions=[0]),
        ],
    )
    found = producer.client.call(request, 3).results_by_topic_v3_and_below
    assert [[p.partition_error_code for p in t.results_by_partition] for t in found] == [
        [Error.OPERATION_NOT_ATTEMPTED, Error.UNKNOWN_TOPIC_OR_PARTITION],
        [Error.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert producer.describe().transaction_state == "Empty"


def test_several_transactions_in_one_request(harness: Harness, topic: str) -> None:
    one, two = ready(harness, NEW, "one"), ready(harness, NEW, "two")

    def asked(producer: TxnProducer, *, verify: bool, epoch: int = 0) -> Any:
        return AddPartitionsToTxnTransaction(
            transactional_id=producer.name,
            producer_id=producer.id,
            producer_epoch=epoch,
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[1])],
        )

    def ask(*transactions: Any) -> list[int]:
        answer = one.client.call(AddPartitionsToTxnRequest(transactions=list(transactions)), 5)
        assert answer.error_code == 0
        return [
            result.topic_results[0].results_by_partition[0].partition_error_code
            for result in answer.results_by_transaction
        ]

    got = ask(asked(one, verify=False), asked(two, verify=True))
    assert got == [Error.NONE, Error.TRANSACTION_ABORTABLE]
    got = ask(asked(one, verify=True), asked(two, verify=False, epoch=3))
    assert got == [Error.NONE, Error.PRODUCER_FENCED]


def test_without_verification_old_writes_are_let_in_and_may_hang(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = Harness(tmp_path / "data", transaction_partition_verification_enable="false")
    harness.topic("t")
    producer = ready(harness, OLD)
    assert producer.produce("t", 0, b"a") is Error.NONE
    harness.store.close()
    with caplog.at_level(logging.WARNING):
        harness = Harness(tmp_path / "data")
    assert "transaction x of producer 0 hangs" in caplog.text
    assert "t-0" in caplog.text
    harness.store.close()
