"""CreateTopics, CreatePartitions, DeleteTopics: every check, and nothing done where one fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Client, Harness

from ottla.wire.api.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.errors import Error


def topic(name: str, partitions: int = 1, replicas: int = 1, **kw: Any) -> CreatableTopic:
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in kw.pop("configs", {}).items()
    ]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, configs=configs, **kw
    )


def assigned(*partitions: tuple[int, list[int]]) -> dict[str, Any]:
    return {
        "partitions": -1,
        "replicas": -1,
        "assignments": [
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in partitions
        ],
    }


def create(
    client: Client, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    results: list[CreatableTopicResult] = client.call(request, version).topics
    return results


def names(harness: Harness) -> list[str]:
    return [found.name for found in harness.broker.topics]


# ------------------------------------------------------------------------------------------- create


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_there_when_the_answer_is(
    harness: Harness, client: Client, version: int
) -> None:
    (made,) = create(client, topic("a", 3), version=version)
    assert (made.error_code, made.error_message) == (0, None)
    found = harness.broker.topics.get("a")
    assert found is not None
    assert len(found.partitions) == 3
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (3, 1)
        configs = {config.name: config for config in made.configs or []}
        assert len(configs) == 33
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == (
            "604800000",
            5,
        )
    if version >= 7:
        assert made.topic_id == found.topic_id
        assert made.topic_id != bytes(16)


def test_trap_48_minus_one_is_the_brokers_default(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "d", num_partitions="4", default_replication_factor="3")
    (made,) = create(harness.client(), topic("a", -1, -1))
    assert (made.num_partitions, made.replication_factor) == (4, 1)
    harness.store.close()


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (topic("e", 0), Error.INVALID_PARTITIONS),
        (topic("e", -2), Error.INVALID_PARTITIONS),
        (topic("e", 1, 0), Error.INVALID_REPLICATION_FACTOR),
        (topic("e", 1, -2), Error.INVALID_REPLICATION_FACTOR),
        (topic("e", 1, 2), Error.INVALID_REPLICATION_FACTOR),
        (topic("e", 10_001), Error.POLICY_VIOLATION),
        (topic("a b"), Error.INVALID_TOPIC_EXCEPTION),
        (topic("there"), Error.TOPIC_ALREADY_EXISTS),
        (topic("th.ere"), Error.NONE),
        (topic("__cluster_metadata"), Error.INVALID_REQUEST),
        (topic("e", **assigned((0, [1])) | {"partitions": 1}), Error.INVALID_REQUEST),
        (topic("e", **assigned((0, [1])) | {"replicas": 1}), Error.INVALID_REQUEST),
        (topic("e", **assigned((0, [2]))), Error.INVALID_REPLICA_ASSIGNMENT),
        (topic("e", **assigned((0, [1, 1]))), Error.INVALID_REPLICA_ASSIGNMENT),
        (topic("e", **assigned((0, []))), Error.INVALID_REPLICA_ASSIGNMENT),
        (topic("e", **assigned((1, [1]))), Error.INVALID_REPLICA_ASSIGNMENT),
        (topic("e", **assigned((0, [1]), (0, [1]))), Error.INVALID_REPLICA_ASSIGNMENT),
        (topic("e", **assigned((1, [1]), (0, [1]))), Error.NONE),
        (topic("e", configs={"retention_ms": "soon"}), Error.INVALID_CONFIG),
        (topic("e", configs={"retention_ms": None}), Error.INVALID_CONFIG),
        (topic("e", configs={"no_such": "1"}), Error.INVALID_CONFIG),
        (topic("e", configs={"internal_segment_bytes": "1"}), Error.INVALID_CONFIG),
        (topic("e", configs={"preallocate": "perhaps"}), Error.INVALID_CONFIG),
        (topic("e", configs={"remote_storage_enable": "true"}), Error.INVALID_CONFIG),
        (topic("e", configs={"preallocate": " FALSE"}), Error.NONE),
        (topic("e", configs={"cleanup_policy": "compact, delete"}), Error.NONE),
    ],
)
def test_what_create_topics_checks(
    harness: Harness, client: Client, wanted: CreatableTopic, error: Error
) -> None:
    harness.topic("there")
    before = names(harness)
    for validate_only in (True, False):
        (result,) = create(client, wanted, validate_only=validate_only)
        assert Error(result.error_code) is error
        if error is not Error.NONE:
            assert result.error_message
            assert names(harness) == before
            assert (result.num_partitions, result.configs) == (-1, [])
    assert (wanted.name in names(harness)) == (error in (Error.NONE, Error.TOPIC_ALREADY_EXISTS))


def test_trap_48_validate_only_makes_nothing_and_answers_as_if_it_had(
    harness: Harness, client: Client
) -> None:
    (made,) = create(client, topic("a", 2), validate_only=True)
    assert (made.error_code, made.num_partitions) == (0, 2)
    assert names(harness) == []


def test_one_bad_topic_does_not_keep_the_others_from_being_made(
    harness: Harness, client: Client
) -> None:
    results = create(client, topic("a"), topic("b", 0), topic("c"))
    assert [Error(result.error_code) for result in results] == [
        Error.NONE,
        Error.INVALID_PARTITIONS,
        Error.NONE,
    ]
    assert names(harness) == ["a", "c"]


def test_a_name_twice_in_a_request_is_refused(harness: Harness, client: Client) -> None:
    (result,) = create(client, topic("a"), topic("a", 2))
    assert Error(result.error_code) is Error.INVALID_REQUEST
    assert names(harness) == []


def test_two_requests_in_flight_cannot_both_make_a_topic(harness: Harness) -> None:
    one, two = harness.client(), harness.client()
    for client in (one, two):  # both arrive in one turn of the loop, before its commit
        client.connection.feed(client.frame(CreateTopicsRequest(topics=[topic("a")]), 7))
    harness.turn()
    codes = sorted(client.receive().topics[0].error_code for client in (one, two))
    assert codes == [Error.NONE, Error.TOPIC_ALREADY_EXISTS]


def test_settings_are_kept_in_kafkas_spelling(harness: Harness, client: Client) -> None:
    create(client, topic("a", configs={"segment_bytes": " 2000000 ", "cleanup_policy": ""}))
    found = harness.broker.topics.get("a")
    assert found is not None
    assert dict(found.configs) == {"segment.bytes": "2000000", "cleanup.policy": ""}
    assert not found.config.expires
    assert not found.config.compacted


def test_under_durability_os_no_topic_may_ask_for_flushes(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "d", ottla_durability="os")
    (result,) = create(harness.client(), topic("a", configs={"flush_messages": "1"}))
    assert Error(result.error_code) is Error.INVALID_CONFIG
    assert "ottla.durability=os" in (result.error_message or "")
    harness.store.close()


# --------------------------------------------------------------------------------------- partitions


def grow(
    client: Client, name: str, count: int, brokers: list[list[int]] | None = None, **kw: Any
) -> Error:
    assignments = (
        None
        if brokers is None
        else [CreatePartitionsAssignment(broker_ids=replicas) for replicas in brokers]
    )
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    (result,) = client.call(
        CreatePartitionsRequest(timeout_ms=1000, topics=[wanted], **kw), 3
    ).results
    assert (result.error_message is None) == (
        result.error_code in (Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION)
    )
    return Error(result.error_code)


def partitions(harness: Harness, name: str) -> int:
    found = harness.broker.topics.get(name)
    assert found is not None
    return len(found.partitions)


def test_a_topic_grows_and_keeps_the_partitions_it_had(harness: Harness, client: Client) -> None:
    harness.topic("a", 2)
    before = harness.broker.topics.get("a").partitions  # type: ignore[union-attr]
    assert grow(client, "a", 4) is Error.NONE
    assert harness.broker.topics.get("a").partitions[:2] == before  # type: ignore[union-attr]
    assert grow(client, "a", 5, [[1]]) is Error.NONE
    assert partitions(harness, "a") == 5


@pytest.mark.parametrize(
    ("count", "brokers", "error"),
    [
        (2, None, Error.INVALID_PARTITIONS),
        (1, None, Error.INVALID_PARTITIONS),
        (0, None, Error.INVALID_PARTITIONS),
        (10_003, None, Error.INVALID_PARTITIONS),
        (4, [[1]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[2]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_create_partitions_refuses(
    harness: Harness, client: Client, count: int, brokers: list[list[int]] | None, error: Error
) -> None:
    harness.topic("a", 2)
    assert grow(client, "a", count, brokers) is error
    assert partitions(harness, "a") == 2


def test_create_partitions_of_what_is_not_there_or_only_to_try(
    harness: Harness, client: Client
) -> None:
    assert grow(client, "none", 2) is Error.UNKNOWN_TOPIC_OR_PARTITION
    harness.topic("a")
    assert grow(client, "a", 2, validate_only=True) is Error.NONE
    assert partitions(harness, "a") == 1


def test_create_partitions_twice_in_a_request(harness: Harness, client: Client) -> None:
    harness.topic("a")
    wanted = CreatePartitionsTopic(name="a", count=2, assignments=None)
    (result,) = client.call(
        CreatePartitionsRequest(timeout_ms=1000, topics=[wanted, wanted]), 3
    ).results
    assert Error(result.error_code) is Error.INVALID_REQUEST
    assert partitions(harness, "a") == 1


# ------------------------------------------------------------------------------------------- delete


def delete(client: Client, *states: DeleteTopicState, version: int = 6) -> list[Error]:
    request = (
        DeleteTopicsRequest(timeout_ms=1000, topics=list(states))
        if version >= 6
        else DeleteTopicsRequest(
            timeout_ms=1000, topic_names=[state.name or "" for state in states]
        )
    )
    return [Error(result.error_code) for result in client.call(request, version).responses]


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name(harness: Harness, client: Client, version: int) -> None:
    harness.topic("a")
    found = delete(client, DeleteTopicState(name="a"), DeleteTopicState(name="b"), version=version)
    assert found == [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert names(harness) == []


def test_topics_are_deleted_by_id(harness: Harness, client: Client) -> None:
    topic_id = harness.topic("a")
    request = DeleteTopicsRequest(timeout_ms=1000, topics=[DeleteTopicState(topic_id=topic_id)])
    (result,) = client.call(request, 6).responses
    assert (result.error_code, result.name, result.topic_id) == (0, "a", topic_id)
    assert delete(client, DeleteTopicState(topic_id=topic_id)) == [Error.UNKNOWN_TOPIC_ID]


def test_what_delete_topics_refuses(harness: Harness, client: Client) -> None:
    topic_id = harness.topic("a")
    both = DeleteTopicState(name="a", topic_id=topic_id)
    assert delete(client, both) == [Error.INVALID_REQUEST]
    assert delete(client, DeleteTopicState()) == [Error.INVALID_REQUEST]
    twice = DeleteTopicState(name="a")
    assert delete(client, twice, twice) == [Error.INVALID_REQUEST]
    assert names(harness) == ["a"]


@pytest.mark.parametrize(
    ("version", "error"), [(1, Error.INVALID_REQUEST), (3, Error.TOPIC_DELETION_DISABLED)]
)
def test_topics_stay_where_deletion_is_off(tmp_path: Path, version: int, error: Error) -> None:
    harness = Harness(tmp_path / "d", delete_topic_enable="false")
    harness.topic("a")
    assert delete(harness.client(), DeleteTopicState(name="a"), version=version) == [error]
    assert names(harness) == ["a"]
    harness.store.close()
