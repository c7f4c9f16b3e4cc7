"""Fetch and offsets: facts 25 to 33."""

from __future__ import annotations

import time
from typing import Any

import pytest

from compat_tests.conftest import Connect, MakeTopic
from compat_tests.raw import batch, calls
from compat_tests.raw.batch import Record
from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire

READ_COMMITTED = 1
LONG_POLL = 20
"""Seconds: who is answered sooner did not wait for the 25 that were allowed."""
BIG = Record(b"x" * 5000)


def error(answer: Struct) -> str:
    return name_of(answer.error_code)


def parts_of(answer: Struct) -> dict[tuple[str, int], Struct]:
    """A whole answer's partitions, in its order."""
    return {(t.topic, p.partition_index): p for t in answer.responses for p in t.partitions}


@pytest.mark.parametrize("version", [4, 11, 12])
def test_trap_25_the_first_batch_comes_whole_whatever_the_limits(
    wire: Wire, topic: str, version: int
) -> None:
    for _ in range(3):
        calls.produced(wire, topic, batch.build([BIG]))
    for limits in ({"partition_max_bytes": 1}, {"max_bytes": 1}, {"partition_max_bytes": 6000}):
        found = batch.parse(calls.fetch(wire, topic, 1, version=version, **limits).records)
        assert [b.base_offset for b in found] == [1], limits
        assert found[0].crc_ok


def test_trap_25_the_second_partition_is_bound_by_what_the_first_left(
    wire: Wire, new_topic: MakeTopic
) -> None:
    topic = new_topic(2)
    for partition in (0, 1):
        calls.produced(wire, topic, batch.build([BIG]), partition=partition)
    both = {topic: [calls.fetch_partition(partition=p) for p in (0, 1)]}
    got = parts_of(wire.call("Fetch", 12, **calls.fetch_fields(both, max_bytes=100)))
    sizes = [len(batch.parse(got[topic, p].records)) for p in (0, 1)]
    assert sizes == [1, 0]


def test_trap_25_a_fetch_inside_a_batch_returns_that_batch(wire: Wire, topic: str) -> None:
    calls.produced(wire, topic, batch.build([Record(b"%d" % i) for i in range(10)]))
    (found,) = calls.fetched_batches(wire, topic, 7)
    assert (found.base_offset, found.record_count) == (0, 10)


def test_trap_26_a_long_poll_ends_after_max_wait_ms(wire: Wire, topic: str) -> None:
    started = time.monotonic()
    answer = calls.fetch(wire, topic, 0, max_wait_ms=300, min_bytes=1)
    waited = time.monotonic() - started
    assert (error(answer), answer.records) == ("NONE", b"")
    assert waited > 0.25


def test_trap_26_a_long_poll_ends_when_min_bytes_are_there(connect: Connect, topic: str) -> None:
    poll, producer = connect(), connect()
    part = calls.fetch_partition(0)
    fields = calls.fetch_fields({topic: [part]}, max_wait_ms=25_000, min_bytes=9000)
    poll.send("Fetch", 12, **fields)
    started = time.monotonic()
    calls.produced(producer, topic, batch.build([BIG]))
    time.sleep(0.3)
    sent_second = time.monotonic()
    calls.produced(producer, topic, batch.build([BIG]))
    got = parts_of(poll.receive("Fetch", 12)[1])
    answered = time.monotonic()
    assert len(batch.parse(got[topic, 0].records)) == 2, "the first alone was not enough"
    assert answered > started + 0.3
    assert answered < sent_second + LONG_POLL


@pytest.mark.parametrize("case", ["min_bytes 0", "an error", "no partitions"])
def test_trap_26_answered_at_once(wire: Wire, new_topic: MakeTopic, case: str) -> None:
    topic = new_topic(2)
    topics: dict[Any, list[dict[str, Any]]] = {topic: [calls.fetch_partition(0)]}
    min_bytes = 1
    if case == "min_bytes 0":
        min_bytes = 0
    elif case == "an error":
        # One that the log itself finds. Kafka waits out max_wait_ms when a partition is unknown
        # and another one is fine.
        topics = {topic: [calls.fetch_partition(0), calls.fetch_partition(99, partition=1)]}
    else:
        topics = {}
    started = time.monotonic()
    wire.call("Fetch", 12, **calls.fetch_fields(topics, max_wait_ms=25_000, min_bytes=min_bytes))
    assert time.monotonic() - started < LONG_POLL


