"""What a request names again, and what it names too much of."""

from __future__ import annotations

from collections.abc import Callable

from compat_tests.conftest import SETTINGS, MakeTopic
from compat_tests.raw import calls
from compat_tests.raw.errors import name_of
from compat_tests.raw.wire import Wire

MOST = 10_000
"""Partitions that one request makes (ReplicationControlManager.MAX_PARTITIONS_PER_BATCH)."""


def test_a_partition_named_again_has_one_size(wire: Wire, new_topic: MakeTopic) -> None:
    topic = new_topic(3)
    asked = [{"topic": topic, "partitions": [0, 1, 0]}, {"topic": topic, "partitions": [1, 2]}]
    (folder,) = wire.call("DescribeLogDirs", 4, topics=asked).results
    (told,) = folder.topics
    assert sorted(one.partition_index for one in told.partitions) == [0, 1, 2]


def test_a_topic_named_again_is_told_once(wire: Wire, topic: str) -> None:
    assert len(calls.metadata(wire, topic, topic, "nowhere", "nowhere").topics) == 2
    topic_id = calls.topic_metadata(wire, topic).topic_id
    named = {"topic_id": topic_id, "name": None}
    answer = wire.call("Metadata", 12, topics=[named, named], allow_auto_topic_creation=False)
    assert [one.name for one in answer.topics] == [topic]


def test_a_partition_named_again_has_no_offset(wire: Wire, new_topic: MakeTopic) -> None:
    topic = new_topic(2)
    asked = [
        {"name": topic, "partitions": [{"partition_index": index, "timestamp": -1}]}
        for index in (0, 1, 0)
    ]
    (told,) = wire.call("ListOffsets", 9, replica_id=-1, topics=asked).topics
    found = {one.partition_index: name_of(one.error_code) for one in told.partitions}
    assert found == {0: "INVALID_REQUEST", 1: "NONE"}


def test_records_are_deleted_up_to_where_a_request_says_last(
    wire: Wire, new_topic: MakeTopic
) -> None:
    topic = new_topic(1)
    asked = [
        {"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}
        for offset in (7, 0)
    ]
    (told,) = wire.call("DeleteRecords", 2, timeout_ms=5000, topics=asked).topics
    ((index, code, low),) = [
        (one.partition_index, name_of(one.error_code), one.low_watermark) for one in told.partitions
    ]
    assert (index, code, low) == (0, "NONE", 0)


def test_a_request_for_too_many_partitions_makes_no_topic(
    wire: Wire, new_name: Callable[[], str]
) -> None:
    names = [new_name() for _ in range(3)]
    wanted = [
        {"name": name, "num_partitions": count, "replication_factor": 1}
        for name, count in zip(names, (MOST // 2, MOST // 2, 1), strict=True)
    ]
    answer = wire.call("CreateTopics", 7, timeout_ms=20_000, topics=wanted)
    assert {name_of(one.error_code) for one in answer.topics} == {"POLICY_VIOLATION"}
    told = calls.metadata(wire, *names).topics
    assert {name_of(one.error_code) for one in told} == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_too_many_topics_to_be_made_by_asking_are_not_made(
    wire: Wire, new_name: Callable[[], str]
) -> None:
    prefix = new_name()
    count = MOST // int(SETTINGS["num.partitions"]) + 1
    names = [f"{prefix}-{number}" for number in range(count)]
    for _ in range(2):
        told = calls.metadata(wire, *names, create=True).topics
        assert len(told) == count
        assert {name_of(one.error_code) for one in told} == {"UNKNOWN_TOPIC_OR_PARTITION"}
