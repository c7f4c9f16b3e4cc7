"""Fetch: limits, long polls, sessions, errors. Offsets are counted in records of known size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Client, Harness, make_batch

from ottla.log.errors import Damaged
from ottla.log.partition import Partition
from ottla.log.reading import Cold, Read
from ottla.wire.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import walk

BATCH = make_batch(2, size=100)
SIZE = len(BATCH)
UNLIMITED = 0x7FFFFFFF


def produce(harness: Harness, topic: str, partition: int = 0, batch: bytes = BATCH) -> None:
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=1, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = harness.client().call(request, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def ask(topic: str | bytes, offsets: dict[int, int], **fields: Any) -> FetchRequest:
    """Fetch from these offsets by partition; other fields as given."""
    limit = fields.pop("partition_max_bytes", UNLIMITED)
    more = fields.pop("partition", {})
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=limit, **more)
        for index, offset in offsets.items()
    ]
    name: dict[str, Any] = {"topic_id" if isinstance(topic, bytes) else "topic": topic}
    fields.setdefault("max_bytes", UNLIMITED)
    fields.setdefault("session_epoch", -1)
    return FetchRequest(topics=[FetchTopic(partitions=partitions, **name)], **fields)


def partitions(answer: Any) -> dict[int, PartitionData]:
    return {data.partition_index: data for topic in answer.responses for data in topic.partitions}


def received(data: PartitionData) -> bytes:
    assert isinstance(data.records, memoryview)
    return bytes(data.records)


def batches(data: PartitionData) -> list[int]:
    """Base offsets of the batches sent."""
    return [header.base_offset for _, header in walk(received(data))]


# ------------------------------------------------------------------------------------------ limits


def test_batches_come_as_they_were_sent(harness: Harness, client: Client) -> None:
    harness.topic("t")
    produce(harness, "t")
    data = partitions(client.call(ask("t", {0: 0}), 12))[0]
    assert received(data)[21:] == BATCH[21:], "all that the CRC covers, and more"
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (2, 2, 0)
    assert data.preferred_read_replica == -1, "a zero would send the consumer to broker 0"


def test_an_offset_inside_a_batch_gets_the_whole_batch(harness: Harness, client: Client) -> None:
    harness.topic("t")
    produce(harness, "t")
    produce(harness, "t")
    assert batches(partitions(client.call(ask("t", {0: 1}), 12))[0]) == [0, 2]
    assert batches(partitions(client.call(ask("t", {0: 2}), 12))[0]) == [2]


@pytest.mark.parametrize("limit", [0, 1, SIZE - 1, SIZE])
def test_trap_25_the_first_batch_is_sent_whole_whatever_the_limits(
    harness: Harness, client: Client, limit: int
) -> None:
    harness.topic("t", 2)
    for _ in range(2):
        produce(harness, "t", 1)
    answer = partitions(client.call(ask("t", {0: 0, 1: 0}, max_bytes=limit), 12))
    assert (batches(answer[0]), batches(answer[1])) == ([], [0])
    answer = partitions(client.call(ask("t", {0: 0, 1: 0}, partition_max_bytes=limit), 12))
    assert (batches(answer[0]), batches(answer[1])) == ([], [0])


def test_trap_25_limits_bind_from_the_second_batch_on(harness: Harness, client: Client) -> None:
    harness.topic("t", 3)
    for index in range(3):
        for _ in range(3):
            produce(harness, "t", index)
    offsets = {0: 0, 1: 0, 2: 0}
    answer = partitions(client.call(ask("t", offsets, max_bytes=SIZE * 4 + 5), 12))
    assert [batches(answer[index]) for index in range(3)] == [[0, 2, 4], [0], []]
    answer = partitions(client.call(ask("t", offsets, partition_max_bytes=SIZE * 2), 12))
    assert [batches(answer[index]) for index in range(3)] == [[0, 2], [0, 2], [0, 2]]
    assert answer[2].high_watermark == 6, "a partition without room is answered all the same"


def test_trap_29_a_busy_partition_does_not_starve_the_others(
    harness: Harness, client: Client
) -> None:
    harness.topic("t", 3)
    for index in range(3):
        for _ in range(3):
            produce(harness, "t", index)
    served: list[int] = []
    session, epoch = 0, 0
    for _ in range(6):
        request = ask("t", dict.fromkeys(range(3), 0) if epoch == 0 else {}, max_bytes=1)
        request.session_id, request.session_epoch = session, epoch
        answer = client.call(request, 12)
        session, epoch = answer.session_id, epoch + 1
        served += [index for index, data in partitions(answer).items() if data.records]
    assert served == [0, 1, 2, 0, 1, 2]


def test_answers_are_one_batch_while_clients_do_not_take_theirs(
    harness: Harness, client: Client
) -> None:
    harness.topic("t")
    for _ in range(3):
        produce(harness, "t")
    harness.broker.unsent.add(harness.broker.unsent.limit)
    assert batches(partitions(client.call(ask("t", {0: 0}), 12))[0]) == [0]
    harness.broker.unsent.remove(harness.broker.unsent.limit)
    assert batches(partitions(client.call(ask("t", {0: 0}), 12))[0]) == [0, 2, 4]


def test_consumers_at_the_end_wait_also_while_others_do_not_take_their_answers(
    harness: Harness, client: Client
) -> None:
    harness.topic("t")
    harness.broker.unsent.add(harness.broker.unsent.limit)
    client.send(ask("t", {0: 0}, max_wait_ms=500, min_bytes=1), 12)
    assert client.receive() is None
    produce(harness, "t")
    assert batches(partitions(client.receive())[0]) == [0]


# -------------------------------------------------------------------------------------- long polls


def test_a_file_that_cannot_be_read_keeps_nobody_else_from_hearing_of_a_commit(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topic("t")
    other = harness.client()
    client.send(ask("t", {0: 0}, max_wait_ms=500, min_bytes=10_000), 12)
    other.send(ask("t", {0: 0}, max_wait_ms=500, min_bytes=1), 12)
    read = harness.store.read
    unreadable = [Damaged(Path("file"), "is altered")] * 2

    def failing(*args: Any, **kwargs: Any) -> Any:
        if unreadable:
            raise unreadable.pop()
        return read(*args, **kwargs)

    monkeypatch.setattr(harness.store, "read", failing)
    produce(harness, "t")
    assert partitions(client.receive())[0].error_code == Error.KAFKA_STORAGE_ERROR
    assert batches(partitions(other.receive())[0]) == [0]


def test_trap_26_a_long_poll_ends_with_a_commit(harness: Harness, client: Client) -> None:
    harness.topic("t", 2)
    timers = len(harness.broker.timers)
    client.send(ask("t", {0: 0, 1: 0}, max_wait_ms=500, min_bytes=1), 12)
    assert client.receive() is None
    harness.pass_time(499)
    assert client.receive() is None
    produce(harness, "t", 1)
    assert batches(partitions(client.receive())[1]) == [0]
    assert len(harness.broker.timers) == timers


def test_trap_26_a_long_poll_ends_with_its_time(harness: Harness, client: Client) -> None:
    harness.topic("t")
    client.send(ask("t", {0: 0}, max_wait_ms=500, min_bytes=1), 12)
    harness.pass_time(500)
    assert batches(partitions(client.receive())[0]) == []
    assert len(harness.broker.waiters) == 0


def test_trap_26_min_bytes_counts_over_all_partitions(harness: Harness, client: Client) -> None:
    harness.topic("t", 2)
    produce(harness, "t", 0)
    client.send(ask("t", {0: 0, 1: 0}, max_wait_ms=500, min_bytes=SIZE * 3), 12)
    produce(harness, "t", 1)
    assert client.receive() is None
    produce(harness, "t", 1)
    answer = partitions(client.receive())
    assert (batches(answer[0]), batches(answer[1])) == ([0], [0, 2])


@pytest.mark.parametrize(
    "fields",
    [
        {"min_bytes": 0, "max_wait_ms": 10_000},
        {"min_bytes": 1, "max_wait_ms": 0},
        {"min_bytes": 1, "max_wait_ms": 10_000, "max_bytes": 0},
    ],
)
def test_trap_26_nothing_to_wait_for(
    harness: Harness, client: Client, fields: dict[str, int]
) -> None:
    harness.topic("t")
    assert batches(partitions(client.call(ask("t", {0: 0}, **fields), 12))[0]) == []


def test_trap_26_an_error_or_an_empty_request_is_answered_at_once(
    harness: Harness, client: Client
) -> None:
    harness.topic("t")
    answer = client.call(ask("t", {0: 5}, max_wait_ms=10_000, min_bytes=1), 12)
    assert partitions(answer)[0].error_code == Error.OFFSET_OUT_OF_RANGE
    answer = client.call(ask("t", {7: 0}, max_wait_ms=10_000, min_bytes=1), 12)
    assert partitions(answer)[7].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    empty = FetchRequest(max_wait_ms=10_000, min_bytes=1, session_epoch=-1)
    assert client.call(empty, 12).responses == []


def test_a_partition_that_is_not_there_does_not_end_a_long_poll_for_others(
    harness: Harness, client: Client
) -> None:
    harness.topic("t")
    client.send(ask("t", {0: 0, 7: 0}, max_wait_ms=500, min_bytes=1), 12)
    harness.pass_time(499)
    assert client.receive() is None
    produce(harness, "t")
    answer = partitions(client.receive())
    assert batches(answer[0]) == [0]
    assert answer[7].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_there_are_no_other_replicas(harness: Harness, client: Client) -> None:
    harness.topic("t")
    answer = client.call(ask("t", {0: 0}, replica_id=5), 12)
    assert partitions(answer)[0].error_code == Error.NOT_LEADER_OR_FOLLOWER


def test_a_deleted_topic_ends_the_long_poll(harness: Harness, client: Client) -> None:
    topics = harness.broker.topics
    topics.on_change(
        lambda: harness.broker.waiters.gone(
            lambda number: any(number in topic.partitions for topic in topics)
        )
    )
    harness.topic("t")
    client.send(ask("t", {0: 0}, max_wait_ms=10_000, min_bytes=1), 12)
    harness.delete_topic("t")
    harness.turn()
    assert partitions(client.receive())[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_that_goes_leaves_nothing_behind(harness: Harness, client: Client) -> None:
    harness.topic("t")
    timers = len(harness.broker.timers)
    client.send(ask("t", {0: 0}, max_wait_ms=10_000, min_bytes=1), 12)
    assert (len(harness.broker.waiters), harness.budget.used > 0) == (1, True)
    client.connection.close("gone")
    assert (len(harness.broker.waiters), len(harness.broker.timers)) == (0, timers)
    assert harness.budget.used == 0


def test_a_fetch_behind_a_produce_sees_its_records(harness: Harness, client: Client) -> None:
    harness.topic("t")
    data = PartitionProduceData(index=0, records=BATCH)
    for acks in (1, 0):
        written = ProduceRequest(
            acks=acks, topic_data=[TopicProduceData(name="t", partition_data=[data])]
        )
        wire = client.frame(written, 9)
        if acks == 0:
            client.forget()
        client.raw(wire + client.frame(ask("t", {0: 0}), 12))
        if acks:
            assert client.receive().responses[0].partition_responses[0].base_offset == 0
        assert partitions(client.receive())[0].high_watermark == (2 if acks else 4)


# -------------------------------------------------------------------------------------- cold reads


class Colds:
    """Has the store say that partition 0 lies on a slow disk, and holds the reads back."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[Cold, Callable[[Read | Exception], None]]] = []
        store = harness.store
        number = harness.broker.topics.partition("t", 0).number
        warm = store.read

        def read(
            partition: Partition, offset: int, max_bytes: int, *, end: int, min_one: bool
        ) -> Read | Cold:
            if partition.number == number:
                return Cold(number, offset, max_bytes, end, min_one, [])
            return warm(partition, offset, max_bytes, end=end, min_one=min_one)

        monkeypatch.setattr(store, "read", read)
        monkeypatch.setattr(store, "read_cold", lambda cold, done: self.asked.append((cold, done)))

    def finish(self, found: Read | Exception) -> Cold:
        cold, done = self.asked.pop()
        done(found)
        return cold