def test_trap_26_min_bytes_counts_over_all_partitions(
    connect: Connect, new_topic: MakeTopic
) -> None:
    topic = new_topic(2)
    producer = connect()
    for partition in (0, 1):
        calls.produced(producer, topic, batch.build([BIG]), partition=partition)
    both = {topic: [calls.fetch_partition(partition=p) for p in (0, 1)]}
    started = time.monotonic()
    connect().call("Fetch", 12, **calls.fetch_fields(both, max_wait_ms=25_000, min_bytes=9000))
    assert time.monotonic() - started < LONG_POLL


def test_trap_27_log_end_is_in_range_and_beyond_is_not(wire: Wire, topic: str) -> None:
    for _ in range(4):
        calls.produced(wire, topic, batch.build())
    at_end = calls.fetch(wire, topic, 4)
    assert (error(at_end), at_end.high_watermark, at_end.records) == ("NONE", 4, b"")
    assert error(calls.fetch(wire, topic, 5)) == "OFFSET_OUT_OF_RANGE"
    assert error(calls.fetch(wire, topic, -1)) == "OFFSET_OUT_OF_RANGE"
    deleted = wire.call(
        "DeleteRecords",
        2,
        timeout_ms=5000,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}],
    )
    assert deleted.topics[0].partitions[0].low_watermark == 2
    below = calls.fetch(wire, topic, 1)
    assert error(below) == "OFFSET_OUT_OF_RANGE"
    at_start = calls.fetch(wire, topic, 2)
    assert (error(at_start), at_start.log_start_offset) == ("NONE", 2)


def test_trap_27_read_committed_at_the_log_end_is_empty(wire: Wire, topic: str) -> None:
    calls.produced(wire, topic, batch.build())
    answer = calls.fetch(wire, topic, 1, isolation_level=READ_COMMITTED)
    assert (error(answer), answer.last_stable_offset, answer.records) == ("NONE", 1, b"")


class Session:
    """A fetch session over one connection."""

    def __init__(self, wire: Wire, version: int = 12) -> None:
        self.wire = wire
        self.version = version
        self.id = 0
        self.epoch = 0

    def fetch(self, topics: dict[Any, list[dict[str, Any]]], **more: Any) -> Struct:
        fields = calls.fetch_fields(topics, session_id=self.id, session_epoch=self.epoch, **more)
        answer = self.wire.call("Fetch", self.version, **fields)
        if answer.error_code == 0:
            self.id, self.epoch = answer.session_id, self.epoch + 1
        return answer


@pytest.mark.parametrize("version", [7, 11, 12])
def test_trap_28_an_incremental_answer_holds_only_what_changed(
    wire: Wire, new_topic: MakeTopic, version: int
) -> None:
    topic = new_topic(3)
    session = Session(wire, version)
    every = [calls.fetch_partition(partition=p) for p in range(3)]
    opened = session.fetch({topic: every})
    assert opened.session_id != 0
    assert set(parts_of(opened)) == {(topic, 0), (topic, 1), (topic, 2)}
    assert parts_of(session.fetch({})) == {}
    calls.produced(wire, topic, batch.build(), partition=1)
    assert set(parts_of(session.fetch({}))) == {(topic, 1)}
    # still behind: it is sent again, until the session is told the new position
    assert set(parts_of(session.fetch({}))) == {(topic, 1)}
    assert parts_of(session.fetch({topic: [calls.fetch_partition(1, partition=1)]})) == {}
    # a partition of the session may be forgotten
    calls.produced(wire, topic, batch.build(), partition=2)
    forgotten = [{"topic": topic, "partitions": [2]}]
    assert parts_of(session.fetch({}, forgotten_topics_data=forgotten)) == {}
    # an error is sent as long as it lasts
    assert set(parts_of(session.fetch({topic: [calls.fetch_partition(50, partition=0)]}))) == {
        (topic, 0)
    }
    assert error(parts_of(session.fetch({}))[topic, 0]) == "OFFSET_OUT_OF_RANGE"


def test_trap_28_an_incremental_answer_tells_of_a_new_log_start(wire: Wire, topic: str) -> None:
    for _ in range(3):
        calls.produced(wire, topic, batch.build())
    session = Session(wire)
    session.fetch({topic: [calls.fetch_partition(3)]})
    assert parts_of(session.fetch({})) == {}
    wire.call(
        "DeleteRecords",
        2,
        timeout_ms=5000,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}],
    )
    assert parts_of(session.fetch({}))[topic, 0].log_start_offset == 2


