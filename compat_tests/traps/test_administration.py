"""Administration: facts 48 to 50."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.conftest import SETTINGS, MakeTopic
from compat_tests.harness.waiting import eventually
from compat_tests.raw import calls
from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire

NewName = Callable[[], str]
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
UNASKED = -(2**31)


def create(wire: Wire, version: int, *, validate_only: bool = False, **topic: Any) -> Struct:
    fields = {"num_partitions": 1, "replication_factor": 1, **topic}
    answer = wire.call(
        "CreateTopics", version, timeout_ms=5000, topics=[fields], validate_only=validate_only
    )
    return answer.topics[0]  # type: ignore[no-any-return]


def exists(wire: Wire, name: str) -> bool:
    return bool(calls.topic_metadata(wire, name).error_code == 0)


@pytest.mark.parametrize("version", [4, 5, 6, 7])
def test_trap_48_minus_one_means_the_brokers_default(
    wire: Wire, new_name: NewName, version: int
) -> None:
    name = new_name()
    made = create(wire, version, name=name, num_partitions=-1, replication_factor=-1)
    assert name_of(made.error_code) == "NONE"
    assert len(calls.ready_topic(wire, name).partitions) == int(SETTINGS["num.partitions"])
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        configs = {c.name: c.value for c in made.configs}
        assert configs["cleanup.policy"] == "delete"
    if version >= 7:
        assert made.topic_id == calls.topic_metadata(wire, name).topic_id


@pytest.mark.parametrize("version", [2, 3])
def test_trap_48_before_v4_minus_one_is_refused_or_taken_as_default(
    wire: Wire, new_name: NewName, version: int
) -> None:
    made = create(wire, version, name=new_name(), num_partitions=-1, replication_factor=1)
    assert name_of(made.error_code) == "NONE"


@pytest.mark.parametrize("version", range(2, 8))
def test_trap_48_validate_only_checks_and_creates_nothing(
    wire: Wire, new_name: NewName, new_topic: MakeTopic, version: int
) -> None:
    name = new_name()
    assert name_of(create(wire, version, name=name, validate_only=True).error_code) == "NONE"
    assert not exists(wire, name)
    taken = create(wire, version, name=new_topic(), validate_only=True)
    assert name_of(taken.error_code) == "TOPIC_ALREADY_EXISTS"
    bad = [{"name": "retention.ms", "value": "soon"}]
    wrong = create(wire, version, name=name, configs=bad, validate_only=True)
    assert name_of(wrong.error_code) == "INVALID_CONFIG"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"replication_factor": 2}, "INVALID_REPLICATION_FACTOR"),
        ({"replication_factor": 0}, "INVALID_REPLICATION_FACTOR"),
        ({"num_partitions": 0}, "INVALID_PARTITIONS"),
        ({"num_partitions": -2}, "INVALID_PARTITIONS"),
        ({"configs": [{"name": "no.such.key", "value": "1"}]}, "INVALID_CONFIG"),
        ({"configs": [{"name": "compression.type", "value": "brotli"}]}, "INVALID_CONFIG"),
        ({"configs": [{"name": "retention.ms", "value": None}]}, "INVALID_CONFIG"),
        (
            {"assignments": [{"partition_index": 0, "broker_ids": [1]}]},
            "INVALID_REQUEST",
        ),
        (
            {
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": [99]}],
            },
            "INVALID_REPLICA_ASSIGNMENT",
        ),
    ],
)
def test_trap_48_what_create_topics_refuses(
    wire: Wire, new_name: NewName, change: dict[str, Any], expected: str
) -> None:
    name = new_name()
    made = create(wire, 7, name=name, **change)
    assert name_of(made.error_code) == expected
    assert made.error_message
    assert not exists(wire, name)


def test_trap_48_a_name_twice_in_one_request_is_refused(wire: Wire, new_name: NewName) -> None:
    name = new_name()
    one = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answer = wire.call("CreateTopics", 7, timeout_ms=5000, topics=[one, one])
    assert {name_of(t.error_code) for t in answer.topics} == {"INVALID_REQUEST"}
    assert not exists(wire, name)


def test_trap_48_assignments_instead_of_counts(wire: Wire, new_name: NewName) -> None:
    name = new_name()
    (node,) = [b.node_id for b in wire.call("Metadata", 12, topics=[]).brokers]
    parts = [{"partition_index": p, "broker_ids": [node]} for p in (1, 0)]
    made = create(wire, 7, name=name, num_partitions=-1, replication_factor=-1, assignments=parts)
    assert name_of(made.error_code) == "NONE"
    assert len(calls.ready_topic(wire, name).partitions) == 2


def describe(
    wire: Wire, kind: int, name: str, keys: list[str] | None = None, *, version: int = 4
) -> Struct:
    answer = wire.call(
        "DescribeConfigs",
        version,
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        include_synonyms=True,
        **({"include_documentation": True} if version >= 3 else {}),
    )
    return answer.results[0]  # type: ignore[no-any-return]


def alter(wire: Wire, kind: int, name: str, *changes: tuple[str, int, str | None]) -> str:
    configs = [{"name": k, "config_operation": op, "value": v} for k, op, v in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = wire.call("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)
    return name_of(answer.responses[0].error_code)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_trap_49_describe_configs_of_a_topic(
    wire: Wire, new_topic: MakeTopic, version: int
) -> None:
    topic = new_topic(retention_ms=1234567, max_message_bytes=4321)
    described = describe(wire, TOPIC, topic, version=version)
    assert name_of(described.error_code) == "NONE"
    configs = {c.name: c for c in described.configs}
    assert len(configs) >= 30, "null keys: all of them"
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source) == ("1234567", DYNAMIC_TOPIC)
    assert (retention.read_only, retention.is_sensitive) == (False, False)
    assert retention.synonyms[0].name == "retention.ms"
    assert retention.synonyms[0].source == DYNAMIC_TOPIC
    largest = [(s.name, s.value, s.source) for s in configs["max.message.bytes"].synonyms]
    assert largest == [
        ("max.message.bytes", "4321", DYNAMIC_TOPIC),
        ("message.max.bytes", "1048588", DEFAULT),
    ]
    assert configs["cleanup.policy"].config_source == DEFAULT
    if version >= 3:
        kinds = {c.name: c.config_type for c in described.configs}
        assert kinds["retention.ms"] == 5  # LONG
        assert kinds["cleanup.policy"] == 7  # LIST
        assert kinds["preallocate"] == 1  # BOOLEAN
        assert kinds["max.message.bytes"] == 3  # INT
        assert kinds["min.cleanable.dirty.ratio"] == 6  # DOUBLE
        assert kinds["compression.type"] == 2  # STRING
        assert retention.documentation


def test_trap_49_describe_configs_with_keys_and_without(wire: Wire, topic: str) -> None:
    asked = ["retention.ms", "segment.bytes", "no.such.key"]
    described = describe(wire, TOPIC, topic, asked)
    assert {c.name for c in described.configs} == {"retention.ms", "segment.bytes"}
    assert len(describe(wire, TOPIC, topic, []).configs) >= 30, "no keys: all, as with null"
    missing = describe(wire, TOPIC, topic + "-missing")
    assert name_of(missing.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_trap_49_describe_configs_of_the_broker(wire: Wire) -> None:
    node = str(wire.call("Metadata", 12, topics=[]).controller_id)
    configs = {c.name: c for c in describe(wire, BROKER, node).configs}
    partitions = configs["num.partitions"]
    assert (partitions.value, partitions.config_source) == ("3", STATIC_BROKER)
    assert configs["log.retention.hours"].value == "168"
    assert "delete.topic.enable" in configs, "UIs ask for it"
    assert len(configs) > 150
    assert name_of(describe(wire, BROKER, "4711").error_code) == "INVALID_REQUEST"


def test_trap_49_incremental_alter_configs_of_a_topic(wire: Wire, topic: str) -> None:
    def value(key: str) -> tuple[str, int]:
        (config,) = describe(wire, TOPIC, topic, [key]).configs
        return config.value, config.config_source

    def has(key: str, expected: tuple[str, int]) -> bool:
        return value(key) == expected

    for key, operation, given, expected in [
        ("retention.ms", SET, "1000", ("1000", DYNAMIC_TOPIC)),
        ("retention.ms", DELETE, None, ("604800000", DEFAULT)),
        ("cleanup.policy", APPEND, "compact", ("delete,compact", DYNAMIC_TOPIC)),
        ("cleanup.policy", SUBTRACT, "delete", ("compact", DYNAMIC_TOPIC)),
    ]:
        assert alter(wire, TOPIC, topic, (key, operation, given)) == "NONE"
        # Kafka answers a moment before the broker has heard of it
        eventually(functools.partial(has, key, expected), f"{key} is {expected}")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("no.such.key", SET, "1"), "INVALID_CONFIG"),
        (("retention.ms", SET, "soon"), "INVALID_CONFIG"),
        (("retention.ms", APPEND, "1"), "INVALID_CONFIG"),
        (("retention.ms", SET, None), "INVALID_REQUEST"),
        (("cleanup.policy", SET, "burn"), "INVALID_CONFIG"),
        (("max.message.bytes", SET, "-5"), "INVALID_CONFIG"),
    ],
)
def test_trap_49_what_incremental_alter_configs_refuses(
    wire: Wire, topic: str, change: tuple[str, int, str | None], expected: str
) -> None:
    before = {c.name: c.value for c in describe(wire, TOPIC, topic).configs}
    assert alter(wire, TOPIC, topic, ("segment.ms", SET, "77777"), change) == expected
    after = {c.name: c.value for c in describe(wire, TOPIC, topic).configs}
    assert before == after, "all or nothing"


def test_trap_49_incremental_alter_configs_of_a_broker_and_a_missing_topic(
    wire: Wire, topic: str
) -> None:
    change = ("retention.ms", SET, "1000")
    assert alter(wire, TOPIC, topic + "-missing", change) == "UNKNOWN_TOPIC_OR_PARTITION"
    node = str(wire.call("Metadata", 12, topics=[]).controller_id)
    assert alter(wire, BROKER, node, ("log.retention.ms", SET, "500000000")) == "NONE"

    def retention() -> str:
        (config,) = describe(wire, TOPIC, topic, ["retention.ms"]).configs
        return str(config.value)

    try:
        eventually(lambda: retention() == "500000000", "topics without a value of their own follow")
    finally:
        assert alter(wire, BROKER, node, ("log.retention.ms", DELETE, None)) == "NONE"
    eventually(lambda: retention() == "604800000", "and follow back")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_trap_49_alter_configs_replaces_everything(
    wire: Wire, new_topic: MakeTopic, version: int
) -> None:
    topic = new_topic(retention_ms=1000, segment_ms=2000)
    configs = [{"name": "retention.ms", "value": "3000"}]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    answer = wire.call("AlterConfigs", version, resources=[resource], validate_only=False)
    assert name_of(answer.responses[0].error_code) == "NONE"
    values = {c.name: c.value for c in describe(wire, TOPIC, topic).configs}
    assert (values["retention.ms"], values["segment.ms"]) == ("3000", "604800000")


def test_trap_49_list_config_resources(wire: Wire, topic: str) -> None:
    answer = wire.call("ListConfigResources", 1, resource_types=[TOPIC])
    assert answer.error_code == 0
    assert topic in [r.resource_name for r in answer.config_resources]
    assert {r.resource_type for r in answer.config_resources} == {TOPIC}
    every = wire.call("ListConfigResources", 1, resource_types=[])
    assert {TOPIC, BROKER} <= {r.resource_type for r in every.config_resources}


def test_trap_50_describe_topic_partitions(wire: Wire, new_topic: MakeTopic) -> None:
    topics = sorted([new_topic(3), new_topic(2)])
    asked = [{"name": name} for name in topics]
    answer = wire.call("DescribeTopicPartitions", 0, topics=asked, response_partition_limit=2000)
    assert [t.name for t in answer.topics] == topics
    assert answer.next_cursor is None
    for found in answer.topics:
        assert found.error_code == 0
        assert found.topic_id == calls.topic_metadata(wire, found.name).topic_id
        assert found.topic_authorized_operations == UNASKED or found.topic_authorized_operations > 0
        for part in found.partitions:
            assert part.leader_id in part.replica_nodes
            assert part.isr_nodes == part.replica_nodes
            assert part.offline_replicas == []


def test_trap_50_describe_topic_partitions_in_pages(wire: Wire, new_topic: MakeTopic) -> None:
    topics = sorted([new_topic(3), new_topic(2)])
    asked = [{"name": name} for name in topics]
    seen: list[tuple[str, int]] = []
    cursor: dict[str, Any] | None = None
    for _ in range(5):
        page = wire.call(
            "DescribeTopicPartitions", 0, topics=asked, response_partition_limit=2, cursor=cursor
        )
        seen += [(t.name, p.partition_index) for t in page.topics for p in t.partitions]
        if page.next_cursor is None:
            break
        cursor = {
            "topic_name": page.next_cursor.topic_name,
            "partition_index": page.next_cursor.partition_index,
        }
    counts = [len([1 for name, _ in seen if name == t]) for t in topics]
    assert sorted(counts) == [2, 3]
    assert len(set(seen)) == 5


def test_trap_50_describe_topic_partitions_of_a_missing_topic(
    wire: Wire, new_name: NewName
) -> None:
    name = new_name()
    answer = wire.call("DescribeTopicPartitions", 0, topics=[{"name": name}])
    (found,) = answer.topics
    assert name_of(found.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert (found.name, found.partitions) == (name, [])


@pytest.mark.parametrize("version", [8, 10, 12, 13])
def test_trap_50_authorized_operations_only_when_asked(
    wire: Wire, topic: str, version: int
) -> None:
    asked = {"topics": [{"name": topic}]}
    answer = wire.call("Metadata", version, **asked)
    assert answer.topics[0].topic_authorized_operations == UNASKED
    answer = wire.call("Metadata", version, **asked, include_topic_authorized_operations=True)
    assert answer.topics[0].topic_authorized_operations > 0
    answer = wire.call("DescribeCluster", 0)
    assert answer.cluster_authorized_operations == UNASKED
    answer = wire.call("DescribeCluster", 0, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations > 0


def test_trap_50_list_partition_reassignments_is_there_and_empty(wire: Wire) -> None:
    """kafka-topics --describe asks for it; without it the tool fails."""
    answer = wire.call("ListPartitionReassignments", 0, timeout_ms=5000, topics=None)
    assert (name_of(answer.error_code), answer.topics) == ("NONE", [])