def test_a_cold_read_is_parked_and_the_rest_is_read_after_it(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topic("t", 2)
    produce(harness, "t", 0)
    produce(harness, "t", 1)
    colds = Colds(harness, monkeypatch)
    client.send(ask("t", {0: 0, 1: 0}, max_bytes=SIZE + 10), 12)
    assert client.receive() is None
    cold = colds.finish(Read([BATCH], SIZE))
    assert (cold.max_bytes, cold.end, cold.min_one) == (SIZE + 10, 2, True)
    harness.turn()
    answer = partitions(client.receive())
    assert (received(answer[0]), batches(answer[1])) == (BATCH, []), "its bytes count"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Damaged(Path("x.sealed"), "torn"), Error.KAFKA_STORAGE_ERROR),
        (KafkaError(Error.OFFSET_OUT_OF_RANGE), Error.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_cold_read_that_fails_is_the_error_of_its_partition(
    harness: Harness,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: Error,
) -> None:
    harness.topic("t", 2)
    produce(harness, "t", 0)
    produce(harness, "t", 1)
    colds = Colds(harness, monkeypatch)
    client.send(ask("t", {0: 0, 1: 0}), 12)
    colds.finish(error)
    harness.turn()
    answer = partitions(client.receive())
    assert (answer[0].error_code, batches(answer[1])) == (code, [0])


def test_a_bug_in_a_cold_read_is_answered(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topic("t")
    produce(harness, "t")
    colds = Colds(harness, monkeypatch)
    client.send(ask("t", {0: 0}), 12)
    colds.finish(ZeroDivisionError())
    harness.turn()
    assert client.receive().error_code == Error.UNKNOWN_SERVER_ERROR


def test_a_cold_read_for_a_client_that_has_gone(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topic("t")
    produce(harness, "t")
    colds = Colds(harness, monkeypatch)
    client.send(ask("t", {0: 0}), 12)
    client.connection.close("gone")
    colds.finish(Read([BATCH], SIZE))
    assert harness.budget.used == 0


# ----------------------------------------------------------------------------- offsets and errors


def test_trap_27_the_end_is_empty_and_beyond_it_out_of_range(
    harness: Harness, client: Client
) -> None:
    harness.topic("t")
    produce(harness, "t")
    for isolation_level in (0, 1):
        for offset, error in ((2, 0), (3, Error.OFFSET_OUT_OF_RANGE), (-1, 1)):
            request = ask("t", {0: offset}, isolation_level=isolation_level)
            data = partitions(client.call(request, 12))[0]
            assert (data.error_code, batches(data)) == (error, [])
            assert data.high_watermark == (-1 if error else 2)


def test_trap_27_below_the_log_start_is_out_of_range(harness: Harness, client: Client) -> None:
    harness.topic("t")
    produce(harness, "t")
    produce(harness, "t")
    harness.store.delete_records(harness.broker.topics.partition("t", 0), 2)
    harness.turn()
    assert partitions(client.call(ask("t", {0: 1}), 12))[0].error_code == 1
    data = partitions(client.call(ask("t", {0: 2}), 12))[0]
    assert (batches(data), data.log_start_offset) == ([2], 2)


def test_trap_30_aborted_transactions_are_null_unless_asked_for(
    harness: Harness, client: Client
) -> None:
    harness.topic("t")
    produce(harness, "t")
    for version in (4, 12):
        for isolation_level, expected in ((0, None), (1, [])):
            request = ask("t", {0: 0}, isolation_level=isolation_level)
            assert partitions(client.call(request, version))[0].aborted_transactions == expected


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, 0), (0, 0), (-2, 0), (1, Error.UNKNOWN_LEADER_EPOCH)],
)
def test_trap_32_leader_epochs(harness: Harness, client: Client, epoch: int, error: int) -> None:
    harness.topic("t")
    request = ask("t", {0: 0}, partition={"current_leader_epoch": epoch})
    assert partitions(client.call(request, 12))[0].error_code == error


