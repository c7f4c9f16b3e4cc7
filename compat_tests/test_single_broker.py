"""Calls of clusters of many brokers, asked of one by stock clients and Kafka's own tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import confluent_kafka as confluent
import pytest
from confluent_kafka import admin
from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.structs import TopicPartitionReplica

from compat_tests.conftest import MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.tools import ToolFailed, run_tool

CONFLUENT_ANY = admin.AclBindingFilter(
    admin.ResourceType.ANY,
    None,
    admin.ResourcePatternType.ANY,
    None,
    None,
    admin.AclOperation.ANY,
    admin.AclPermissionType.ANY,
)


@pytest.fixture
def python_admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield made
    made.close()


@pytest.fixture
def confluent_admin(broker: Broker) -> admin.AdminClient:
    return admin.AdminClient({"bootstrap.servers": broker.bootstrap})


def test_kafka_python_describes_the_quorum(python_admin: KafkaAdminClient) -> None:
    (topic,) = python_admin.describe_metadata_quorum()["topics"]
    (partition,) = topic["partitions"]
    assert topic["topic_name"] == "__cluster_metadata"
    assert [v["replica_id"] for v in partition["current_voters"]] == [partition["leader_id"]]


def test_no_election_is_needed(
    python_admin: KafkaAdminClient, confluent_admin: admin.AdminClient, new_topic: MakeTopic
) -> None:
    topic = new_topic(2)
    answer = python_admin.elect_leaders(0, {topic: [0, 1]}, raise_errors=False)
    (result,) = answer.replica_election_results
    assert [p.error_code for p in result.partition_result] == [84, 84]
    partition = confluent.TopicPartition(topic, 1)
    elected = confluent_admin.elect_leaders(confluent.ElectionType.PREFERRED, [partition])
    (error,) = elected.result(30).values()
    assert error.name() == "ELECTION_NOT_NEEDED"


def test_partitions_stay_where_they_are(python_admin: KafkaAdminClient, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    (node,) = [broker["broker_id"] for broker in python_admin.describe_cluster()["brokers"]]
    assert python_admin.alter_partition_reassignments({partition: [node]}) == {partition: None}
    refused = python_admin.alter_partition_reassignments({partition: [node, 99]})
    assert refused == {partition: kafka_errors.InvalidReplicationAssignmentError}
    replica = TopicPartitionReplica(topic, 0, node)
    moved = python_admin.alter_replica_log_dirs({replica: "/no/such/folder"})
    assert moved == {replica: kafka_errors.LogDirNotFoundError}


def test_nobody_has_credentials(
    python_admin: KafkaAdminClient, confluent_admin: admin.AdminClient
) -> None:
    assert python_admin.describe_user_scram_credentials() == {}
    assert confluent_admin.describe_user_scram_credentials().result(30) == {}
    with pytest.raises(confluent.KafkaException, match="RESOURCE_NOT_FOUND"):
        confluent_admin.describe_user_scram_credentials(["ann"])["ann"].result(30)


def test_there_are_no_access_rules(
    python_admin: KafkaAdminClient, confluent_admin: admin.AdminClient
) -> None:
    every = ACLFilter(
        None,
        None,
        ACLOperation.ANY,
        ACLPermissionType.ANY,
        ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
    )
    with pytest.raises(kafka_errors.SecurityDisabledError):
        python_admin.describe_acls(every)
    assert confluent_admin.describe_acls(CONFLUENT_ANY).result(30) == []  # it drops the error


def test_features_are_told_and_updated(python_admin: KafkaAdminClient) -> None:
    features = python_admin.describe_features()
    assert features["metadata.version"]["finalized"] == (30, 30)
    assert features["transaction.version"]["supported"] == (0, 2)
    assert python_admin.update_features({"transaction.version": 2}) == {"transaction.version": "OK"}


# ------------------------------------------------------------------------------------ Kafka's tools


@pytest.fixture
def tool(broker: Broker, needs_java: None) -> Callable[..., str]:
    """`tool(name, argument ...)`: what it printed, whether or not it failed."""

    def run(name: str, *arguments: str) -> str:
        try:
            return run_tool(name, "--bootstrap-server", broker.bootstrap, *arguments)
        except ToolFailed as failed:
            return str(failed)

    return run


def test_kafka_metadata_quorum(tool: Callable[..., str]) -> None:
    status = tool("kafka-metadata-quorum", "describe", "--status")
    assert "LeaderId:" in status
    assert "MaxFollowerLag:         0\n" in status
    replicas = tool("kafka-metadata-quorum", "describe", "--replication")
    assert "Leader" in replicas.splitlines()[1]
    assert "Exception" not in status + replicas


def test_kafka_leader_election(tool: Callable[..., str], topic: str) -> None:
    one = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    printed = tool("kafka-leader-election", *one)
    assert f"Valid replica already elected for partitions {topic}-0" in printed
    everywhere = tool(
        "kafka-leader-election", "--election-type", "unclean", "--all-topic-partitions"
    )
    assert "Exception" not in printed + everywhere


def test_kafka_acls(tool: Callable[..., str]) -> None:
    assert "SecurityDisabledException" in tool("kafka-acls", "--list")


@pytest.mark.parametrize("kind", ["users", "clients", "ips"])
def test_kafka_configs_of_quotas(tool: Callable[..., str], kind: str) -> None:
    printed = tool("kafka-configs", "--describe", "--entity-type", kind)
    assert "Exception" not in printed
    assert printed.strip() == ""


def test_kafka_reassign_partitions(tool: Callable[..., str], broker: Broker, topic: str) -> None:
    def plan(replicas: list[int], file: str) -> str:
        path = broker.folder / file
        move = {"topic": topic, "partition": 0, "replicas": replicas}
        path.write_text(json.dumps({"version": 1, "partitions": [move]}))
        return str(path)

    good, bad = plan([1], "good.json"), plan([99], "bad.json")
    run = reassigning(tool, good)
    assert "Successfully started partition reassignment" in run("--execute")
    assert f"Reassignment of partition {topic}-0 is completed." in run("--verify")
    assert "Exception" not in tool("kafka-reassign-partitions", "--list")
    refused = reassigning(tool, bad)("--execute")
    assert "Unknown broker id 99" in refused


def reassigning(tool: Callable[..., str], path: str) -> Callable[[str], str]:
    return lambda step: tool("kafka-reassign-partitions", "--reassignment-json-file", path, step)


def test_kafka_features(tool: Callable[..., str]) -> None:
    described = tool("kafka-features", "describe")
    assert "Feature: transaction.version" in described
    levels = dict(re.findall(r"Feature: (\S+) .* FinalizedVersionLevel: (\S+)", described))
    assert levels["eligible.leader.replicas.version"] == "1"
    assert levels["kraft.version"] == "0"
    assert levels["metadata.version"] == "4.3-IV0"
    done = tool("kafka-features", "upgrade", "--feature", "transaction.version=2")
    assert "transaction.version was upgraded to 2." in done
    checked = tool(
        *("kafka-features", "downgrade", "--feature", "transaction.version=1", "--dry-run")
    )
    assert "transaction.version can be downgraded to 1." in checked
    refused = tool("kafka-features", "downgrade", "--feature", "metadata.version=31")
    assert "Could not downgrade metadata.version to 31." in refused
