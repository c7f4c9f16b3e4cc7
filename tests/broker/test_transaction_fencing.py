"""Who may speak for a transactional id: new instances, strangers, epochs that end."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.harness import Harness
from tests.broker.txnkit import NEW, TxnProducer, both_versions, ready, seen

from ottla.broker import transaction_table
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.errors import Error


@both_versions
def test_a_new_instance_aborts_what_the_old_one_left_and_fences_it(
    harness: Harness, topic: str, new: bool
) -> None:
    old = ready(harness, new)
    assert old.send(topic, 0, b"lost") is Error.NONE
    young = TxnProducer(harness, "x", new)
    assert young.init() is Error.CONCURRENT_TRANSACTIONS
    assert young.init() is Error.NONE
    assert (young.id, young.epoch) == (old.id, 2)
    assert seen(harness, topic) == []
    assert old.produce(topic, 0, b"late") is Error.INVALID_PRODUCER_EPOCH
    assert old.add(topic, 0) is Error.PRODUCER_FENCED
    assert old.end() is Error.PRODUCER_FENCED
    assert old.init(goes_on=True) is Error.PRODUCER_FENCED
    assert young.send(topic, 0, b"kept") is Error.NONE
    assert young.end() is Error.NONE
    assert seen(harness, topic) == [b"kept"]


@pytest.mark.parametrize(
    ("request_", "last_old", "path"),
    [
        (
            InitProducerIdRequest(
                transactional_id="x",
                transaction_timeout_ms=1,
                producer_id=0,
                producer_epoch=9,
            ),
            3,
            lambda answer: answer.error_code,
        ),
        (
            EndTxnRequest(transactional_id="x", producer_id=0, producer_epoch=9),
            1,
            lambda answer: answer.error_code,
        ),
        (
            AddOffsetsToTxnRequest(
                transactional_id="x", producer_id=0, producer_epoch=9, group_id="g"
            ),
            1,
            lambda answer: answer.error_code,
        ),
        (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=0,
                v3_and_below_producer_epoch=9,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            ),
            1,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_old_clients_know_fencing_by_another_name(
    harness: Harness, topic: str, request_: Any, last_old: int, path: Any
) -> None:
    producer = ready(harness, NEW)
    found = path(producer.client.call(request_, last_old))
    assert found == Error.INVALID_PRODUCER_EPOCH
    assert path(producer.client.call(request_, last_old + 1)) == Error.PRODUCER_FENCED


def test_who_asks_for_nobody_or_is_somebody_else(harness: Harness, topic: str) -> None:
    producer = ready(harness, NEW)
    producer.id += 1
    assert producer.add(topic, 0) is Error.INVALID_PRODUCER_ID_MAPPING
    assert producer.end() is Error.INVALID_PRODUCER_ID_MAPPING
    assert producer.produce(topic, 0, b"a") is Error.INVALID_PRODUCER_ID_MAPPING
    unknown = TxnProducer(harness, "unknown", NEW)
    unknown.id = unknown.epoch = 0
    assert unknown.end() is Error.INVALID_PRODUCER_ID_MAPPING
    assert unknown.add(topic, 0) is Error.INVALID_PRODUCER_ID_MAPPING
    assert unknown.produce(topic, 0, b"a") is Error.INVALID_PRODUCER_ID_MAPPING
    assert unknown.describe().error_code == Error.TRANSACTIONAL_ID_NOT_FOUND
    unknown.name = ""
    for error in (unknown.init(), unknown.end(), unknown.add(topic, 0)):
        assert error is Error.INVALID_REQUEST
    assert unknown.describe().error_code == Error.INVALID_REQUEST


def test_epochs_end_and_another_producer_id_goes_on(harness: Harness, topic: str) -> None:
    producer = ready(harness, NEW)
    table = harness.broker.transactions
    txn = table.get("x")
    assert txn is not None
    worn = transaction_table.Transaction(
        "x", txn.producer_id, txn.updated_ms, producer_epoch=32765, timeout_ms=txn.timeout_ms
    )
    table._table.write(worn)
    harness.turn()
    producer.epoch = 32765
    for value in (b"a", b"b", b"c"):
        assert producer.send(topic, 0, value) is Error.NONE
        again = producer.end_request(True)
        assert producer.end() is Error.NONE
        repeated = producer.client.call(again, 5)
        assert (repeated.error_code, repeated.producer_id, repeated.producer_epoch) == (
            0,
            producer.id,
            producer.epoch,
        )
    assert producer.id != txn.producer_id
    assert producer.epoch == 1
    assert seen(harness, topic) == [b"a", b"b", b"c"]
