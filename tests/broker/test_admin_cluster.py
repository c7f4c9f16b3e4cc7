"""Metadata, DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, FindCoordinator and the
like: what the cluster is and where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Client, Harness, make_batch

from ottla.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import Error


def metadata(
    client: Client, *names: str, version: int = 13, create: bool = False, **kw: Any
) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names]
    if version >= 4:
        kw["allow_auto_topic_creation"] = create
    return client.call(MetadataRequest(topics=topics, **kw), version)


def all_topics(client: Client, version: int = 13) -> Any:
    topics = [] if version == 0 else None
    return client.call(MetadataRequest(topics=topics), version)


def errors(answer: Any) -> list[Error]:
    return [Error(topic.error_code) for topic in answer.topics]


# ---------------------------------------------------------------------------------------- metadata


@pytest.mark.parametrize("version", range(14))
def test_every_version_names_brokers_topics_and_partitions(
    harness: Harness, client: Client, version: int
) -> None:
    topic_id = harness.topic("a", 2)
    for answer in (metadata(client, "a", version=version), all_topics(client, version)):
        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", 9092)
        (topic,) = answer.topics
        assert (topic.error_code, topic.name, topic.is_internal) == (0, "a", False)
        assert [p.partition_index for p in topic.partitions] == [0, 1]
        for partition in topic.partitions:
            assert (partition.error_code, partition.leader_id) == (0, 1)
            assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        if version >= 1:
            assert answer.controller_id == 1
        if version >= 2:
            assert answer.cluster_id == "cluster"
        if version >= 7:
            assert topic.partitions[0].leader_epoch == 0
        if version >= 10:
            assert topic.topic_id == topic_id


def test_trap_11_v0_without_topics_means_all_and_later_null_does(
    harness: Harness, client: Client
) -> None:
    harness.topic("a")
    assert len(metadata(client, version=0).topics) == 1
    assert len(metadata(client, version=1).topics) == 0
    assert len(all_topics(client, 1).topics) == 1


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_trap_12_a_missing_topic_is_made_when_both_sides_wish_it(
    harness: Harness, client: Client, version: int
) -> None:
    answer = metadata(client, "new", version=version, create=True)
    assert errors(answer) == [Error.NONE]
    assert len(answer.topics[0].partitions) == 1
    assert harness.broker.topics.get("new") is not None


def test_trap_12_no_topic_is_made_otherwise(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "d", auto_create_topics_enable="false")
    client = harness.client()
    assert errors(metadata(client, "new", create=True)) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert errors(metadata(client, "new", version=0)) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    harness.store.close()


def test_trap_12_neither_without_the_flag_nor_by_asking_for_all(
    harness: Harness, client: Client
) -> None:
    answer = metadata(client, "new")
    assert errors(answer) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert answer.topics[0].partitions == []
    all_topics(client)
    assert len(harness.broker.topics) == 0


def test_names_that_cannot_be_made_are_answered_and_the_others_made(
    harness: Harness, client: Client
) -> None:
    harness.topic("a.b")
    answer = metadata(client, "a b", "a_b", "__share_group_state", "good", create=True)
    assert errors(answer) == [
        Error.INVALID_TOPIC_EXCEPTION,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NONE,
    ]
    assert answer.topics[2].is_internal
    assert [topic.name for topic in harness.broker.topics] == ["a.b", "good"]


def test_two_clients_that_want_the_same_new_topic_both_get_it(harness: Harness) -> None:
    one, two = harness.client(), harness.client()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    for client in (one, two):
        client.connection.feed(client.frame(request, 12))
    harness.turn()
    for client in (one, two):
        assert errors(client.receive()) == [Error.NONE]
    assert len(harness.broker.topics) == 1


def test_topics_by_id(harness: Harness, client: Client) -> None:
    topic_id = harness.topic("a")
    wanted = [
        MetadataRequestTopic(topic_id=topic_id, name=None),
        MetadataRequestTopic(topic_id=b"x" * 16, name=None),
    ]
    for version in (12, 13):
        answer = client.call(MetadataRequest(topics=wanted), version)
        assert errors(answer) == [Error.NONE, Error.UNKNOWN_TOPIC_ID]
        assert [topic.name for topic in answer.topics] == ["a", None]
    named = [MetadataRequestTopic(topic_id=topic_id, name="a")]
    for version in (10, 11):
        answer = client.call(MetadataRequest(topics=named), version)
        assert errors(answer) == [Error.INVALID_REQUEST]


def test_librdkafkas_request_for_all_topics_has_three_bytes_too_many(
    harness: Harness, client: Client
) -> None:
    harness.topic("a")
    frame = bytearray(client.frame(MetadataRequest(topics=None), 13))
    frame[-4:] = b"\0\0\0\0" + b"\1\0\0"  # null in four bytes, two flags, no tags
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    client.raw(bytes(frame))
    assert [topic.name for topic in client.receive().topics] == ["a"]


def test_a_topic_asked_for_twice_is_answered_once(harness: Harness, client: Client) -> None:
    harness.topic("a")
    assert len(metadata(client, "a", "a").topics) == 1


def test_operations_only_when_asked(harness: Harness, client: Client) -> None:
    harness.topic("a")
    assert metadata(client, "a").topics[0].topic_authorized_operations == NOT_ASKED == -(2**31)
    answer = metadata(client, "a", include_topic_authorized_operations=True)
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 3576
    answer = metadata(client, version=8, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS == 8096
    assert metadata(client, version=8).cluster_authorized_operations == NOT_ASKED


def test_trap_15_addresses_are_those_of_the_listener_that_was_asked(tmp_path: Path) -> None:
    harness = Harness(
        tmp_path / "d",
        broker_rack="r1",
        advertised_listeners="PLAINTEXT://one:1,INNER://two:2",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
        listeners="PLAINTEXT://:9092,INNER://:9093",
    )
    outer, inner = harness.client(), harness.client()
    inner.connection.listener = "INNER"
    for client, host, port in ((outer, "one", 1), (inner, "two", 2), (outer, "one", 1)):
        (broker,) = all_topics(client).brokers
        assert (broker.host, broker.port, broker.rack) == (host, port, "r1")
        (broker,) = client.call(DescribeClusterRequest(), 2).brokers
        assert (broker.host, broker.port, broker.rack) == (host, port, "r1")
        found = client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
        assert (found.host, found.port) == (host, port)
    harness.store.close()


def test_the_answer_for_all_topics_follows_every_change(harness: Harness, client: Client) -> None:
    def known() -> list[tuple[str, int]]:
        return [(topic.name, len(topic.partitions)) for topic in all_topics(client).topics]

    assert known() == []
    harness.topic("b")
    harness.topic("a")
    assert known() == [("a", 1), ("b", 1)]
    harness.broker.topics.add_partitions("a", 3)
    harness.turn()
    assert known() == [("a", 3), ("b", 1)]
    harness.delete_topic("b")
    assert known() == [("a", 3)]


# ----------------------------------------------------------------------------------------- cluster


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_cluster(client: Client, version: int) -> None:
    answer = client.call(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "cluster", 1)
    assert [broker.broker_id for broker in answer.brokers] == [1]
    assert answer.cluster_authorized_operations == NOT_ASKED
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert client.call(asked, version).cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint", "error"),
    [(2, Error.MISMATCHED_ENDPOINT_TYPE), (3, Error.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_there_is_no_controller_to_describe(client: Client, endpoint: int, error: Error) -> None:
    answer = client.call(DescribeClusterRequest(endpoint_type=endpoint), 1)
    assert (Error(answer.error_code), answer.brokers) == (error, [])
    assert answer.error_message


# ------------------------------------------------------------------------- trap 50: partitions


def pages(client: Client, limit: int, *names: str) -> list[list[tuple[str, list[int]]]]:
    found = []
    cursor: Cursor | None = None
    while True:
        answer = client.call(
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in names],
                response_partition_limit=limit,
                cursor=cursor,
            ),
            0,
        )
        found.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
        cursor = answer.next_cursor
        if cursor is None:
            return found


def test_describe_topic_partitions_page_by_page(harness: Harness, client: Client) -> None:
    harness.topic("b", 3)
    harness.topic("a", 2)
    assert pages(client, 2000) == [[("a", [0, 1]), ("b", [0, 1, 2])]]
    assert pages(client, 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2])]]
    assert pages(client, 4) == [[("a", [0, 1]), ("b", [0, 1])], [("b", [2])]]
    assert pages(client, 3, "b") == [[("b", [0, 1, 2])]]


def test_a_page_has_at_least_one_partition(harness: Harness, client: Client) -> None:
    harness.topic("a", 2)
    assert pages(client, 0) == pages(client, -5) == [[("a", [0])], [("a", [1])]]


def test_a_cursor_before_the_first_partition(harness: Harness, client: Client) -> None:
    harness.topic("a")
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="a")], cursor=Cursor(topic_name="a", partition_index=-1)
    )
    (answered,) = client.call(request, 0).topics
    assert Error(answered.error_code) is Error.INVALID_REQUEST


def test_the_broker_has_a_limit_of_its_own(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "d", max_request_partition_size_limit="2")
    harness.topic("a", 3)
    assert pages(harness.client(), 2000) == [[("a", [0, 1])], [("a", [2])]]
    harness.store.close()


def test_describe_topic_partitions_of_what_is_not_there(harness: Harness, client: Client) -> None:
    harness.topic("a")
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in ("none", "a", "b a d")]
    )
    answer = client.call(request, 0)
    assert {topic.name: Error(topic.error_code) for topic in answer.topics} == {
        "a": Error.NONE,
        "none": Error.UNKNOWN_TOPIC_OR_PARTITION,
        "b a d": Error.INVALID_TOPIC_EXCEPTION,
    }
    (partition,) = answer.topics[0].partitions
    assert (partition.leader_id, partition.isr_nodes, partition.offline_replicas) == (1, [1], [])


def test_a_cursor_for_a_topic_that_was_not_asked_for(harness: Harness, client: Client) -> None:
    harness.topic("a")
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="a")], cursor=Cursor(topic_name="b", partition_index=0)
    )
    (answered,) = client.call(request, 0).topics
    assert Error(answered.error_code) is Error.INVALID_REQUEST


def test_a_cursor_whose_topic_has_gone_goes_on_behind_it(harness: Harness, client: Client) -> None:
    harness.topic("a")
    harness.topic("c", 2)
    request = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="b", partition_index=7))
    (answered,) = client.call(request, 0).topics
    assert (answered.name, len(answered.partitions)) == ("c", 2)


def test_no_partition_is_ever_on_its_way_elsewhere(client: Client) -> None:
    answer = client.call(ListPartitionReassignmentsRequest(topics=None), 0)
    assert (answer.error_code, answer.topics) == (0, [])


# ---------------------------------------------------------------------------------------- log dirs


@pytest.mark.parametrize("version", range(1, 6))
def test_the_folder_its_room_and_the_size_of_partitions(
    harness: Harness, client: Client, version: int
) -> None:
    harness.topic("a", 2)
    batch = make_batch(3)
    data = PartitionProduceData(index=1, records=batch)
    topic = TopicProduceData(name="a", partition_data=[data])
    client.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
    answer = client.call(DescribeLogDirsRequest(topics=None), version)
    assert answer.error_code == 0
    (folder,) = answer.results
    assert folder.log_dir == str(harness.broker.config.data_dir.absolute())
    assert [(t.name, [(p.partition_index, p.partition_size) for p in t.partitions])
            for t in folder.topics] == [("a", [(0, 0), (1, len(batch))])]  # fmt: skip
    if version >= 4:
        assert 0 < folder.usable_bytes < folder.total_bytes


def test_log_dirs_of_some_partitions(harness: Harness, client: Client) -> None:
    harness.topic("a", 2)
    harness.topic("b")
    wanted = [
        DescribableLogDirTopic(topic="a", partitions=[1, 7]),
        DescribableLogDirTopic(topic="none", partitions=[0]),
    ]
    (folder,) = client.call(DescribeLogDirsRequest(topics=wanted), 4).results
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in folder.topics] == [
        ("a", [1])
    ]


# ------------------------------------------------------------------------------------- coordinators


@pytest.mark.parametrize("version", range(7))
def test_this_node_coordinates_every_group(client: Client, version: int) -> None:
    if version < 4:
        answer = client.call(FindCoordinatorRequest(key="g"), version)
        assert (answer.error_code, answer.node_id, answer.port) == (0, 1, 9092)
        return
    answer = client.call(FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)
    assert [(c.key, c.error_code, c.node_id) for c in answer.coordinators] == [
        ("g", 0, 1),
        ("h", 0, 1),
    ]


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_this_node_coordinates_transactions(client: Client, version: int) -> None:
    if version < 4:
        found = client.call(FindCoordinatorRequest(key="t", key_type=1), version)
        assert (found.error_code, found.node_id, found.port) == (0, 1, 9092)
        return
    request = FindCoordinatorRequest(coordinator_keys=["t", "u"], key_type=1)
    found = client.call(request, version).coordinators
    assert [(c.key, c.error_code, c.node_id) for c in found] == [("t", 0, 1), ("u", 0, 1)]


@pytest.mark.parametrize("version", [1, 3, 4, 6])
@pytest.mark.parametrize("kind", [2, 3])
def test_nobody_coordinates_what_is_not_served(client: Client, version: int, kind: int) -> None:
    if version < 4:
        found = client.call(FindCoordinatorRequest(key="t", key_type=kind), version)
    else:
        request = FindCoordinatorRequest(coordinator_keys=["t"], key_type=kind)
        (found,) = client.call(request, version).coordinators
    assert found.error_code not in (0, Error.COORDINATOR_NOT_AVAILABLE)
    assert (found.node_id, found.port) == (-1, -1)
    assert found.error_message