def test_trap_9_records_are_empty_never_null(harness: Harness, client: Client) -> None:
    harness.topic("t")
    for version in range(4, 13):
        data = partitions(client.call(ask("t", {0: 0, 9: 0}), version))
        assert [d.records is not None and len(d.records) for d in data.values()] == [0, 0]


# ---------------------------------------------------------------------------------------- sessions


def test_trap_14_a_topic_id_nobody_has(harness: Harness, client: Client) -> None:
    answer = client.call(ask(b"nobody has this.", {0: 0}, max_wait_ms=10_000), 13)
    assert answer.responses[0].topic_id == b"nobody has this."
    assert partitions(answer)[0].error_code == Error.UNKNOWN_TOPIC_ID


def test_trap_14_a_topic_made_anew_inside_a_session(harness: Harness, client: Client) -> None:
    first = harness.topic("t")
    produce(harness, "t")
    answer = client.call(ask(first, {0: 0}, session_epoch=0), 13)
    session = answer.session_id
    assert session != 0
    harness.delete_topic("t")
    request = FetchRequest(session_id=session, session_epoch=1, max_bytes=UNLIMITED)
    gone = partitions(client.call(request, 13))[0].error_code
    assert gone == Error.UNKNOWN_TOPIC_OR_PARTITION
    harness.topic("t", topic_id=b"another id of it")
    request.session_epoch = 2
    changed = partitions(client.call(request, 13))[0].error_code
    assert changed == Error.INCONSISTENT_TOPIC_ID


