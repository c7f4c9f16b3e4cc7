"""Transactions as administrators see and end them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.harness import Client, Harness
from tests.broker.txnkit import NEW, TIMEOUT_MS, TxnProducer, both_versions, ready, seen

from ottla.broker.handlers.describe_transactions import java_hash
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.list_transactions import ListTransactionsRequest
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.errors import Error


def mark(
    client: Client, producer: TxnProducer, *, epoch: int | None = None, coordinator_epoch: int = 0
) -> int:
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch if epoch is None else epoch,
        coordinator_epoch=coordinator_epoch,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )
    answer = client.call(WriteTxnMarkersRequest(markers=[marker]), 1)
    found: int = answer.markers[0].topics[0].partitions[0].error_code
    return found


@both_versions
def test_an_administrator_ends_a_transaction_past_its_coordinator(
    harness: Harness, topic: str, new: bool
) -> None:
    producer = ready(harness, new)
    producer.send(topic, 0, b"a")
    assert mark(producer.client, producer) == 0
    assert seen(harness, topic) == []
    assert producer.describe().transaction_state == "Ongoing"
    assert producer.end() is Error.NONE
    assert seen(harness, topic) == []


@both_versions
@pytest.mark.parametrize(("epoch", "coordinator_epoch"), [(0, 7), (9, 0), (9, 7)])
def test_whatever_an_administrator_wrote_the_transaction_ends(
    harness: Harness, topic: str, new: bool, epoch: int, coordinator_epoch: int
) -> None:
    producer = ready(harness, new)
    producer.send(topic, 0, b"a")
    producer.send(topic, 1, b"b")
    found = mark(producer.client, producer, epoch=epoch, coordinator_epoch=coordinator_epoch)
    assert found == 0
    harness.pass_time(TIMEOUT_MS + 1)
    assert producer.describe().transaction_state == "CompleteAbort"
    assert seen(harness, topic, 1) == []


def test_markers_that_are_refused(harness: Harness, topic: str) -> None:
    producer = ready(harness, NEW)
    producer.send(topic, 0, b"a")
    producer.end()
    producer.send(topic, 0, b"b")
    assert mark(producer.client, producer, epoch=0) == Error.INVALID_PRODUCER_EPOCH
    assert mark(producer.client, producer, coordinator_epoch=-1) == (
        Error.TRANSACTION_COORDINATOR_FENCED
    )
    marker = WritableTxnMarker(
        producer_id=1, topics=[WritableTxnMarkerTopic(name="no", partition_indexes=[0])]
    )
    answer = producer.client.call(WriteTxnMarkersRequest(markers=[marker]), 2)
    found = answer.markers[0].topics[0].partitions[0].error_code
    assert found == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_listing(harness: Harness, topic: str) -> None:
    empty, ongoing, done = (ready(harness, NEW, name) for name in ("empty-1", "ongoing-1", "done"))
    ongoing.send(topic, 0, b"a")
    harness.pass_time(5000)
    done.send(topic, 0, b"b")
    done.end()

    def names(version: int = 2, **filters: Any) -> list[str]:
        answer = empty.client.call(ListTransactionsRequest(**filters), version)
        assert answer.error_code == 0
        return sorted(found.transactional_id for found in answer.transaction_states)

    everything = ["done", "empty-1", "ongoing-1"]
    assert names() == names(0) == names(1) == everything
    assert names(state_filters=["Ongoing", "Empty"]) == ["empty-1", "ongoing-1"]
    assert names(state_filters=["ongoing"]) == []
    assert names(producer_id_filters=[done.id, 99]) == ["done"]
    assert names(duration_filter=0) == ["empty-1", "ongoing-1"]
    assert names(duration_filter=5000) == ["empty-1"]
    assert names(transactional_id_pattern=".*-1") == ["empty-1", "ongoing-1"]
    assert names(transactional_id_pattern="done|x") == ["done"]
    assert names(transactional_id_pattern="don") == []
    assert names(transactional_id_pattern="") == everything
    assert names(transactional_id_pattern=".*-1", state_filters=["Empty"]) == ["empty-1"]
    answer = empty.client.call(
        ListTransactionsRequest(state_filters=["No", "CompleteCommit", "Dead"]), 0
    )
    assert answer.unknown_state_filters == ["No"]
    (found,) = answer.transaction_states
    assert (found.transactional_id, found.producer_id) == ("done", done.id)
    assert found.transaction_state == "CompleteCommit"
    bad = empty.client.call(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert bad.error_code == Error.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("text", ["(?:x?){1000}" * 30 + "!", "(?:.?){900}" * 12 + "(?:x|y){900}"])
def test_a_pattern_that_would_hold_up_the_broker_is_refused(harness: Harness, text: str) -> None:
    client = ready(harness, NEW).client
    answer = client.call(ListTransactionsRequest(transactional_id_pattern=text), 2)
    assert answer.error_code == Error.INVALID_REGULAR_EXPRESSION


def test_an_id_named_again_is_described_once(harness: Harness) -> None:
    client = ready(harness, NEW).client
    names = ["x", "none", "x"]
    answer = client.call(DescribeTransactionsRequest(transactional_ids=names), 0)
    assert [found.transactional_id for found in answer.transaction_states] == ["x", "none"]


def test_describing(harness: Harness, topic: str) -> None:
    producer = ready(harness, NEW)
    harness.pass_time(1000)
    producer.send(topic, 1, b"a")
    producer.send(topic, 0, b"a")
    found = producer.describe()
    assert (found.error_code, found.transactional_id) == (0, "x")
    assert (found.transaction_state, found.transaction_timeout_ms) == ("Ongoing", TIMEOUT_MS)
    assert found.transaction_start_time_ms == harness.clock.wall_ms()
    assert (found.producer_id, found.producer_epoch) == (producer.id, 0)
    assert [(t.topic, t.partitions) for t in found.topics] == [(topic, [0, 1])]


def test_describing_offsets_as_kafka_does(harness: Harness, topic: str) -> None:
    producer = ready(harness, NEW)
    assert producer.offsets("my-group", topic, 0, 3) is Error.NONE
    found = producer.describe().topics
    assert [(t.topic, t.partitions) for t in found] == [("__consumer_offsets", [12])]


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("a", 97), ("my-group", 1906497762), ("polygenelubricants", 0)]
)
def test_hashes_of_strings_are_javas(text: str, value: int) -> None:
    assert java_hash(text) == value
