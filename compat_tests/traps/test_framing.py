"""Framing and versions: facts 1 to 10."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from compat_tests.conftest import Connect
from compat_tests.raw import batch, calls, schema
from compat_tests.raw.batch import Record
from compat_tests.raw.errors import CODES
from compat_tests.raw.wire import Wire

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 10, 11, 12, 13, 14
OFFSET_COMMIT, OFFSET_FETCH, END_TXN = 8, 9, 26
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69


@pytest.mark.parametrize("client_id", [None, "", "ключ-é", "x" * 300])
def test_trap_01_flexible_header_keeps_an_int16_client_id(
    connect: Connect, client_id: str | None
) -> None:
    wire = connect(client_id=client_id)
    assert wire.call("Metadata", 12, topics=[]).brokers


def test_trap_01_tagged_fields_of_the_header_come_after_the_client_id(wire: Wire) -> None:
    tagged = b"\x02" + b"\x05\x03abc" + b"\x63\x00"  # two fields: 5 = abc, 99 = empty
    header = struct.pack(">hhi", 3, 12, 77) + schema.string("raw") + tagged
    wire.send_frame(header + schema.request("Metadata").encode(12, {"topics": []}))
    correlation_id, answer = wire.receive("Metadata", 12)
    assert correlation_id == 77
    assert answer.brokers


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_trap_02_api_versions_is_answered_with_header_v0(wire: Wire, version: int) -> None:
    fields = {"client_software_name": "raw", "client_software_version": "1"}
    wire.send("ApiVersions", version, **(fields if version >= 3 else {}))
    frame = wire.receive_frame()
    # straight after the correlation id: no tagged fields, error 0
    assert frame[4:6] == b"\0\0"
    answer = schema.response("ApiVersions").decode(version, frame[4:])
    assert {api.api_key for api in answer.api_keys} >= {PRODUCE, FETCH, 3, API_VERSIONS}


@pytest.mark.parametrize("version", [5, 6, 127, 32767])
def test_trap_03_a_newer_api_versions_gets_error_35_in_the_v0_body(
    wire: Wire, version: int
) -> None:
    body = schema.request("ApiVersions").encode(
        4, {"client_software_name": "raw", "client_software_version": "1"}
    )
    wire.send_frame(wire.header(API_VERSIONS, version, 5, flexible=True) + body)
    frame = wire.receive_frame()
    assert frame[:4] == struct.pack(">i", 5)
    answer = schema.response("ApiVersions").decode(0, frame[4:])
    assert answer.error_code == CODES["UNSUPPORTED_VERSION"]
    (own,) = answer.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (API_VERSIONS, 0, 4)
    # and the connection lives: the client tries again with the maximum
    assert calls.api_ranges(wire)[API_VERSIONS] == (0, 4)


@pytest.mark.parametrize(
    ("key", "version"),
    [(3, 14), (3, 32767), (1, 3), (1, 19), (2, 0), (19, 1), (19, 8), (32, 0), (999, 0), (-1, 0)],
)
def test_trap_04_another_version_outside_the_range_closes_the_connection(
    connect: Connect, key: int, version: int
) -> None:
    wire = connect()
    wire.send_frame(wire.header(key, version, 1, flexible=version > 3) + b"\0" * 64)
    assert wire.is_closed()
    assert connect().call("Metadata", 12, topics=[]).brokers, "only that connection"


def test_trap_05_produce_is_advertised_from_0_and_served_from_3(
    connect: Connect, topic: str
) -> None:
    wire = connect()
    ranges = calls.api_ranges(wire)
    assert ranges[PRODUCE][0] == 0
    assert ranges[PRODUCE][1] >= 7, "librdkafka's zstd"
    assert ranges[FETCH][1] >= 10, "librdkafka's zstd"
    calls.produced(wire, topic, batch.build(), version=3)
    fields = calls.produce_fields(topic, batch.build())
    wire.send("Produce", 2, **fields)
    assert wire.is_closed()


def test_trap_06_features_that_librdkafka_infers_from_the_list_are_whole(wire: Wire) -> None:
    ranges = calls.api_ranges(wire)
    assert FIND_COORDINATOR in ranges
    groups = {JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP, OFFSET_COMMIT, OFFSET_FETCH}
    assert groups <= ranges.keys() or not groups & ranges.keys(), "groups: all of it or nothing"
    if groups <= ranges.keys():
        assert ranges[OFFSET_COMMIT][0] <= 2 <= ranges[OFFSET_COMMIT][1]
        assert ranges[OFFSET_FETCH][0] <= 1 <= ranges[OFFSET_FETCH][1]
    if CONSUMER_GROUP_HEARTBEAT in ranges:
        assert ranges[OFFSET_COMMIT][1] >= 9
        assert ranges[OFFSET_FETCH][1] >= 9
    levels = calls.finalized_features(wire)
    if levels.get("group.version", 0) >= 1:
        assert CONSUMER_GROUP_DESCRIBE in ranges


def test_trap_07_announced_features_are_the_ones_that_work(wire: Wire) -> None:
    answer = wire.call("ApiVersions", 4, client_software_name="raw", client_software_version="1")
    ranges = {api.api_key: api.max_version for api in answer.api_keys}
    finalized = {f.name: f.max_version_level for f in answer.finalized_features}
    supported = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
    assert "metadata.version" in finalized, "tools read the broker's version from it"
    assert answer.finalized_features_epoch >= 0
    for name, level in finalized.items():
        first, last = supported[name]
        assert first <= level <= last
    # what a level promises to clients, by the APIs they then use without asking
    if finalized.get("transaction.version", 0) >= 1:
        assert ranges.get(END_TXN, -1) >= 4
    if finalized.get("transaction.version", 0) >= 2:
        assert ranges[END_TXN] >= 5
        assert ranges[PRODUCE] >= 12
    if finalized.get("group.version", 0) >= 1:
        assert CONSUMER_GROUP_HEARTBEAT in ranges
    if finalized.get("share.version", 0) >= 1:
        assert {76, 77, 78, 79} <= ranges.keys()
    if finalized.get("streams.version", 0) >= 1:
        assert {88, 89} <= ranges.keys()


# The lowest version that a Java 4.x client sends of each API.
JAVA_4_MINIMA = {
    **{0: 3, 1: 4, 2: 1, 3: 0, 8: 2, 9: 1, 10: 0, 11: 0, 12: 0, 13: 0, 14: 0, 15: 0, 16: 0},
    **{17: 0, 18: 0, 19: 2, 20: 1, 21: 0, 22: 0, 23: 2, 24: 0, 25: 0, 26: 0, 28: 0, 29: 1},
    **{30: 1, 31: 1, 32: 1, 33: 0, 34: 1, 35: 1, 36: 0, 37: 0, 42: 0, 43: 0, 44: 0, 45: 0},
    **{46: 0, 47: 0, 48: 0, 49: 0, 50: 0, 51: 0, 60: 0, 61: 0, 65: 0, 66: 0, 75: 0},
}


def test_trap_08_every_range_reaches_the_minimum_of_java_4(wire: Wire) -> None:
    ranges = calls.api_ranges(wire)
    for key, minimum in JAVA_4_MINIMA.items():
        if key in ranges:
            assert ranges[key][1] >= minimum, key
    assert {0, 1, 2, 3, 10, 18, 19, 20, 21, 22, 23, 32, 35, 37, 44, 60, 75} <= ranges.keys()


def test_trap_09_unknown_tagged_fields_are_skipped_at_every_level(wire: Wire, topic: str) -> None:
    unknown = {"_tags": {77: b"whatever", 5000: b""}}
    answer = wire.call("Metadata", 12, topics=[{"name": topic, **unknown}], **unknown)
    assert [t.name for t in answer.topics] == [topic]
    part = {**calls.fetch_partition(0), **unknown}
    answer = wire.call("Fetch", 12, **calls.fetch_fields({topic: [part]}), **unknown)
    assert answer.responses[0].partitions[0].error_code == 0


@pytest.mark.parametrize("version", range(4, 13))
def test_trap_09_records_of_an_empty_answer_are_empty_and_never_null(
    wire: Wire, topic: str, version: int
) -> None:
    at_end = calls.fetch(wire, topic, 0, version=version)
    assert (at_end.error_code, at_end.records) == (0, b"")
    missing = calls.fetch(wire, topic, 0, partition=9, version=version)
    assert missing.error_code == CODES["UNKNOWN_TOPIC_OR_PARTITION"]
    assert missing.records == b""
    beyond = calls.fetch(wire, topic, 99, version=version)
    assert (beyond.error_code, beyond.records) == (CODES["OFFSET_OUT_OF_RANGE"], b"")


def test_trap_09_compact_null_is_0_and_compact_empty_is_1(wire: Wire, topic: str) -> None:
    header = wire.header(3, 12, 1, flexible=True)
    flags = b"\0" * 2 + b"\0"  # no creation, no operations, no tagged fields
    wire.send_frame(header + b"\x00" + flags)
    everything = wire.receive("Metadata", 12)[1]
    assert topic in [t.name for t in everything.topics]
    wire.send_frame(header + b"\x01" + flags)
    assert wire.receive("Metadata", 12)[1].topics == []


def test_trap_10_answers_and_effects_keep_the_order_of_the_requests(wire: Wire, topic: str) -> None:
    producer_id, epoch = calls.new_producer(wire)
    for i in range(5):
        data = batch.build(
            [Record(b"%d" % i)], producer_id=producer_id, producer_epoch=epoch, base_sequence=i
        )
        calls.send_produce(wire, topic, data)
    wire.send("ListOffsets", 9, topics=[_latest(topic)])
    wire.send("Metadata", 12, topics=[])
    assert [calls.received_produce(wire).base_offset for _ in range(5)] == [0, 1, 2, 3, 4]
    listed = wire.receive("ListOffsets", 9)[1]
    assert listed.topics[0].partitions[0].offset == 5, "the five before it were done"
    assert wire.receive("Metadata", 12)[1].brokers
    values = [b.records[0].value for b in calls.fetched_batches(wire, topic)]
    assert values == [b"0", b"1", b"2", b"3", b"4"]


def test_trap_10_a_request_behind_a_long_poll_is_answered_after_it(wire: Wire, topic: str) -> None:
    part = calls.fetch_partition(0)
    started = time.monotonic()
    poll = wire.send(
        "Fetch", 12, **calls.fetch_fields({topic: [part]}, max_wait_ms=400, min_bytes=1)
    )
    after = wire.send("Metadata", 12, topics=[])
    assert wire.receive("Fetch", 12)[0] == poll
    assert time.monotonic() - started > 0.35
    assert wire.receive("Metadata", 12)[0] == after


def _latest(topic: str) -> dict[str, object]:
    return {"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}


#: Fields without which a request of nothing is not answered, or not at once.
ASKED: dict[str, dict[str, Any]] = {
    "ApiVersions": {"client_software_name": "raw", "client_software_version": "1"},
    "Produce": {"acks": -1, "timeout_ms": 1000},
    "Fetch": {"max_wait_ms": 0},
    "AddPartitionsToTxn": {"transactions": [{"transactional_id": "none", "topics": []}]},
}
APIS = (
    *("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch"),
    *("FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups"),
    *("ListGroups", "ApiVersions", "CreateTopics", "DeleteTopics", "DeleteRecords"),
    *("InitProducerId", "OffsetForLeaderEpoch", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"),
    *("WriteTxnMarkers", "TxnOffsetCommit", "DescribeConfigs", "AlterConfigs"),
    *("DescribeLogDirs", "CreatePartitions", "DeleteGroups", "IncrementalAlterConfigs"),
    *("ListPartitionReassignments", "OffsetDelete", "DescribeCluster", "DescribeProducers"),
    *("DescribeTransactions", "ListTransactions", "ListConfigResources", "DescribeTopicPartitions"),
)


@pytest.mark.parametrize("api", APIS)
def test_bytes_behind_a_message_are_ignored_in_every_request(connect: Connect, api: str) -> None:
    """librdkafka sends four behind ApiVersions v0 (before 1.4.0), others an older layout's rest."""
    wire = connect()
    message = schema.request(api)
    first, last = calls.api_ranges(wire)[message.key]
    for version in range(3 if api == "Produce" else first, last + 1):
        wire.send_frame(wire.encode(api, version, 99, **ASKED.get(api, {})) + b"\0\1\2\xff")
        correlation_id, _ = wire.receive(api, version)
        assert correlation_id == 99, f"{api} v{version}"


