"""Transactions by their requests: what is answered, what is committed with it, what readers see."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Client, Harness
from tests.broker.txnkit import NEW, OLD, TIMEOUT_MS, TxnProducer, seen
from tests.log.logkit import crash_copy

from ottla.broker import transaction_table
from ottla.broker.handlers.describe_transactions import java_hash
from ottla.log.options import Table
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.list_transactions import ListTransactionsRequest
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.errors import Error

WEEK_MS = 604_800_000

both_versions = pytest.mark.parametrize("new", [NEW, OLD], ids=["v2", "v1"])


@pytest.fixture
def topic(harness: Harness) -> str:
    harness.topic("t", 2)
    return "t"


def ready(harness: Harness, new: bool, name: str = "x") -> TxnProducer:
    producer = TxnProducer(harness, name, new)
    producer.begin()
    return producer


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


# ----------------------------------------------------------------------------------------- fencing


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


# ---------------------------------------------------------------------------- adding and verifying


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


# ------------------------------------------------------------------------------------------- time


@both_versions
def test_a_transaction_ends_by_its_timeout(
    harness: Harness, topic: str, new: bool, caplog: pytest.LogCaptureFixture
) -> None:
    producer = ready(harness, new)
    assert producer.send(topic, 0, b"a") is Error.NONE
    assert producer.send(topic, 1, b"b") is Error.NONE
    harness.pass_time(TIMEOUT_MS)
    assert producer.describe().transaction_state == "Ongoing"
    harness.pass_time(1)
    assert producer.describe().transaction_state == "CompleteAbort"
    assert seen(harness, topic) == []
    (line,) = [r.getMessage() for r in caplog.records if "60000 ms" in r.getMessage()]
    assert "transaction x of producer 0, epoch 0" in line
    assert "t-0, t-1" in line
    assert producer.produce(topic, 0, b"c") is Error.INVALID_PRODUCER_EPOCH
    assert producer.end() is (Error.INVALID_TXN_STATE if new else Error.PRODUCER_FENCED)
    # Java's producer goes on after it has named the epoch that it had.
    assert producer.init(goes_on=True) is Error.NONE
    assert producer.epoch == 1
    assert producer.send(topic, 0, b"d") is Error.NONE
    assert producer.end() is Error.NONE
    assert seen(harness, topic) == [b"d"]


def test_a_deadline_that_cannot_be_kept_is_kept_later(
    harness: Harness, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = ready(harness, NEW)
    producer.send(topic, 0, b"a")
    with monkeypatch.context() as patch:
        patch.setattr(type(harness.store), "refusing", OSError("no room"))
        harness.pass_time(TIMEOUT_MS + 1)
        assert producer.describe().transaction_state == "Ongoing"
    harness.pass_time(transaction_table.REFUSED_MS)
    assert producer.describe().transaction_state == "CompleteAbort"


@both_versions
def test_an_id_at_rest_is_forgotten_after_a_week(
    harness: Harness, topic: str, new: bool, tmp_path: Path
) -> None:
    producer, unused = ready(harness, new), ready(harness, new, "unused")
    harness.pass_time(WEEK_MS / 2)
    producer.send(topic, 0, b"a")
    assert producer.end() is Error.NONE
    harness.pass_time(WEEK_MS / 2 + 1)
    assert unused.describe().error_code == Error.TRANSACTIONAL_ID_NOT_FOUND
    assert producer.describe().error_code == 0
    harness.pass_time(WEEK_MS / 2)
    assert producer.describe().error_code == Error.TRANSACTIONAL_ID_NOT_FOUND
    again = Harness(crash_copy(tmp_path / "data", tmp_path / "copy"), clock=harness.clock)
    assert list(again.broker.transactions.all()) == []
    again.store.close()
    assert producer.init() is Error.NONE
    assert producer.epoch == 0


# --------------------------------------------------------------------------------- start, failures


@both_versions
def test_a_restart_goes_on_where_it_was(
    harness: Harness, topic: str, new: bool, tmp_path: Path
) -> None:
    producer = ready(harness, new)
    assert producer.send(topic, 0, b"a") is Error.NONE
    before = producer.describe()
    again = Harness(crash_copy(tmp_path / "data", tmp_path / "copy"), clock=harness.clock)
    producer.client = again.client()
    assert producer.describe() == before
    assert producer.send(topic, 0, b"b") is Error.NONE
    assert seen(again, topic) == []
    request = producer.end_request(True)
    assert producer.end() is Error.NONE
    assert seen(again, topic) == [b"a", b"b"]
    third = Harness(crash_copy(tmp_path / "copy", tmp_path / "third"), clock=harness.clock)
    answer = third.client().call(request, 5 if new else 4)
    assert answer.error_code == 0
    again.store.close()
    third.store.close()


def test_many_rows_are_read_in_pages(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(25):
        ready(harness, NEW, f"x{number}")
    harness.topic("t")
    harness.store.close()
    monkeypatch.setattr(transaction_table, "LOAD_PAGE", 10)
    again = Harness(tmp_path / "data", clock=harness.clock)
    producer = TxnProducer(again, "x3", NEW)
    producer.id = producer.epoch = 0
    assert producer.init() is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert producer.end() is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert producer.describe().error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
    assert producer.produce("t", 0, b"a") is Error.NOT_ENOUGH_REPLICAS
    assert producer.offsets("g", "t", 0, 1) is Error.COORDINATOR_LOAD_IN_PROGRESS
    again.pass_time(0)
    again.pass_time(0)
    assert producer.init() is Error.NONE
    assert producer.epoch == 1
    assert len(again.broker.transactions.all()) == 25
    again.store.close()


class _Disk:
    """Fails commits when told to."""

    broken = False

    def step(self, name: str) -> None:
        if self.broken and name == "commit: write":
            raise OSError(errno.EIO, "broken")


@both_versions
def test_a_failed_commit_takes_all_of_it_back(tmp_path: Path, new: bool) -> None:
    disk = _Disk()
    harness = Harness(tmp_path / "data", step=disk.step)
    harness.topic("t")
    producer = ready(harness, new)
    disk.broken = True
    assert producer.send("t", 0, b"lost") in (
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.KAFKA_STORAGE_ERROR,
    )
    disk.broken = False
    assert producer.describe().transaction_state == "Empty"
    harness.store.tick(harness.clock.wall_ms() + 10_000)
    assert producer.send("t", 0, b"a") is Error.NONE
    for commit in (True, False):
        disk.broken = True
        assert producer.end(commit) is Error.COORDINATOR_NOT_AVAILABLE
        disk.broken = False
        assert producer.describe().transaction_state == "Ongoing"
    disk.broken = True
    assert TxnProducer(harness, "x", new).init() is Error.COORDINATOR_NOT_AVAILABLE
    disk.broken = False
    harness.store.tick(harness.clock.wall_ms() + 20_000)
    assert producer.end() is Error.NONE
    assert seen(harness, "t") == [b"a"]
    harness.store.close()


def test_fenced_by_what_then_was_not_committed(tmp_path: Path) -> None:
    """An error is judged by what is admitted, so it waits for that as any answer does."""
    disk = _Disk()
    harness = Harness(tmp_path / "data", step=disk.step)
    harness.topic("t")
    producer = ready(harness, NEW)
    assert producer.send("t", 0, b"a") is Error.NONE
    young = TxnProducer(harness, "x", NEW)
    taking_over = young.client.frame(
        InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 5
    )
    add = AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=producer.id, producer_epoch=0, group_id="g"
    )
    young.client.connection.feed(taking_over)
    producer.client.connection.feed(producer.client.frame(add, 4))
    disk.broken = True
    harness.turn()
    disk.broken = False
    assert young.client.receive().error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert producer.client.receive().error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert producer.end() is Error.NONE
    assert seen(harness, "t") == [b"a"]
    harness.store.close()


# ---------------------------------------------------------------------------------- administration


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
