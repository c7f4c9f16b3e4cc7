"""Fields out of their range, and the same thing named twice: what each API says of it."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.conftest import MakeTopic
from compat_tests.raw import batch, calls
from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire

NOTHING_KNOWN = -1
NOT_ASKED = -(1 << 31)
NO_TIME = [0, -1, -(1 << 31)]


def errors(results: list[Struct]) -> dict[str, str]:
    return {result.name: name_of(result.error_code) for result in results}


@pytest.mark.parametrize("timeout_ms", NO_TIME)
@pytest.mark.parametrize("version", range(2, 8))
def test_creating_topics_without_time_is_timed_out(
    wire: Wire, version: int, timeout_ms: int
) -> None:
    one = {"num_partitions": 1, "replication_factor": 1}
    asked = [{"name": name, **one} for name in ("no-time", "a b", "twice", "twice")]
    for validate_only in (False, True):
        answer = wire.call(
            "CreateTopics",
            version,
            timeout_ms=timeout_ms,
            validate_only=validate_only,
            topics=asked,
        )
        assert errors(answer.topics) == {
            "no-time": "REQUEST_TIMED_OUT",
            "a b": "REQUEST_TIMED_OUT",
            "twice": "REQUEST_TIMED_OUT",
        }
    assert calls.topic_metadata(wire, "no-time").error_code != 0
    assert wire.call("CreateTopics", version, timeout_ms=timeout_ms).topics == []


@pytest.mark.parametrize("timeout_ms", NO_TIME)
@pytest.mark.parametrize("version", range(1, 7))
def test_deleting_topics_without_time_is_timed_out(
    wire: Wire, topic: str, version: int, timeout_ms: int
) -> None:
    names = [topic, "no-such-topic", "twice", "twice"]
    asked: dict[str, Any] = (
        {"topics": [{"name": name} for name in names]} if version >= 6 else {"topic_names": names}
    )
    answer = wire.call("DeleteTopics", version, timeout_ms=timeout_ms, **asked)
    assert errors(answer.responses) == {
        topic: "REQUEST_TIMED_OUT",
        "no-such-topic": "REQUEST_TIMED_OUT",
        "twice": "INVALID_REQUEST",
    }
    assert calls.topic_metadata(wire, topic).error_code == 0


@pytest.mark.parametrize("timeout_ms", NO_TIME)
@pytest.mark.parametrize("version", range(4))
def test_adding_partitions_without_time_is_timed_out(
    wire: Wire, topic: str, version: int, timeout_ms: int
) -> None:
    names = [topic, "no-such-topic", "twice", "twice"]
    asked = [{"name": name, "count": 9, "assignments": None} for name in names]
    answer = wire.call("CreatePartitions", version, timeout_ms=timeout_ms, topics=asked)
    assert errors(answer.results) == {
        topic: "REQUEST_TIMED_OUT",
        "no-such-topic": "REQUEST_TIMED_OUT",
        "twice": "INVALID_REQUEST",
    }
    assert len(calls.topic_metadata(wire, topic).partitions) == 1


@pytest.mark.parametrize("timeout_ms", NO_TIME)
def test_producing_and_deleting_records_need_no_time(
    wire: Wire, topic: str, timeout_ms: int
) -> None:
    fields = calls.produce_fields(topic, batch.build()) | {"timeout_ms": timeout_ms}
    produced = wire.call("Produce", 9, **fields)
    assert produced.responses[0].partition_responses[0].error_code == 0
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}]
    deleted = wire.call("DeleteRecords", 2, timeout_ms=timeout_ms, topics=asked)
    assert deleted.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("level", [2, -1, 127, -128])
@pytest.mark.parametrize("version", range(4, 19))
def test_a_fetch_of_no_isolation_level(wire: Wire, topic: str, version: int, level: int) -> None:
    name: Any = calls.topic_metadata(wire, topic).topic_id if version >= 13 else topic
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    fields = calls.fetch_fields({name: [part]}, isolation_level=level)
    answer = wire.call("Fetch", version, **fields)
    if version >= 7:
        assert name_of(answer.error_code) == "UNKNOWN_SERVER_ERROR"
        assert answer.session_id == 0
    if version >= 13:
        assert answer.responses == []
        return
    (partition,) = answer.responses[0].partitions
    assert name_of(partition.error_code) == "UNKNOWN_SERVER_ERROR"
    assert (partition.high_watermark, partition.records) == (NOTHING_KNOWN, b"")


@pytest.mark.parametrize("level", [2, -1, 127, -128])
@pytest.mark.parametrize("version", range(2, 12))
def test_offsets_of_no_isolation_level(wire: Wire, topic: str, version: int, level: int) -> None:
    parts = [{"partition_index": index, "timestamp": -1} for index in (0, 9)]
    answer = wire.call(
        "ListOffsets",
        version,
        replica_id=-1,
        isolation_level=level,
        topics=[{"name": topic, "partitions": parts}],
    )
    found = [(p.partition_index, name_of(p.error_code)) for p in answer.topics[0].partitions]
    assert found == [(0, "UNKNOWN_SERVER_ERROR"), (9, "UNKNOWN_SERVER_ERROR")]


@pytest.mark.parametrize("limit", [-1, -(1 << 31)])
@pytest.mark.parametrize("field", ["max_bytes", "partition_max_bytes"])
@pytest.mark.parametrize("version", [4, 6, 7, 12, 13, 18])
def test_a_fetch_of_fewer_than_no_bytes(
    wire: Wire, topic: str, version: int, field: str, limit: int
) -> None:
    calls.produced(wire, topic, batch.build())
    name: Any = calls.topic_metadata(wire, topic).topic_id if version >= 13 else topic

    def fetched(offset: int) -> tuple[str, int]:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1000}
        more = {}
        if field == "max_bytes":
            more = {"max_bytes": limit}
        else:
            part["partition_max_bytes"] = limit
        answer = wire.call("Fetch", version, **calls.fetch_fields({name: [part]}, **more))
        if version >= 7:
            assert answer.error_code == 0
        (found,) = answer.responses[0].partitions
        assert found.records == b""
        return name_of(found.error_code), found.high_watermark

    assert fetched(0) == ("UNKNOWN_SERVER_ERROR", NOTHING_KNOWN)
    assert fetched(1) == ("NONE", 1)
    assert fetched(2) == ("OFFSET_OUT_OF_RANGE", NOTHING_KNOWN)


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_of_a_partition_that_is_named_twice(
    wire: Wire, new_topic: MakeTopic, version: int
) -> None:
    topic = new_topic(3)

    def ask(*entries: list[int]) -> dict[int, str]:
        topics = [
            {"name": topic, "partitions": [{"partition_index": i, "timestamp": -1} for i in entry]}
            for entry in entries
        ]
        answer = wire.call("ListOffsets", version, replica_id=-1, topics=topics)
        (found,) = answer.topics
        assert len({p.partition_index for p in found.partitions}) == len(found.partitions)
        return {p.partition_index: name_of(p.error_code) for p in found.partitions}

    assert ask([0, 1, 0]) == {0: "INVALID_REQUEST", 1: "NONE"}
    assert ask([0, 1], [2, 1]) == {0: "NONE", 1: "INVALID_REQUEST", 2: "NONE"}
    assert ask([0], [0], [0]) == {0: "INVALID_REQUEST"}
    assert ask([9, 9]) == {9: "INVALID_REQUEST"}


@pytest.mark.parametrize(
    ("producer_id", "epoch", "expected"),
    [
        (-1, 0, "UNKNOWN_SERVER_ERROR"),
        (4711, -1, "UNKNOWN_SERVER_ERROR"),
        (-1, -1, "UNKNOWN_SERVER_ERROR"),
        (-5, 0, "NONE"),
    ],
)
@pytest.mark.parametrize("version", [1, 2])
def test_a_marker_of_no_producer(
    wire: Wire, topic: str, version: int, producer_id: int, epoch: int, expected: str
) -> None:
    marker = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": True,
        "topics": [{"name": topic, "partition_indexes": [0, 9]}],
    }
    answer = wire.call("WriteTxnMarkers", version, markers=[marker])
    results = {
        p.partition_index: name_of(p.error_code) for p in answer.markers[0].topics[0].partitions
    }
    assert results == {0: expected, 9: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert calls.list_offset(wire, topic, -1).offset == (1 if expected == "NONE" else 0)


@pytest.mark.parametrize("version", range(8, 14))
def test_operations_on_a_topic_that_is_missing(wire: Wire, topic: str, version: int) -> None:
    names = ["no-such-topic", "a b", "__share_group_state", topic]
    for asked in (True, False):
        answer = wire.call(
            "Metadata",
            version,
            topics=[{"name": name} for name in names],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=asked,
        )
        operations = {t.topic_authorized_operations for t in answer.topics}
        assert len(operations) == 1
        assert (operations == {NOT_ASKED}) is not asked


@pytest.mark.parametrize("version", range(1, 6))
def test_sizes_of_partitions_that_are_not_there(
    wire: Wire, new_topic: MakeTopic, version: int
) -> None:
    topic = new_topic(2)

    def ask(*topics: tuple[str, list[int]]) -> list[tuple[str, list[int]]]:
        asked = [{"topic": name, "partitions": indexes} for name, indexes in topics]
        (result,) = wire.call("DescribeLogDirs", version, topics=asked).results
        assert result.error_code == 0
        return [(t.name, sorted(p.partition_index for p in t.partitions)) for t in result.topics]

    assert ask((topic, [0, 9, -1])) == [(topic, [0])]
    assert ask((topic, [9])) == []
    assert ask((topic, [])) == []
    assert ask(("no-such-topic", [0])) == []
    assert ask((topic, [0, 0])) == [(topic, [0])]
    assert ask((topic, [1]), (topic, [0])) == [(topic, [0, 1])]