def test_a_null_array_of_four_bytes_in_flexible_metadata_means_all_topics(
    connect: Connect, topic: str
) -> None:
    """librdkafka asks for all topics with a null array of four bytes where the format has one.

    Read as the format says, the request ends three bytes early (list_topics, up to 2.16 at least).
    """
    wire = connect()
    header = wire.header(3, 13, 9, flexible=True)
    wire.send_frame(header + b"\x00\x00\x00\x00" + b"\x01\x00\x00")
    correlation_id, answer = wire.receive("Metadata", 13)
    assert correlation_id == 9
    assert topic in [t.name for t in answer.topics]


@pytest.mark.parametrize("client_id", [b"\xff\xfe", b"caf\xe9", b"a\xc3", b"line\nend\x00"])
@pytest.mark.parametrize("version", [1, 12])
def test_a_client_id_that_is_not_utf_8_is_taken(
    connect: Connect, client_id: bytes, version: int
) -> None:
    wire = connect()
    flexible = version >= 9
    header = struct.pack(">hhih", 3, version, 4, len(client_id)) + client_id + b"\0" * flexible
    body = schema.request("Metadata").encode(version, {"topics": []})
    wire.send_frame(header + body)
    correlation_id, answer = wire.receive("Metadata", version)
    assert correlation_id == 4
    assert answer.brokers


