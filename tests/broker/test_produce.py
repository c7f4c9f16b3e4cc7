"""Produce: what is admitted, what is refused and how, when it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.broker.harness import START_MS, Client, Harness, make_batch

from ottla.broker.slices import SLICE_MS
from ottla.log.errors import WriteFailed
from ottla.log.writer import CommitFailed
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.codecs import Codec
from ottla.wire.errors import Error
from ottla.wire.records import Record, build_batch

Batches = Mapping[int, bytes | None]


def ask(topic: str | bytes, batches: Batches, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=i, records=batch) for i, batch in batches.items()]
    name: dict[str, Any] = {"topic_id" if isinstance(topic, bytes) else "name": topic}
    return ProduceRequest(acks=acks, topic_data=[TopicProduceData(partition_data=data, **name)])


def answers(answer: Any) -> dict[int, PartitionProduceResponse]:
    return {p.index: p for topic in answer.responses for p in topic.partition_responses}


def end(client: Client, topic: str = "t", partition: int = 0) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    offset: int = client.call(request, 5).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends(harness: Harness, client: Client, version: int, acks: int) -> None:
    topic: str | bytes = harness.topic("t")
    if version < 13:
        topic = "t"
    for base in (0, 3):
        answer = answers(client.call(ask(topic, {0: make_batch(3)}, acks), version))[0]
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, base, -1)
        assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert end(client) == 6


def test_the_answer_waits_for_the_commit(harness: Harness, client: Client) -> None:
    harness.topic("t")
    wire = client.frame(ask("t", {0: make_batch(3)}), 9)
    client.connection.feed(wire)
    client.take(client.connection.take_output())
    assert client.receive() is None
    assert harness.broker.topics.partition("t", 0).high_watermark == 0
    harness.turn()
    assert answers(client.receive())[0].base_offset == 0


def test_a_failed_commit_is_kafka_storage_error(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topic("t")

    def commit(groups: object) -> None:
        raise CommitFailed(WriteFailed("the disk is gone"), poisoned=False)

    monkeypatch.setattr(harness.store.pipeline.committer, "commit", commit)
    client.send(ask("t", {0: make_batch(3), 9: make_batch()}), 9)
    answer = answers(client.receive())
    assert answer[0].error_code == Error.KAFKA_STORAGE_ERROR
    assert (answer[0].base_offset, answer[0].log_start_offset) == (-1, -1)
    assert answer[9].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_errors_are_those_of_their_partitions(harness: Harness, client: Client) -> None:
    harness.topic("t", 2)
    broken = bytearray(make_batch())
    broken[-1] ^= 1
    answer = answers(
        client.call(ask("t", {0: make_batch(), 1: bytes(broken), 7: make_batch(), -1: b""}), 9)
    )
    assert {index: data.error_code for index, data in answer.items()} == {
        0: 0,
        1: Error.CORRUPT_MESSAGE,
        7: Error.UNKNOWN_TOPIC_OR_PARTITION,
        -1: Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [answer[index].base_offset for index in (1, 7, -1)] == [-1, -1, -1]
    assert end(client) == 1


@pytest.mark.parametrize("records", [None, b"", b"\0" * 60, make_batch() + make_batch()])
def test_trap_18_one_whole_batch_a_partition(
    harness: Harness, client: Client, records: bytes | None
) -> None:
    harness.topic("t")
    answer = answers(client.call(ask("t", {0: records}), 9))[0]
    assert answer.error_code in (Error.INVALID_RECORD, Error.CORRUPT_MESSAGE)
    assert end(client) == 0


def test_an_unknown_topic_by_name_and_by_id(harness: Harness, client: Client) -> None:
    answer = answers(client.call(ask("nope", {0: make_batch()}), 12))[0]
    assert answer.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    response = client.call(ask(b"0123456789abcdef", {0: make_batch()}), 13)
    assert answers(response)[0].error_code == Error.UNKNOWN_TOPIC_ID
    assert response.responses[0].topic_id == b"0123456789abcdef"


def test_a_partition_named_twice_counts_once_as_named_last(
    harness: Harness, client: Client
) -> None:
    harness.topic("t")
    request = ask("t", {0: make_batch(1)})
    request.topic_data[0].partition_data.append(
        PartitionProduceData(index=0, records=make_batch(5))
    )
    response = client.call(request, 9)
    assert len(response.responses[0].partition_responses) == 1
    assert end(client) == 5


def test_a_topic_named_twice_is_answered_once_with_the_last_mention_of_each_partition(
    harness: Harness, client: Client
) -> None:
    harness.topic("t", partitions=2)
    request = ask("t", {0: make_batch(1), 1: make_batch(2)})
    request.topic_data += ask("u", {0: make_batch(1)}).topic_data
    request.topic_data += ask("t", {0: make_batch(5)}).topic_data
    response = client.call(request, 9)
    assert [topic.name for topic in response.responses] == ["t", "u"]
    assert set(answers(response)) == {0, 1}
    assert end(client) == 5


@pytest.mark.parametrize("acks", [2, -2, 5])
def test_other_acks_are_refused(harness: Harness, client: Client, acks: int) -> None:
    harness.topic("t")
    answer = answers(client.call(ask("t", {0: make_batch()}, acks), 9))[0]
    assert answer.error_code == Error.INVALID_REQUIRED_ACKS
    assert end(client) == 0


def test_min_insync_replicas_binds_only_acks_all(harness: Harness, client: Client) -> None:
    harness.topic("t", min_insync_replicas="2")
    answer = answers(client.call(ask("t", {0: make_batch()}, -1), 9))[0]
    assert answer.error_code == Error.NOT_ENOUGH_REPLICAS
    assert answers(client.call(ask("t", {0: make_batch()}, 1), 9))[0].error_code == 0


def test_trap_17_acks_0_gets_no_answer_at_all(harness: Harness, client: Client) -> None:
    harness.topic("t")
    client.send(ask("t", {0: make_batch()}, 0), 9)
    client.forget()
    assert client.receive() is None
    assert end(client) == 1, "and the next answer is the next request's"
    assert client.closed is None


@pytest.mark.parametrize("batches", [{7: make_batch()}, {0: b"broken"}, {0: make_batch(), 7: b""}])
def test_trap_17_acks_0_with_an_error_closes_the_connection(
    harness: Harness, client: Client, batches: Batches
) -> None:
    harness.topic("t")
    before = client.frame(ask("t", {0: make_batch()}), 9)
    client.raw(before + client.frame(ask("t", batches, 0), 9))
    assert answers(client.receive())[0].error_code == 0
    assert client.closed is not None


def test_acks_0_of_nothing_gets_nothing(harness: Harness, client: Client) -> None:
    client.send(ProduceRequest(acks=0), 9)
    client.forget()
    assert client.closed is None
    assert client.call(ProduceRequest(acks=1), 9).responses == []


def test_log_append_time_is_answered(harness: Harness, client: Client) -> None:
    harness.topic("t", message_timestamp_type="LogAppendTime")
    harness.clock.passed_ms = 5
    answer = answers(client.call(ask("t", {0: make_batch(timestamp=1)}), 9))[0]
    assert answer.log_append_time_ms == START_MS + 5


def test_trap_20_a_repeat_is_answered_with_the_first_offset(
    harness: Harness, client: Client
) -> None:
    harness.topic("t")
    batch = make_batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
    wire = b"".join(client.frame(ask("t", {0: batch}), 9) for _ in range(2))
    client.raw(wire)  # the second while the first still waits for its commit
    for _ in range(2):
        answer = answers(client.receive())[0]
        assert (answer.error_code, answer.base_offset) == (0, 0)
    answer = answers(client.call(ask("t", {0: batch}), 9))[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert end(client) == 2


def test_trap_21_a_gap_in_the_sequence(harness: Harness, client: Client) -> None:
    harness.topic("t")
    for sequence, error in ((0, 0), (1, 0), (3, Error.OUT_OF_ORDER_SEQUENCE_NUMBER), (2, 0)):
        batch = make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
        answer = answers(client.call(ask("t", {0: batch}), 9))[0]
        assert answer.error_code == error


def test_trap_23_message_too_large(harness: Harness, client: Client) -> None:
    harness.topic("t", max_message_bytes="1000")
    answer = answers(client.call(ask("t", {0: make_batch(size=2000)}), 9))[0]
    assert answer.error_code == Error.MESSAGE_TOO_LARGE


def test_trap_24_record_errors_name_the_records(harness: Harness, client: Client) -> None:
    harness.topic("t", cleanup_policy="compact")
    rows = [Record(n, START_MS, None if n == 1 else b"k", b"v", ()) for n in range(3)]
    answer = answers(client.call(ask("t", {0: bytes(build_batch(rows))}), 9))[0]
    assert answer.error_code == Error.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert answer.error_message
    answer = answers(client.call(ask("t", {0: bytes(build_batch(rows))}), 7))[0]
    assert (answer.error_code, answer.record_errors) == (Error.INVALID_RECORD, [])


def test_a_request_names_a_thousand_refused_records_at_most(
    harness: Harness, client: Client
) -> None:
    harness.topic("t", partitions=2, cleanup_policy="compact")
    batches = {index: make_keyless(1500) for index in range(2)}
    found = answers(client.call(ask("t", batches), 9))
    assert {answer.error_code for answer in found.values()} == {Error.INVALID_RECORD}
    named = [error.batch_index for error in found[0].record_errors]
    assert named == list(range(1000))
    assert found[0].error_message is not None
    assert "1000 or more records are refused" in found[0].error_message
    assert not found[1].record_errors


def make_keyless(count: int) -> bytes:
    return bytes(build_batch([Record(n, START_MS, None, b"v", ()) for n in range(count)]))


@pytest.mark.parametrize("codec", [Codec.none, Codec.gzip])
def test_large_batches_are_opened_on_a_thread_and_keep_their_place(
    harness: Harness, client: Client, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes may be a large batch too, when they are compressed."""
    harness.topic("t", cleanup_policy="compact")
    aside = harness.store.aside
    waiting: list[Any] = []
    monkeypatch.setattr(harness.store, "aside", lambda job, done: waiting.append((job, done)))
    large = make_batch(100, size=1000, codec=codec)
    frames = [client.frame(ask("t", {0: batch}), 9) for batch in (large, make_batch(), large)]
    client.raw(b"".join(frames))
    for base in (0, 100, 101):
        if base != 100:
            assert client.receive() is None
            aside(*waiting.pop(0))
            harness.pass_time(SLICE_MS)
        answer = answers(client.receive())[0]
        assert (answer.error_code, answer.base_offset) == (0, base)
    assert not waiting
    assert end(client) == 201


def test_large_requests_are_appended_without_a_copy(harness: Harness, client: Client) -> None:
    harness.topic("t")
    batch = make_batch(10, size=50_000)
    assert answers(client.call(ask("t", {0: batch}), 9))[0].error_code == 0
    assert end(client) == 10
    assert harness.budget.used == 0
