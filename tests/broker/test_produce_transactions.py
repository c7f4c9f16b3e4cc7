"""Produce with transactional batches: who is asked, what is refused as a whole, what it costs the
others. What the coordinator answers is its own tests' matter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.broker.harness import Client, Harness
from tests.log.logkit import make_batch
from tests.log.transactionkit import marker

from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import TRANSACTIONAL

Asked = tuple[str | None, int, int, int, int]


class Coordinator:
    """Says yes, or what it is told to say."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Asked] = []
        self.error: Error | None = None
        monkeypatch.setattr(harness.broker.transactions, "produce", self.produce)

    def produce(self, *asked: Any) -> None:
        self.asked.append(asked[:5])  # the rest is about other partitions
        if self.error is not None:
            raise KafkaError(self.error, "told to")


@pytest.fixture
def coordinator(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    harness.topic("t", 3)
    return Coordinator(harness, monkeypatch)


def batch(sequence: int = 0, producer_id: int = 7, epoch: int = 2) -> bytes:
    producer = (producer_id, epoch, sequence)
    return bytes(make_batch(producer=producer, attributes=TRANSACTIONAL))


def plain(sequence: int = -1, producer_id: int = -1, epoch: int = -1) -> bytes:
    return bytes(make_batch(producer=(producer_id, epoch, sequence)))


def ask(
    client: Client,
    batches: Mapping[int, bytes | None],
    transactional_id: str | None = "x",
    version: int = 11,
    acks: int = -1,
) -> dict[int, PartitionProduceResponse]:
    data = [PartitionProduceData(index=index, records=data) for index, data in batches.items()]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        topic_data=[TopicProduceData(name="t", partition_data=data)],
    )
    answer = client.call(request, version)
    return {one.index: one for topic in answer.responses for one in topic.partition_responses}


def errors(answers: dict[int, PartitionProduceResponse]) -> dict[int, int]:
    return {index: answer.error_code for index, answer in answers.items()}


@pytest.mark.parametrize("version", [3, 11, 12])
def test_the_first_batch_in_a_partition_is_asked_for(
    harness: Harness, client: Client, coordinator: Coordinator, version: int
) -> None:
    number = harness.broker.topics.partition("t", 1).number
    assert errors(ask(client, {1: batch(0)}, version=version)) == {1: 0}
    assert errors(ask(client, {1: batch(1)}, version=version)) == {1: 0}
    assert coordinator.asked == [("x", 7, 2, number, version)]
    partition = harness.broker.topics.partition("t", 1)
    harness.store.write_markers([marker(partition, 7, 2)], [], 1)
    assert errors(ask(client, {1: batch(2)}, version=version)) == {1: 0}
    assert len(coordinator.asked) == 2, "each transaction anew"


def test_others_are_not_asked_for(client: Client, coordinator: Coordinator) -> None:
    assert errors(ask(client, {0: plain(), 1: plain(0, 8, 0)}, None)) == {0: 0, 1: 0}
    assert errors(ask(client, {0: plain()}, "x")) == {0: 0}
    assert coordinator.asked == []


def test_what_the_coordinator_says_is_the_partitions_answer(
    harness: Harness, client: Client, coordinator: Coordinator
) -> None:
    coordinator.error = Error.INVALID_TXN_STATE
    answers = ask(client, {0: batch(), 1: plain()})
    assert errors(answers) == {0: Error.INVALID_TXN_STATE, 1: 0}
    assert answers[0].error_message == "told to"
    assert harness.broker.topics.partition("t", 0).high_watermark == 0


def test_another_epoch_is_asked_for(
    harness: Harness, client: Client, coordinator: Coordinator
) -> None:
    """One of before is not let in by what a later instance has open."""
    assert errors(ask(client, {0: batch()})) == {0: 0}
    coordinator.error = Error.INVALID_PRODUCER_EPOCH
    assert errors(ask(client, {0: batch(1, epoch=1)})) == {0: Error.INVALID_PRODUCER_EPOCH}


@pytest.mark.parametrize("version", [3, 8, 12])
def test_without_a_transactional_id_all_is_refused(
    harness: Harness, client: Client, coordinator: Coordinator, version: int
) -> None:
    code = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert errors(ask(client, {0: plain(), 1: batch(), 2: None}, None, version)) == {
        0: code,
        1: code,
        2: code,
    }
    assert coordinator.asked == []
    assert harness.broker.topics.partition("t", 0).high_watermark == 0


def test_batches_of_two_producers_are_refused(client: Client, coordinator: Coordinator) -> None:
    code = Error.INVALID_PRODUCER_ID_MAPPING
    for other in (batch(producer_id=8), batch(epoch=3)):
        assert errors(ask(client, {0: batch(), 1: other, 2: plain()})) == dict.fromkeys(
            range(3), code
        )


def test_a_transaction_begins_with_its_first_sequence(
    client: Client, coordinator: Coordinator
) -> None:
    """From v12 on each one begins at 0, so what does not has lost its beginning; before, the
    partition may have forgotten the producer."""
    assert errors(ask(client, {0: batch(5)}, version=12)) == {0: Error.OUT_OF_ORDER_SEQUENCE_NUMBER}
    assert errors(ask(client, {0: batch(5)}, version=11)) == {0: 0}


def test_a_plain_batch_within_a_transaction(client: Client, coordinator: Coordinator) -> None:
    assert errors(ask(client, {0: batch()})) == {0: 0}
    assert errors(ask(client, {0: plain(1, 7, 2)})) == {0: Error.INVALID_TXN_STATE}


def test_old_formats_are_not_taken_for_transactional(
    client: Client, coordinator: Coordinator
) -> None:
    """Where format 2 has its flags they have something else."""
    data = bytearray(batch())
    data[16] = 1
    assert errors(ask(client, {0: bytes(data)}, None)) == {0: Error.INVALID_RECORD}
    assert errors(ask(client, {0: bytes(data[:40])}, None)) == {0: Error.INVALID_RECORD}


@pytest.mark.parametrize("count", [40, 600])
def test_all_partitions_of_a_request_are_added_at_once_and_found_once(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Those of a long request step by step."""
    harness.topic("t", 600)
    others: list[set[int]] = []

    def produce(*asked: Any) -> None:
        others.append(set(asked[5]))

    monkeypatch.setattr(harness.broker.transactions, "produce", produce)
    asked: dict[int, bytes | None] = {index: batch() for index in range(count)}
    asked |= {0: plain(), 700: batch()}
    answers = errors(ask(client, asked, version=12))
    assert answers.pop(700) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert set(answers.values()) == {0}
    numbers = {harness.broker.topics.partition("t", index).number for index in range(1, count)}
    assert others[0] == numbers
    assert not any(others[1:])
