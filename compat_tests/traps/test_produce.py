"""Produce: facts 17 to 24."""

from __future__ import annotations

import time
from typing import Any

import pytest

from compat_tests.conftest import Connect, MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.raw import batch, calls
from compat_tests.raw.batch import Record
from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire


def error(answer: Struct) -> str:
    return name_of(answer.error_code)


def numbered(producer: tuple[int, int], sequence: int, count: int = 1, **options: Any) -> bytes:
    """A batch of an idempotent producer."""
    producer_id, epoch = producer
    return batch.build(
        [Record(b"%d" % (sequence + i)) for i in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **options,
    )


def test_trap_17_acks_0_gets_no_answer_at_all(wire: Wire, topic: str) -> None:
    calls.send_produce(wire, topic, batch.build(), acks=0)
    asked = wire.send("Metadata", 12, topics=[])
    assert wire.receive("Metadata", 12)[0] == asked, "the next answer is the next request's"
    deadline = time.monotonic() + 5
    while calls.list_offset(wire, topic, -1).offset < 1:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("wrong", ["no such partition", "a broken batch"])
def test_trap_17_an_error_with_acks_0_closes_the_connection(
    wire: Wire, topic: str, wrong: str
) -> None:
    if wrong == "a broken batch":
        calls.send_produce(wire, topic, batch.build(crc=1), acks=0)
    else:
        calls.send_produce(wire, topic, batch.build(), acks=0, partition=9)
    assert wire.is_closed()


def test_trap_17_acks_other_than_0_1_and_all_are_refused(wire: Wire, topic: str) -> None:
    answer = calls.produce(wire, topic, batch.build(), acks=2)
    assert error(answer) == "INVALID_REQUIRED_ACKS"
    assert calls.list_offset(wire, topic, -1).offset == 0
    assert calls.produced(wire, topic, batch.build(), acks=1) == 0


REFUSED_BATCHES = {
    "two batches": (batch.build() + batch.build(), "INVALID_RECORD"),
    "more records said than there": (batch.build(record_count=2), "INVALID_RECORD"),
    "a last offset delta that is not the count": (
        batch.build(last_offset_delta=5),
        "INVALID_RECORD",
    ),
    "a control batch": (batch.build(attributes=batch.CONTROL), "INVALID_RECORD"),
    "no records": (batch.build([], last_offset_delta=0), "INVALID_RECORD"),
    "a wrong CRC": (batch.build(crc=12345), "CORRUPT_MESSAGE"),
    "magic 3": (batch.build(magic=3), "CORRUPT_MESSAGE"),
    "magic 1": (batch.legacy(magic=1), "INVALID_RECORD"),
    "magic 0": (batch.legacy(magic=0), "INVALID_RECORD"),
    "half a batch": (batch.build()[:-3], "INVALID_RECORD"),
}


@pytest.mark.parametrize("wrong", REFUSED_BATCHES)
@pytest.mark.parametrize("version", [3, 9])
def test_trap_18_one_whole_batch_of_format_2_a_partition(
    connect: Connect, topic: str, wrong: str, version: int
) -> None:
    data, expected = REFUSED_BATCHES[wrong]
    answer = calls.produce(connect(), topic, data, version=version)
    assert error(answer) == expected
    assert answer.base_offset == -1
    assert calls.list_offset(connect(), topic, -1).offset == 0, "nothing was appended"


def test_trap_19_offset_and_epoch_are_the_brokers_and_outside_the_crc(
    wire: Wire, topic: str
) -> None:
    sent = batch.build([Record(b"a"), Record(b"b")], leader_epoch=99)
    assert calls.produced(wire, topic, sent) == 0
    assert calls.produced(wire, topic, sent) == 2
    first, second = calls.fetched_batches(wire, topic)
    assert (first.base_offset, second.base_offset) == (0, 2)
    assert first.leader_epoch == calls.topic_metadata(wire, topic).partitions[0].leader_epoch
    assert first.crc == second.crc == batch.parse(sent)[0].crc
    assert first.crc_ok


def test_trap_19_a_client_may_not_choose_the_offset(wire: Wire, topic: str) -> None:
    assert error(calls.produce(wire, topic, batch.build(base_offset=777))) == "INVALID_RECORD"


def test_trap_19_create_time_is_answered_minus_one(wire: Wire, topic: str) -> None:
    answer = calls.produce(wire, topic, batch.build())
    assert (error(answer), answer.log_append_time_ms) == ("NONE", -1)


@pytest.mark.parametrize("attributes", [0, batch.GZIP])
def test_trap_19_log_append_time_changes_attributes_timestamp_and_crc(
    wire: Wire, new_topic: MakeTopic, attributes: int
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    records = [Record(b"a"), Record(b"b", timestamp_delta=9)]
    answer = calls.produce(wire, topic, batch.build(records, attributes=attributes))
    assert error(answer) == "NONE"
    assert before - 5 <= answer.log_append_time_ms <= time.time() * 1000 + 5
    (stored,) = calls.fetched_batches(wire, topic)
    assert stored.attributes == attributes | batch.LOG_APPEND_TIME
    assert stored.max_timestamp == answer.log_append_time_ms
    assert stored.crc_ok
    assert [r.value for r in stored.records] == [b"a", b"b"]


@pytest.mark.parametrize("interruption", ["none", "stop", "kill -9"])
def test_trap_20_a_repeated_batch_is_success_with_the_first_offset(
    broker: Broker, connect: Connect, topic: str, interruption: str
) -> None:
    wire = connect()
    producer = calls.new_producer(wire)
    for sequence in range(0, 14, 2):
        assert calls.produced(wire, topic, numbered(producer, sequence, 2)) == sequence
    remembered = [4, 12, 6]  # the last five batches begin at 4, 6, 8, 10, 12
    if interruption != "none":
        broker.kill() if interruption == "kill -9" else broker.stop()
        if broker.target == "apache":
            remembered = [12]  # what it restores holds the last batch of a producer only
        broker.start()
        wire = connect()
        calls.ready_topic(wire, topic)
    for sequence in remembered:
        answer = calls.produce(wire, topic, numbered(producer, sequence, 2))
        assert (error(answer), answer.base_offset) == ("NONE", sequence)
    assert calls.list_offset(wire, topic, -1).offset == 14, "and nothing was written twice"
    older = calls.produce(wire, topic, numbered(producer, 0, 2))
    assert error(older) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert calls.produced(wire, topic, numbered(producer, 14, 2)) == 14


def test_trap_20_a_repeat_behind_its_original_in_flight_gets_its_offset(
    wire: Wire, topic: str
) -> None:
    producer = calls.new_producer(wire)
    for _ in range(4):
        calls.send_produce(wire, topic, numbered(producer, 0, 3))
    calls.send_produce(wire, topic, numbered(producer, 3))
    answers = [calls.received_produce(wire) for _ in range(5)]
    assert [(error(a), a.base_offset) for a in answers] == [("NONE", 0)] * 4 + [("NONE", 3)]
    assert calls.list_offset(wire, topic, -1).offset == 4


def test_trap_20_the_same_first_but_another_last_sequence_is_no_repeat(
    wire: Wire, topic: str
) -> None:
    producer = calls.new_producer(wire)
    calls.produced(wire, topic, numbered(producer, 0, 3))
    answer = calls.produce(wire, topic, numbered(producer, 0, 2))
    assert error(answer) == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_trap_21_sequences_wrap_from_2147483647_to_0(wire: Wire, topic: str) -> None:
    producer = calls.new_producer(wire)
    last = 2**31 - 1
    assert calls.produced(wire, topic, numbered(producer, last - 1, 4)) == 0
    # last-1, last, 0, 1: the next is 2
    gap = calls.produce(wire, topic, numbered(producer, 3))
    assert error(gap) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert calls.produced(wire, topic, numbered(producer, 2)) == 4
    repeated = calls.produce(wire, topic, numbered(producer, last - 1, 4))
    assert (error(repeated), repeated.base_offset) == ("NONE", 0)


def test_trap_21_a_gap_is_out_of_order(wire: Wire, topic: str) -> None:
    producer = calls.new_producer(wire)
    calls.produced(wire, topic, numbered(producer, 0))
    answer = calls.produce(wire, topic, numbered(producer, 2))
    assert error(answer) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert calls.produced(wire, topic, numbered(producer, 1)) == 1


def test_trap_21_a_new_epoch_starts_at_0(wire: Wire, topic: str) -> None:
    producer_id, epoch = calls.new_producer(wire)
    calls.produced(wire, topic, numbered((producer_id, epoch), 0))
    bumped = (producer_id, epoch + 1)
    assert error(calls.produce(wire, topic, numbered(bumped, 1))) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert calls.produced(wire, topic, numbered(bumped, 0)) == 1


def test_trap_21_without_state_any_first_sequence_is_accepted(wire: Wire, topic: str) -> None:
    producer = calls.new_producer(wire)
    assert calls.produced(wire, topic, numbered(producer, 4711)) == 0
    assert calls.produced(wire, topic, numbered(producer, 4712)) == 1


def test_trap_22_an_old_epoch_is_invalid_producer_epoch(wire: Wire, topic: str) -> None:
    producer_id, epoch = calls.new_producer(wire)
    calls.produced(wire, topic, numbered((producer_id, epoch + 1), 0))
    answer = calls.produce(wire, topic, numbered((producer_id, epoch), 1))
    assert error(answer) == "INVALID_PRODUCER_EPOCH"


def test_trap_23_message_too_large_compares_the_batch_as_sent(
    wire: Wire, new_topic: MakeTopic
) -> None:
    topic = new_topic(max_message_bytes=1000)
    padding = 1000 - len(batch.build([Record(b"x" * 900)])) + 900
    exact = batch.build([Record(b"x" * padding)])
    assert len(exact) == 1000
    assert calls.produced(wire, topic, exact) == 0
    answer = calls.produce(wire, topic, batch.build([Record(b"x" * (padding + 1))]))
    assert error(answer) == "MESSAGE_TOO_LARGE"
    squeezed = batch.build([Record(b"x" * 100_000)], attributes=batch.GZIP)
    assert len(squeezed) < 1000
    assert calls.produced(wire, topic, squeezed) == 1


def test_trap_23_the_default_limit_is_1048588(wire: Wire, topic: str) -> None:
    padding = 1_048_588 - len(batch.build([Record(b"x" * 1_000_000)])) + 1_000_000
    assert calls.produced(wire, topic, batch.build([Record(b"x" * padding)])) == 0
    answer = calls.produce(wire, topic, batch.build([Record(b"x" * (padding + 1))]))
    assert error(answer) == "MESSAGE_TOO_LARGE"


@pytest.mark.parametrize("attributes", [0, batch.GZIP])
def test_trap_24_a_compacted_topic_refuses_records_without_a_key(
    wire: Wire, new_topic: MakeTopic, attributes: int
) -> None:
    topic = new_topic(cleanup_policy="compact")
    records = [Record(b"a", key=b"k"), Record(b"b"), Record(b"c", key=b"")]
    answer = calls.produce(wire, topic, batch.build(records, attributes=attributes))
    assert error(answer) == "INVALID_RECORD"
    assert [e.batch_index for e in answer.record_errors] == [1]
    assert answer.error_message
    keyed = [Record(b"a", key=b"k"), Record(b"c", key=b"")]
    assert calls.produced(wire, topic, batch.build(keyed, attributes=attributes)) == 0
