"""Transactions that nobody is going to end: found at start and from time to time, told once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.harness import START_MS, Harness, make_batch
from tests.broker.txnkit import NEW, TxnProducer

from ottla.broker import transaction_hanging
from ottla.broker.transaction_hanging import LOOK_MS
from ottla.log.transactions import Marker
from ottla.wire.errors import Error
from ottla.wire.records import TRANSACTIONAL, read_header


@pytest.fixture
def topic(harness: Harness) -> str:
    harness.topic("t", 4)
    return "t"


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The log lines about what hangs; it grows."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "hang" in record.getMessage():
                lines.append(record.getMessage())

    handler = Lines(logging.WARNING)
    logger = logging.getLogger(transaction_hanging.__name__)
    logger.addHandler(handler)
    yield lines
    logger.removeHandler(handler)


def hang(harness: Harness, topic: str, index: int, producer_id: int, sequence: int = 0) -> None:
    """A batch that went past the coordinator, as bugs of clients and brokers have written them."""
    batch = bytearray(
        make_batch(
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
    )
    partition = harness.broker.topics.partition(topic, index)
    harness.store.append(partition, batch, read_header(batch), START_MS)
    harness.turn()


def end(harness: Harness, topic: str, index: int, producer_id: int) -> None:
    """Its marker, as an administrator writes it."""
    partition = harness.broker.topics.partition(topic, index)
    marker = Marker(partition, producer_id, 0, 0, False, 1)
    harness.store.write_markers([marker], [], START_MS)
    harness.turn()


def test_what_hangs_while_the_broker_runs_is_told_once(
    harness: Harness, topic: str, told: list[str]
) -> None:
    hang(harness, topic, 0, 77)
    hang(harness, topic, 2, 77)
    assert told == []
    harness.pass_time(LOOK_MS)
    (line,) = told
    assert "transaction ? of producer 77 hangs" in line
    assert line.endswith(": t-0, t-2")
    harness.pass_time(LOOK_MS)
    harness.pass_time(LOOK_MS)
    assert len(told) == 1
    hang(harness, topic, 1, 78)
    harness.pass_time(LOOK_MS)
    assert len(told) == 2
    assert told[1].endswith(": t-1")


def test_the_next_one_of_the_same_producer_is_told_too(
    harness: Harness, topic: str, told: list[str]
) -> None:
    hang(harness, topic, 0, 77)
    harness.pass_time(LOOK_MS)
    end(harness, topic, 0, 77)
    hang(harness, topic, 0, 77, 1)
    harness.pass_time(LOOK_MS)
    assert len(told) == 2
    end(harness, topic, 0, 77)
    harness.pass_time(LOOK_MS)
    assert len(told) == 2


def test_what_its_coordinator_will_end_does_not_hang(
    harness: Harness, topic: str, told: list[str]
) -> None:
    producer = TxnProducer(harness, "x", NEW, timeout_ms=700_000)
    producer.begin()
    assert producer.send(topic, 0, b"a") is Error.NONE
    harness.pass_time(LOOK_MS)
    assert told == []
    # Under the same producer id, in a partition that its coordinator has not heard of:
    hang(harness, topic, 1, producer.id)
    harness.pass_time(LOOK_MS / 2)
    assert producer.describe().transaction_state == "CompleteAbort"
    harness.pass_time(LOOK_MS / 2)
    (line,) = told
    assert f"transaction x of producer {producer.id} hangs" in line
    assert line.endswith(": t-1")


def test_a_start_tells_of_it_again(harness: Harness, tmp_path: Path, told: list[str]) -> None:
    harness.topic("t")
    hang(harness, "t", 0, 77)
    harness.store.close()
    again = Harness(tmp_path / "data", clock=harness.clock)
    assert len(told) == 1
    again.pass_time(LOOK_MS)
    assert len(told) == 1
    again.store.close()


def test_many_make_few_lines(harness: Harness, topic: str, told: list[str]) -> None:
    for producer_id in range(100, 150):
        hang(harness, topic, 0, producer_id)
    harness.pass_time(LOOK_MS)
    assert len(told) == transaction_hanging.LINES + 1
    assert told[-1].startswith("30 more producers")


def test_a_line_names_only_some_of_many_partitions(harness: Harness, told: list[str]) -> None:
    harness.topic("wide", 60)
    for index in range(60):
        hang(harness, "wide", index, 77)
    harness.pass_time(LOOK_MS)
    (line,) = told
    assert line.endswith("wide-49, and 10 more")
