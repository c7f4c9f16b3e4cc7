"""A valid request of each API that both brokers serve."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from compat_tests.raw import batch


class Place(NamedTuple):
    """What there is on both brokers under the same name: a topic of two partitions with records."""

    topic: str
    topic_id: uuid.UUID
    serial: int
    """Another one for each request, for what has to be new."""


Fields = dict[str, Any]


def _named(place: Place, version: int, since: int, name: str = "name") -> Fields:
    return {"topic_id": place.topic_id} if version >= since else {name: place.topic}


def _produce(p: Place, v: int) -> Fields:
    part = {"index": 1, "records": batch.build()}
    topic = {**_named(p, v, 13), "partition_data": [part]}
    return {"acks": -1, "timeout_ms": 10_000, "topic_data": [topic]}


def _fetch(p: Place, v: int) -> Fields:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    if v >= 9:
        part["current_leader_epoch"] = -1
    if v >= 12:
        part["last_fetched_epoch"] = -1
    return {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{**_named(p, v, 13, "topic"), "partitions": [part]}],
    }


def _commit(p: Place, v: int) -> Fields:
    part = {"partition_index": 0, "committed_offset": 1}
    topic = {**_named(p, v, 10), "partitions": [part]}
    return {
        "group_id": f"commits-{p.serial}",
        "generation_id_or_member_epoch": -1,
        "retention_time_ms": -1,
        "topics": [topic],
    }


def _offsets(p: Place, v: int) -> Fields:
    topic = {"name": p.topic, "partition_indexes": [0]}
    if v < 8:
        return {"group_id": "reads", "topics": [topic]}
    topic = {**_named(p, v, 10), "partition_indexes": [0]}
    return {"groups": [{"group_id": "reads", "member_epoch": -1, "topics": [topic]}]}


def _delete(p: Place, v: int) -> Fields:
    name = f"gone-{p.serial}"
    names: Fields = {"topics": [{"name": name}]} if v >= 6 else {"topic_names": [name]}
    return {"timeout_ms": 20_000, **names}


def _coordinator(p: Place, v: int) -> Fields:
    return {"coordinator_keys": ["someone"]} if v >= 4 else {"key": "someone"}


def _add(p: Place, v: int) -> Fields:
    topics = [{"name": p.topic, "partitions": [0]}]
    if v >= 4:
        one = {
            "transactional_id": "someone",
            "producer_id": 5,
            "producer_epoch": 0,
            "topics": topics,
        }
        return {"transactions": [one]}
    return {
        "v3_and_below_transactional_id": "someone",
        "v3_and_below_producer_id": 5,
        "v3_and_below_topics": topics,
    }


def _leave(p: Place, v: int) -> Fields:
    return (
        {"group_id": "none", "members": [{"member_id": "nobody"}]}
        if v >= 3
        else {
            "group_id": "none",
            "member_id": "nobody",
        }
    )


def _named_topic(**partition: Any) -> Callable[[Place, int], Fields]:
    return lambda p, v: {"topics": [{"name": p.topic, "partitions": [dict(partition)]}]}


def _same(**fields: Any) -> Callable[[Place, int], Fields]:
    return lambda p, v: fields


#: Valid fields by API.
BASES: dict[str, Callable[[Place, int], Fields]] = {
    "Produce": _produce,
    "Fetch": _fetch,
    "ListOffsets": lambda p, v: {
        "replica_id": -1,
        "timeout_ms": 5000,
        **_named_topic(partition_index=0, timestamp=-2, current_leader_epoch=-1)(p, v),
    },
    "Metadata": lambda p, v: (
        {"topics": [{"name": p.topic}], "allow_auto_topic_creation": False}
        if v >= 4
        else {"topics": [{"name": p.topic}]}
    ),
    "OffsetCommit": _commit,
    "OffsetFetch": _offsets,
    "FindCoordinator": _coordinator,
    "Heartbeat": _same(group_id="none", generation_id=1, member_id="nobody"),
    "LeaveGroup": _leave,
    "SyncGroup": _same(group_id="none", generation_id=1, member_id="nobody"),
    "DescribeGroups": _same(groups=["none"]),
    "ListGroups": _same(),
    "ApiVersions": lambda p, v: (
        {"client_software_name": "raw", "client_software_version": "1"} if v >= 3 else {}
    ),
    "CreateTopics": lambda p, v: {
        "timeout_ms": 20_000,
        "validate_only": True,
        "topics": [
            {
                "name": f"new-{p.serial}",
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": "retention.ms", "value": "1000"}],
            }
        ],
    },
    "DeleteTopics": _delete,
    "DeleteRecords": lambda p, v: {
        "timeout_ms": 5000,
        **_named_topic(partition_index=0, offset=1)(p, v),
    },
    "InitProducerId": _same(transactional_id=None, transaction_timeout_ms=60_000),
    "OffsetForLeaderEpoch": lambda p, v: {
        "replica_id": -1,
        "topics": [
            {
                "topic": p.topic,
                "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
            }
        ],
    },
    "AddPartitionsToTxn": _add,
    "AddOffsetsToTxn": _same(transactional_id="someone", producer_id=5, group_id="none"),
    "EndTxn": _same(transactional_id="someone", producer_id=5),
    "WriteTxnMarkers": lambda p, v: {
        "markers": [
            {
                "producer_id": 4711,
                "producer_epoch": 0,
                "topics": [{"name": "no-such-topic", "partition_indexes": [0]}],
            }
        ]
    },
    "DescribeAcls": _same(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    ),
    "DescribeConfigs": lambda p, v: {
        "resources": [{"resource_type": 2, "resource_name": p.topic, "configuration_keys": None}]
    },
    "IncrementalAlterConfigs": lambda p, v: {
        "validate_only": True,
        "resources": [
            {
                "resource_type": 2,
                "resource_name": p.topic,
                "configs": [{"name": "retention.ms", "config_operation": 0, "value": "5000"}],
            }
        ],
    },
    "AlterReplicaLogDirs": lambda p, v: {
        "dirs": [{"path": "/none", "topics": [{"name": p.topic, "partitions": [0]}]}]
    },
    "DescribeLogDirs": lambda p, v: {"topics": [{"topic": p.topic, "partitions": [0]}]},
    "CreatePartitions": lambda p, v: {
        "timeout_ms": 20_000,
        "validate_only": True,
        "topics": [{"name": p.topic, "count": 3, "assignments": None}],
    },
    "DeleteGroups": _same(groups_names=["none"]),
    "ElectLeaders": lambda p, v: {
        "timeout_ms": 20_000,
        "topic_partitions": [{"topic": p.topic, "partitions": [0]}],
    },
    "AlterPartitionReassignments": lambda p, v: {
        "timeout_ms": 20_000,
        "topics": [{"name": p.topic, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
    },
    "ListPartitionReassignments": lambda p, v: {
        "topics": [{"name": p.topic, "partition_indexes": [0]}]
    },
    "OffsetDelete": lambda p, v: {
        "group_id": "none",
        "topics": [{"name": p.topic, "partitions": [{"partition_index": 0}]}],
    },
    "DescribeClientQuotas": _same(
        components=[{"entity_type": "user", "match_type": 0, "match": "ann"}]
    ),
    "DescribeUserScramCredentials": _same(users=[{"name": "ann"}]),
    "DescribeQuorum": _same(
        topics=[{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    ),
    "UpdateFeatures": _same(
        validate_only=True,
        feature_updates=[{"feature": "transaction.version", "max_version_level": 2}],
    ),
    "DescribeCluster": _same(endpoint_type=1),
    "DescribeProducers": lambda p, v: {"topics": [{"name": p.topic, "partition_indexes": [0]}]},
    "DescribeTransactions": _same(transactional_ids=["nobody"]),
    "ListTransactions": _same(duration_filter=-1),
    "DescribeTopicPartitions": lambda p, v: {"topics": [{"name": p.topic}]},
}