def test_trap_28_unknown_and_wrong_sessions_are_told_at_top_level(wire: Wire, topic: str) -> None:
    parts = {topic: [calls.fetch_partition()]}
    unknown = wire.call("Fetch", 12, **calls.fetch_fields(parts, session_id=99999, session_epoch=1))
    assert (error(unknown), unknown.responses) == ("FETCH_SESSION_ID_NOT_FOUND", [])
    session = Session(wire)
    session.fetch(parts)
    wrong = wire.call("Fetch", 12, **calls.fetch_fields({}, session_id=session.id, session_epoch=9))
    assert (error(wrong), wrong.responses) == ("INVALID_FETCH_SESSION_EPOCH", [])
    closed = wire.call("Fetch", 12, **calls.fetch_fields(parts, session_id=session.id))
    assert (error(closed), closed.session_id) == ("NONE", 0)
    assert set(parts_of(closed)) == {(topic, 0)}
    gone = wire.call("Fetch", 12, **calls.fetch_fields({}, session_id=session.id, session_epoch=1))
    assert error(gone) == "FETCH_SESSION_ID_NOT_FOUND"


def test_trap_28_without_a_session_the_id_is_0(wire: Wire, topic: str) -> None:
    parts = {topic: [calls.fetch_partition()]}
    answer = wire.call("Fetch", 12, **calls.fetch_fields(parts))
    assert (answer.session_id, set(parts_of(answer))) == (0, {(topic, 0)})


def test_trap_29_partitions_just_served_go_last(wire: Wire, new_topic: MakeTopic) -> None:
    topic = new_topic(3)
    for _ in range(8):
        for partition in range(3):
            calls.produced(wire, topic, batch.build([BIG]), partition=partition)
    session = Session(wire)
    positions = dict.fromkeys(range(3), 0)
    topics = {topic: [calls.fetch_partition(partition=p) for p in range(3)]}
    served = []
    for _ in range(7):
        answer = session.fetch(topics, max_bytes=6000)
        moved = {}
        for (_, partition), part in parts_of(answer).items():
            if found := batch.parse(part.records):
                served.append(partition)
                positions[partition] = found[-1].last_offset + 1
                moved[partition] = calls.fetch_partition(positions[partition], partition=partition)
        topics = {topic: list(moved.values())}
    assert len(served) == 7, "one batch an answer"
    # the fetch that opens the session does not count yet in Kafka
    assert sorted(served[1:]) == [0, 0, 1, 1, 2, 2], served


@pytest.mark.parametrize("version", [4, 8, 11, 12])
def test_trap_30_aborted_transactions_are_null_or_a_list(
    wire: Wire, topic: str, version: int
) -> None:
    calls.produced(wire, topic, batch.build())
    answer = calls.fetch(wire, topic, 0, version=version)
    assert answer.aborted_transactions is None
    answer = calls.fetch(wire, topic, 0, version=version, isolation_level=READ_COMMITTED)
    assert answer.aborted_transactions == []
    assert len(batch.parse(answer.records)) == 1


@pytest.mark.parametrize("version", [11, 12])
def test_trap_31_preferred_read_replica_is_minus_one(wire: Wire, topic: str, version: int) -> None:
    calls.produced(wire, topic, batch.build())
    assert calls.fetch(wire, topic, 0, version=version).preferred_read_replica == -1
    assert calls.fetch(wire, topic, 9, version=version).preferred_read_replica == -1


def test_trap_32_the_current_leader_epoch_is_checked(wire: Wire, topic: str) -> None:
    calls.produced(wire, topic, batch.build())
    ours = calls.topic_metadata(wire, topic).partitions[0].leader_epoch
    expected = {-1: "NONE", ours: "NONE", ours + 1: "UNKNOWN_LEADER_EPOCH"}
    if ours > 0:
        expected[ours - 1] = "FENCED_LEADER_EPOCH"
    for epoch, wanted in expected.items():
        assert error(calls.fetch(wire, topic, 0, current_leader_epoch=epoch)) == wanted
        assert error(calls.list_offset(wire, topic, -1, current_leader_epoch=epoch)) == wanted
        asked = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": ours}
        answer = wire.call(
            "OffsetForLeaderEpoch",
            4,
            replica_id=-1,
            topics=[{"topic": topic, "partitions": [asked]}],
        )
        assert error(answer.topics[0].partitions[0]) == wanted