def test_a_name_that_is_not_utf_8_has_its_bytes_replaced(wire: Wire, group: str) -> None:
    def asked(name: bytes) -> bytes:
        return struct.pack(">ih", 1, len(name)) + name

    wire.send_frame(wire.header(3, 8, 1, flexible=False) + asked(b"a\xffb") + b"\1\0\0")
    (found,) = wire.receive("Metadata", 8)[1].topics
    assert (found.name, found.error_code) == ("a\ufffdb", CODES["INVALID_TOPIC_EXCEPTION"])
    name = group.encode() + b"\xc3("
    wire.send_frame(wire.header(15, 4, 2, flexible=False) + asked(name) + b"\0")
    (described,) = wire.receive("DescribeGroups", 4)[1].groups
    assert described.group_id == group + "\ufffd("


def test_a_group_whose_name_is_not_utf_8_keeps_offsets(wire: Wire, group: str, topic: str) -> None:
    name = group.encode() + b"\xe9"
    marked = "<group>"
    commit = schema.request("OffsetCommit").encode(
        7,
        {
            "group_id": marked,
            "generation_id_or_member_epoch": -1,
            "topics": [
                {
                    "name": topic,
                    "partitions": [{"partition_index": 0, "committed_offset": 7}],
                }
            ],
        },
    )
    raw = struct.pack(">h", len(name)) + name
    wire.send_frame(
        wire.header(OFFSET_COMMIT, 7, 1, flexible=False)
        + commit.replace(schema.string(marked), raw, 1)
    )
    committed = wire.receive("OffsetCommit", 7)[1]
    assert committed.topics[0].partitions[0].error_code == 0
    asked = [{"name": topic, "partition_indexes": [0]}]
    fetched = wire.call("OffsetFetch", 5, group_id=group + "\ufffd", topics=asked)
    assert fetched.topics[0].partitions[0].committed_offset == 7
