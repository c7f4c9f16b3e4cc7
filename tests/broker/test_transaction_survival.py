"""Transactions over time, restarts and failed commits."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.broker.harness import Harness
from tests.broker.txnkit import NEW, TIMEOUT_MS, TxnProducer, both_versions, ready, seen
from tests.log.logkit import crash_copy

from ottla.broker import transaction_table
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.errors import Error

WEEK_MS = 604_800_000


# --------------------------------------------------------------------------------------------- time


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


def test_a_transactional_id_writes_no_lines_of_its_own(
    harness: Harness, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = ready(harness, NEW, "x\nERROR all is lost")
    assert producer.send(topic, 0, b"a") is Error.NONE
    harness.pass_time(TIMEOUT_MS + 1)
    (line,) = [r.getMessage() for r in caplog.records if "60000 ms" in r.getMessage()]
    assert "all is lost" in line
    assert "\n" not in line


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
    assert list(again.broker.transactions.each()) == []
    again.store.close()
    assert producer.init() is Error.NONE
    assert producer.epoch == 0


# ---------------------------------------------------------------------------------- start, failures


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
    assert len(list(again.broker.transactions.each())) == 25
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
