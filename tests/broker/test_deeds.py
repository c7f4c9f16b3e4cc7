"""What the log says about requests that change something, and about those refused."""

from __future__ import annotations

import pytest
from tests.broker.harness import Client, Harness, VirtualClock, make_batch

from ottla.broker.complaints import Allowance
from ottla.broker.config_alter import Op
from ottla.broker.deeds import SETTINGS
from ottla.wire.api.alter_configs import AlterableConfig as Replaced
from ottla.wire.api.alter_configs import AlterConfigsRequest
from ottla.wire.api.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
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
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import Error

ME = "client:0 (client id test)"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level("INFO", "ottla")
    return caplog


def creation(*names: str, validate_only: bool = False) -> CreateTopicsRequest:
    setting = CreatableTopicConfig(name="retention.ms", value="5")
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=[setting])
        for name in names
    ]
    return CreateTopicsRequest(topics=topics, validate_only=validate_only)


@pytest.mark.parametrize("version", [2, 7])
def test_topics_from_creation_to_deletion(
    client: Client, said: pytest.LogCaptureFixture, version: int
) -> None:
    client.call(creation("a", "b"), version)
    client.call(creation("a"), version)
    client.call(creation("c", validate_only=True), version)
    more = [CreatePartitionsTopic(name="a", count=3, assignments=None)]
    client.call(CreatePartitionsRequest(topics=more, timeout_ms=1000), 3)
    gone = [DeleteTopicState(name=name) for name in ("b", "a", "b\nc")]
    client.call(DeleteTopicsRequest(topics=gone, timeout_ms=1000), 6)
    assert said.messages == [
        f"topics created by {ME}: a (partitions=2 retention.ms=5), b (partitions=2 retention.ms=5)",
        f"refused CreateTopics of {ME}: a TOPIC_ALREADY_EXISTS",
        f"partitions added by {ME}: a (3 in all)",
        f"topics deleted by {ME}: b, a",
        f"refused DeleteTopics of {ME}: b\\nc UNKNOWN_TOPIC_OR_PARTITION",
    ]


def test_a_topic_that_is_made_when_it_is_first_asked_for(
    client: Client, said: pytest.LogCaptureFixture
) -> None:
    client.call(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 12)
    assert said.messages == [f"topics created at the first question of {ME}: new"]


def test_settings_and_no_secret(
    harness: Harness, client: Client, said: pytest.LogCaptureFixture
) -> None:
    harness.topic("t")
    steps = [
        AlterableConfig(name="retention.ms", config_operation=Op.SET, value="9"),
        AlterableConfig(name="cleanup.policy", config_operation=Op.APPEND, value="compact"),
    ]
    secret = AlterableConfig(name="ssl.key.password", config_operation=Op.SET, value="xyz")
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=2, resource_name="t", configs=steps),
            AlterConfigsResource(resource_type=4, resource_name="", configs=[secret]),
        ]
    )
    client.call(request, 1)
    one = [Replaced(name="retention.ms", value="7")]
    resource = ReplacedResource(resource_type=2, resource_name="t", configs=one)
    client.call(AlterConfigsRequest(resources=[resource]), 2)
    altered, refused, replaced = said.messages
    assert altered == (
        f"settings altered by {ME}: topic t (retention.ms=9 cleanup.policy+=compact)"
    )
    assert refused.startswith(f"refused IncrementalAlterConfigs of {ME}: every broker INVALID")
    assert replaced == f"settings replaced by {ME}: topic t (retention.ms=7)"
    assert "xyz" not in said.text


def test_records_groups_and_offsets(
    harness: Harness, client: Client, said: pytest.LogCaptureFixture
) -> None:
    harness.topic("t", 2)
    data = [PartitionProduceData(index=0, records=make_batch(5))]
    produce = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    client.call(produce, 9)
    parts = [DeleteRecordsPartition(partition_index=n, offset=o) for n, o in ((0, 3), (1, 9))]
    client.call(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=parts)], timeout_ms=1000
        ),
        2,
    )
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=4)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[offset])]
    for _ in range(5):  # by a program that does so again and again
        client.call(OffsetCommitRequest(group_id="g", topics=topics), 8)
    index = OffsetDeleteRequestPartition(partition_index=0)
    deleted = [OffsetDeleteRequestTopic(name="t", partitions=[index])]
    client.call(OffsetDeleteRequest(group_id="g", topics=deleted), 0)
    client.call(OffsetCommitRequest(group_id="g", topics=topics), 8)
    client.call(DeleteGroupsRequest(groups_names=["g", "h"]), 2)
    assert said.messages == [
        f"records deleted by {ME}: t (first offsets by partition 0:3)",
        f"refused DeleteRecords of {ME}: t OFFSET_OUT_OF_RANGE",
        *[f"offsets set from outside the group by {ME}: group g (t 0:4)"] * 3,
        f"offsets deleted by {ME}: group g, t-0",
        f"groups deleted by {ME}: g",
        f"refused DeleteGroups of {ME}: h GROUP_ID_NOT_FOUND",
    ]


def test_a_request_for_thousands_of_topics_names_them_all(
    client: Client, said: pytest.LogCaptureFixture
) -> None:
    names = [f"topic-with-a-name-{n}" for n in range(3000)]
    client.call(
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names], timeout_ms=1000
        ),
        6,
    )
    assert all(f" {name} UNKNOWN" in said.text for name in names)
    assert 30 < len(said.messages) < 60


def test_thousands_of_settings_of_one_resource_are_counted(
    client: Client, said: pytest.LogCaptureFixture
) -> None:
    settings = [CreatableTopicConfig(name="retention.ms", value="5")] * 3000
    topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1, configs=settings)
    client.call(CreateTopicsRequest(topics=[topic]), 7)
    (line,) = said.messages
    assert line.count("retention.ms=5") == SETTINGS
    assert line.endswith(" and 2940 more)")


def test_a_refused_batch_is_told_once_a_request_and_a_few_times_a_client(
    harness: Harness, client: Client, said: pytest.LogCaptureFixture
) -> None:
    harness.topic("t", 3, max_message_bytes="100")
    data = [PartitionProduceData(index=n, records=make_batch(9)) for n in range(3)]
    produce = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    answer = client.call(produce, 9)
    assert answer.responses[0].partition_responses[2].error_code == Error.MESSAGE_TOO_LARGE
    (line,) = said.messages
    assert line.startswith(f"refused Produce of {ME}: MESSAGE_TOO_LARGE: ")
    for _ in range(50):
        client.call(produce, 9)
    assert len(said.messages) == 20
    harness.pass_time(10_000)
    client.call(produce, 9)
    assert said.messages[-1].endswith(" (31 more like it were not logged)")


def test_an_allowance_bounds_one_subject_all_of_them_and_what_it_remembers() -> None:
    clock = VirtualClock()
    allowance = Allowance(clock, (2, 1000), (5, 100))
    assert [allowance.take("a") for _ in range(3)] == ["", "", None]
    clock.passed_ms += 1000
    assert allowance.take("a") == " (1 more like it were not logged)"
    assert [allowance.take(str(n)) is None for n in range(6)] == [False] * 4 + [True] * 2
    for n in range(5000):
        allowance.take(f"other {n}")
    assert len(allowance._buckets) == 1000