def test_trap_32_the_end_of_an_epoch(wire: Wire, topic: str) -> None:
    for _ in range(3):
        calls.produced(wire, topic, batch.build())
    ours = calls.topic_metadata(wire, topic).partitions[0].leader_epoch

    def end_of(epoch: int) -> tuple[str, int, int]:
        asked = {"partition": 0, "leader_epoch": epoch}
        answer = wire.call(
            "OffsetForLeaderEpoch",
            4,
            replica_id=-1,
            topics=[{"topic": topic, "partitions": [asked]}],
        )
        part = answer.topics[0].partitions[0]
        return error(part), part.leader_epoch, part.end_offset

    assert end_of(ours) == ("NONE", ours, 3)
    assert end_of(ours + 1) == ("NONE", -1, -1)


LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6


@pytest.fixture
def timed_topic(wire: Wire, topic: str) -> str:
    """Offsets 0-2 in one batch at NOW-3000, -1000, -2000; offset 3 at NOW-1500; 4 at NOW-1500."""
    start = batch.NOW - 3000
    first = [Record(b"a"), Record(b"b", timestamp_delta=2000), Record(b"c", timestamp_delta=1000)]
    calls.produced(wire, topic, batch.build(first, base_timestamp=start))
    calls.produced(wire, topic, batch.build([Record(b"d")], base_timestamp=start + 1500))
    calls.produced(wire, topic, batch.build([Record(b"e")], base_timestamp=start + 1500))
    return topic


@pytest.mark.parametrize("version", range(1, 12))
def test_trap_33_latest_and_earliest(wire: Wire, timed_topic: str, version: int) -> None:
    for level in (0, READ_COMMITTED) if version >= 2 else (0,):
        for asked, offset in ((LATEST, 5), (EARLIEST, 0)):
            got = calls.list_offset(
                wire, timed_topic, asked, version=version, isolation_level=level
            )
            assert (error(got), got.offset, got.timestamp) == ("NONE", offset, -1)


@pytest.mark.parametrize("version", [1, 5, 6, 11])
def test_trap_33_by_time_the_first_record_at_or_after_it(
    wire: Wire, timed_topic: str, version: int
) -> None:
    start = batch.NOW - 3000
    for asked, offset, timestamp in [
        (0, 0, start),
        (start, 0, start),
        (start + 1, 1, start + 2000),
        (start + 2000, 1, start + 2000),
    ]:
        got = calls.list_offset(wire, timed_topic, asked, version=version)
        assert (error(got), got.offset, got.timestamp) == ("NONE", offset, timestamp), asked
    none = calls.list_offset(wire, timed_topic, start + 2001, version=version)
    assert (error(none), none.offset, none.timestamp) == ("NONE", -1, -1)


@pytest.mark.parametrize("version", [7, 9, 11])
def test_trap_33_the_record_with_the_largest_timestamp(
    wire: Wire, timed_topic: str, version: int
) -> None:
    got = calls.list_offset(wire, timed_topic, MAX_TIMESTAMP, version=version)
    assert (error(got), got.offset, got.timestamp) == ("NONE", 1, batch.NOW - 1000)


def test_trap_33_the_largest_timestamp_of_nothing(wire: Wire, topic: str) -> None:
    got = calls.list_offset(wire, topic, MAX_TIMESTAMP)
    assert (error(got), got.offset, got.timestamp) == ("NONE", -1, -1)


@pytest.mark.parametrize(
    ("asked", "first_version", "expected"),
    [
        (MAX_TIMESTAMP, 7, None),
        (EARLIEST_LOCAL, 8, (0, -1)),
        (LATEST_TIERED, 9, (-1, -1)),
        (EARLIEST_PENDING_UPLOAD, 11, (-1, -1)),
    ],
)
def test_trap_33_tiered_timestamps_by_version(
    wire: Wire, timed_topic: str, asked: int, first_version: int, expected: tuple[int, int] | None
) -> None:
    for version in range(1, first_version):
        got = calls.list_offset(wire, timed_topic, asked, version=version)
        assert (error(got), got.offset) == ("UNSUPPORTED_VERSION", -1), version
    for version in range(first_version, 12):
        got = calls.list_offset(wire, timed_topic, asked, version=version)
        assert error(got) == "NONE", version
        if expected is not None:
            assert (got.offset, got.timestamp) == expected, version


def test_trap_33_one_wrong_partition_does_not_hurt_the_others(wire: Wire, topic: str) -> None:
    parts = [{"partition_index": p, "timestamp": LATEST} for p in (0, 5)]
    answer = wire.call("ListOffsets", 9, topics=[{"name": topic, "partitions": parts}])
    got = {p.partition_index: error(p) for p in answer.topics[0].partitions}
    assert got == {0: "NONE", 5: "UNKNOWN_TOPIC_OR_PARTITION"}
