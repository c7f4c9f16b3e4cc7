"""An honest cluster with many topics and groups, and the calls that user interfaces (kafka-ui,
kaskade, AKHQ) and administration clients (kafka-python, confluent, Kafka's tools) make of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.broker.holds import Asking, Measured

from ottla.wire.api.alter_configs import (
    AlterConfigsRequest,
)
from ottla.wire.api.alter_configs import (
    AlterConfigsResource as WholeResource,
)
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.api.describe_producers import DescribeProducersRequest
from ottla.wire.api.describe_producers import TopicRequest as ProducersOfTopic
from ottla.wire.api.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.list_config_resources import ListConfigResourcesRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.schema import Message

PARTITIONS = 2
"""Of each topic."""
OWN_OFFSETS = 10
"""Partitions of which a group has committed offsets; the first group has of all."""
TOPIC, BROKER = 2, 4


def topic(number: int) -> str:
    return f"orders.region-{number:05}.events"


def group(number: int) -> str:
    return f"service-{number:04}"


def fill(measured: Measured, topics: int, groups: int) -> None:
    """Topics, and groups with a member and offsets each; the first group is of all topics."""
    measured.topics(map(topic, range(topics)), PARTITIONS)
    asking = measured.asking()
    for number in range(groups):
        _join(asking, number, topics)
    asking.socket.close()


def _join(asking: Asking, number: int, topics: int) -> None:
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")
    join = JoinGroupRequest(
        group_id=group(number),
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = asking.call(join, 3)
    assert joined.error_code == 0, joined
    mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(100))
    sync = SyncGroupRequest(
        group_id=group(number),
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[mine],
    )
    assert asking.call(sync, 3).error_code == 0
    wanted = OWN_OFFSETS if number else topics * PARTITIONS
    first = number * OWN_OFFSETS // PARTITIONS
    commit = OffsetCommitRequest(
        group_id=group(number),
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic((first + n) % topics),
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=0)
                    for index in range(PARTITIONS)
                ],
            )
            for n in range(wanted // PARTITIONS)
        ],
    )
    assert asking.call(commit, 8).topics[0].partitions[0].error_code == 0


def reading(topics: int, groups: int) -> Iterator[tuple[str, Message, int]]:
    """What is asked about everything there is: a name, the request, its version."""
    names = [topic(number) for number in range(topics)]
    group_ids = [group(number) for number in range(groups)]
    indexes = list(range(PARTITIONS))
    yield "Metadata, all topics", MetadataRequest(topics=None), 13
    yield "Metadata, all topics, v5", MetadataRequest(topics=None), 5
    named = [MetadataRequestTopic(name=name) for name in names]
    yield "Metadata, every topic by name", MetadataRequest(topics=named), 12
    yield "DescribeConfigs, every topic", _configs(TOPIC, names), 4
    yield "DescribeConfigs, every topic, v1", _configs(TOPIC, names), 1
    yield "DescribeConfigs, every topic, all of it", _configs(TOPIC, names, True), 4
    yield "DescribeConfigs, the broker", _configs(BROKER, ["1"], True), 4
    yield "DescribeConfigs, the broker 2,000 times", _configs(BROKER, ["1"] * 2000, True), 4
    one_key = _configs(TOPIC, names, keys=["retention.ms"])
    yield "DescribeConfigs, one setting of every topic", one_key, 4
    yield "DescribeTopicPartitions, all", DescribeTopicPartitionsRequest(), 0
    few = [TopicRequest(name=name) for name in names]
    yield "DescribeTopicPartitions, by name", DescribeTopicPartitionsRequest(topics=few), 0
    missing = [TopicRequest(name=f"no-{name}") for name in names]
    yield "DescribeTopicPartitions, none there", DescribeTopicPartitionsRequest(topics=missing), 0
    yield "DescribeLogDirs, all", DescribeLogDirsRequest(topics=None), 4
    sized = [DescribableLogDirTopic(topic=name, partitions=indexes) for name in names]
    yield "DescribeLogDirs, by name", DescribeLogDirsRequest(topics=sized), 4
    for title, timestamp in (("latest", -1), ("earliest", -2), ("by time", 1), ("max time", -3)):
        yield f"ListOffsets, {title}", _offsets(names, timestamp), 9
    yield "OffsetForLeaderEpoch, all", _epochs(names), 4
    yield "ListGroups", ListGroupsRequest(), 5
    yield "DescribeGroups, all", DescribeGroupsRequest(groups=group_ids), 6
    yield "DescribeGroups, all, v4", DescribeGroupsRequest(groups=group_ids), 4
    own = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
    yield "OffsetFetch, all of every group", OffsetFetchRequest(groups=own), 9
    yield "OffsetFetch, all of one", OffsetFetchRequest(groups=own[:1]), 9
    yield "OffsetFetch, all of one, v5", OffsetFetchRequest(group_id=group_ids[0], topics=None), 5
    fetched = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name in names]
    by_name = [OffsetFetchRequestGroup(group_id=group_ids[0], topics=fetched)]
    yield "OffsetFetch, every partition by name", OffsetFetchRequest(groups=by_name), 9
    yield "FindCoordinator, all groups", FindCoordinatorRequest(coordinator_keys=group_ids), 4
    yield "ListConfigResources", ListConfigResourcesRequest(), 1
    producers = [ProducersOfTopic(name=name, partition_indexes=indexes) for name in names]
    yield "DescribeProducers, all", DescribeProducersRequest(topics=producers), 0


def changing(topics: int, groups: int) -> Iterator[tuple[str, Message, int]]:
    """What changes everything there is; in this order, for the last of them delete it."""
    names = [topic(number) for number in range(topics)]
    yield "IncrementalAlterConfigs, every topic", _altered(names), 1
    yield "IncrementalAlterConfigs, one default for all", _default(), 1
    whole = [WholeResource(resource_type=TOPIC, resource_name=name) for name in names]
    yield "AlterConfigs, every topic", AlterConfigsRequest(resources=whole), 2
    yield "DeleteRecords, all", _records(names), 2
    yield "CreateTopics", _created("more", topics), 7
    yield "CreateTopics, one wide", _created("wide", 1, 10_000), 7
    grown = [CreatePartitionsTopic(name=name, count=PARTITIONS + 1) for name in names]
    yield (
        "CreatePartitions, every topic",
        CreatePartitionsRequest(topics=grown, timeout_ms=60_000),
        3,
    )
    made = [MetadataRequestTopic(name=f"made-{number}") for number in range(topics)]
    wanted = MetadataRequest(topics=made, allow_auto_topic_creation=True)
    yield "Metadata, every topic to be made", wanted, 12
    doomed = OffsetDeleteRequest(
        group_id=group(0),
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in names
        ],
    )
    yield "OffsetDelete, all", doomed, 0
    group_ids = [group(number) for number in range(groups)]
    yield "DeleteGroups, all", DeleteGroupsRequest(groups_names=group_ids), 2
    gone = [DeleteTopicState(name=name) for name in names]
    yield "DeleteTopics, all", DeleteTopicsRequest(topics=gone, timeout_ms=60_000), 6
    yield "DeleteTopics, the wide one", _deleted("wide-0"), 6


def calls(measured: Any, topics: int, groups: int) -> Iterator[tuple[str, Message, int]]:
    yield from reading(topics, groups)
    yield from changing(topics, groups)


def _configs(
    kind: int, names: list[str], everything: bool = False, keys: list[str] | None = None
) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=n, configuration_keys=keys)
            for n in names
        ],
        include_synonyms=everything,
        include_documentation=everything,
    )


def _offsets(names: list[str], timestamp: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index in range(PARTITIONS)
                ],
            )
            for name in names
        ]
    )


def _epochs(names: list[str]) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic=name,
                partitions=[
                    OffsetForLeaderPartition(partition=index, leader_epoch=0)
                    for index in range(PARTITIONS)
                ],
            )
            for name in names
        ]
    )


def _altered(names: list[str]) -> IncrementalAlterConfigsRequest:
    own = AlterableConfig(name="retention.ms", config_operation=0, value="86400000")
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[own])
            for name in names
        ]
    )


def _default() -> IncrementalAlterConfigsRequest:
    own = AlterableConfig(name="log.retention.ms", config_operation=0, value="3600000")
    broker = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[own])
    return IncrementalAlterConfigsRequest(resources=[broker])


def _records(names: list[str]) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name,
                partitions=[
                    DeleteRecordsPartition(partition_index=index, offset=-1)
                    for index in range(PARTITIONS)
                ],
            )
            for name in names
        ]
    )


def _created(prefix: str, count: int, partitions: int = PARTITIONS) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=f"{prefix}-{number}", num_partitions=partitions, replication_factor=1
            )
            for number in range(count)
        ]
    )


def _deleted(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000)