def test_trap_28_an_incremental_answer_holds_only_news(harness: Harness, client: Client) -> None:
    topic_id = harness.topic("t", 3)
    answer = client.call(ask(topic_id, {0: 0, 1: 0, 2: 0}, session_epoch=0), 13)
    assert sorted(partitions(answer)) == [0, 1, 2]
    produce(harness, "t", 1)
    request = FetchRequest(
        session_id=answer.session_id, session_epoch=1, max_bytes=UNLIMITED, min_bytes=1
    )
    answer = client.call(request, 13)
    assert list(partitions(answer)) == [1]
    request.session_epoch = 2
    request.max_wait_ms = 100
    request.topics = ask(topic_id, {1: 2}).topics
    client.send(request, 13)
    harness.pass_time(100)
    assert client.receive().responses == []


@pytest.mark.parametrize("version", [7, 12, 13])
def test_trap_28_session_errors_are_on_top(client: Client, version: int) -> None:
    answer = client.call(FetchRequest(session_id=77, session_epoch=3), version)
    assert answer.error_code == Error.FETCH_SESSION_ID_NOT_FOUND
    assert (answer.session_id, answer.responses) == (0, [])


def test_a_session_of_many_partitions_is_read_in_slices(harness: Harness, client: Client) -> None:
    """And still only told the news."""
    harness.topic("t", 3000)
    append(client, "t", {index: make_batch() for index in range(0, 3000, 1000)})
    opening = ask("t", dict.fromkeys(range(3000), 0), session_epoch=0)
    opening.topics.append(
        FetchTopic(topic="none", partitions=[FetchPartition(partition=n) for n in range(1000)])
    )
    client.send(opening, 12)
    assert client.receive() is None
    answer = sliced(harness, client)
    assert len(answer.responses[0].partitions) == 3000
    assert {data.error_code for data in answer.responses[1].partitions} == {
        Error.UNKNOWN_TOPIC_OR_PARTITION
    }
    request = ask("t", dict.fromkeys(range(0, 3000, 1000), 1), session_epoch=1, min_bytes=1)
    request.session_id = answer.session_id
    request.forgotten_topics_data = [ForgottenTopic(topic="none", partitions=list(range(1000)))]
    request.max_wait_ms = 60_000
    client.send(request, 12)
    harness.pass_time(1)
    assert client.receive() is None
    append(harness.client(), "t", {2345: make_batch()})
    answer = sliced(harness, client)
    assert [data.partition_index for data in answer.responses[0].partitions] == [2345]
    assert len(answer.responses) == 1


def append(client: Client, topic: str, batches: dict[int, bytes]) -> None:
    data = [PartitionProduceData(index=n, records=batch) for n, batch in batches.items()]
    named = TopicProduceData(name=topic, partition_data=data)
    client.call(ProduceRequest(acks=1, topic_data=[named]), 9)


def sliced(harness: Harness, client: Client) -> Any:
    for _ in range(100):
        answer = client.receive()
        if answer is not None:
            return answer
        harness.pass_time(1)
    raise AssertionError("no answer")
