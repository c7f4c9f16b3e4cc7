"""__consumer_offsets and __transaction_state: there once somebody asks for a coordinator, closed to
producers, and otherwise topics like any other."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import admin
from kafka import KafkaAdminClient

from compat_tests.conftest import MakeBroker
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import batch, calls
from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
BOTH = [OFFSETS, TRANSACTIONS]
TOPIC, SET = 2, 0
COUNTS = {"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4"}


@pytest.fixture(scope="module")
def own_broker(make_broker: MakeBroker) -> Broker:
    """Its own topics come and go here: other tests need theirs."""
    return make_broker(COUNTS)


@pytest.fixture
def fresh(own_broker: Broker) -> Iterator[Wire]:
    with Wire(own_broker.host, own_broker.port) as wire:
        yield wire


def find_coordinator(wire: Wire, name: str) -> None:
    """Ask until it is there: Kafka first makes the topic."""
    kind = BOTH.index(name)

    def found() -> bool:
        answer = wire.call("FindCoordinator", 4, key_type=kind, coordinator_keys=["someone"])
        return bool(answer.coordinators[0].error_code == 0)

    eventually(found, f"a coordinator of {name}")


@pytest.fixture(params=BOTH)
def kept(request: pytest.FixtureRequest, fresh: Wire) -> str:
    """The name of one of them, which is there."""
    name: str = request.param
    find_coordinator(fresh, name)
    calls.ready_topic(fresh, name)
    return name


def described(wire: Wire, name: str) -> Struct:
    return calls.topic_metadata(wire, name)


@pytest.mark.parametrize("name", BOTH)
def test_the_first_question_for_a_coordinator_makes_the_topic(fresh: Wire, name: str) -> None:
    if described(fresh, name).error_code == 0:
        calls.delete_topic(fresh, name)
    missing = described(fresh, name)
    assert name_of(missing.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert missing.is_internal
    find_coordinator(fresh, name)
    topic = calls.ready_topic(fresh, name)
    assert topic.is_internal
    assert len(topic.partitions) == 4
    listed = {t.name: t for t in fresh.call("Metadata", 12, topics=None).topics}
    assert listed[name].is_internal
    other = described(fresh, name)
    assert other.topic_id == topic.topic_id


@pytest.mark.parametrize("name", BOTH)
def test_metadata_that_may_make_topics_makes_it_too(fresh: Wire, name: str) -> None:
    if described(fresh, name).error_code == 0:
        calls.delete_topic(fresh, name)
    calls.topic_metadata(fresh, name, create=True)
    topic = calls.ready_topic(fresh, name)
    assert (topic.is_internal, len(topic.partitions)) == (True, 4)


@pytest.mark.parametrize("version", [2, 5, 7])
def test_it_cannot_be_created(fresh: Wire, kept: str, version: int) -> None:
    before = described(fresh, kept)
    for validate_only in (True, False):
        answer = fresh.call(
            "CreateTopics",
            version,
            timeout_ms=20_000,
            validate_only=validate_only,
            topics=[{"name": kept, "num_partitions": 1, "replication_factor": 1}],
        )
        assert name_of(answer.topics[0].error_code) == "TOPIC_ALREADY_EXISTS"
    assert described(fresh, kept).topic_id == before.topic_id


@pytest.mark.parametrize("version", [3, 9, 12, 13])
def test_nothing_can_be_produced_to_it(fresh: Wire, kept: str, version: int) -> None:
    found = described(fresh, kept)
    topic: str | uuid.UUID = found.topic_id if version >= 13 else kept
    refused = calls.produce(fresh, topic, batch.build(), version=version)
    assert name_of(refused.error_code) == "INVALID_TOPIC_EXCEPTION"
    missing = calls.produce(fresh, topic, batch.build(), version=version, partition=99)
    assert name_of(missing.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_transaction_cannot_take_it_in(fresh: Wire, kept: str) -> None:
    added = fresh.call(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id="someone",
        v3_and_below_topics=[{"name": kept, "partitions": [0]}],
    )
    (topic,) = added.results_by_topic_v3_and_below
    codes = [name_of(p.partition_error_code) for p in topic.results_by_partition]
    assert codes == ["TOPIC_AUTHORIZATION_FAILED"]


def test_it_is_read_like_any_topic(fresh: Wire, kept: str) -> None:
    last = 3  # nobody's offsets are in it, in Kafka either
    end = calls.list_offset(fresh, kept, -1, partition=last)
    assert (end.error_code, end.offset) == (0, 0)
    read = calls.fetch(fresh, kept, partition=last)
    assert (read.error_code, read.high_watermark, read.records) == (0, 0, b"")
    sizes = fresh.call("DescribeLogDirs", 4, topics=[{"topic": kept, "partitions": [last]}])
    (found,) = sizes.results[0].topics
    assert [p.partition_size for p in found.partitions] == [0]


def configs(wire: Wire, name: str) -> dict[str, str]:
    asked = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}]
    (result,) = wire.call("DescribeConfigs", 4, resources=asked).results
    assert result.error_code == 0
    return {config.name: config.value for config in result.configs}


def test_its_settings_are_kafkas_and_can_be_altered(fresh: Wire, kept: str) -> None:
    own = configs(fresh, kept)
    assert own["cleanup.policy"] == "compact"
    assert own["segment.bytes"] == "104857600"
    assert own["compression.type"] == ("producer" if kept == OFFSETS else "uncompressed")
    alter = {
        "resource_type": TOPIC,
        "resource_name": kept,
        "configs": [{"name": "retention.ms", "config_operation": SET, "value": "777000"}],
    }
    answer = fresh.call("IncrementalAlterConfigs", 1, resources=[alter])
    assert answer.responses[0].error_code == 0
    eventually(lambda: configs(fresh, kept)["retention.ms"] == "777000", "the new setting")


def test_its_records_cannot_be_deleted(fresh: Wire, kept: str) -> None:
    asked = [{"name": kept, "partitions": [{"partition_index": 0, "offset": 0}]}]
    answer = fresh.call("DeleteRecords", 2, timeout_ms=20_000, topics=asked)
    (partition,) = answer.topics[0].partitions
    assert name_of(partition.error_code) == "INVALID_TOPIC_EXCEPTION"


def test_it_is_deleted_grown_and_made_again(fresh: Wire, kept: str) -> None:
    before = described(fresh, kept).topic_id
    grow = [{"name": kept, "count": 6, "assignments": None}]
    grown = fresh.call("CreatePartitions", 3, timeout_ms=20_000, topics=grow)
    assert grown.results[0].error_code == 0
    eventually(lambda: len(described(fresh, kept).partitions) == 6, "six partitions")
    calls.delete_topic(fresh, kept)
    find_coordinator(fresh, kept)
    again = calls.ready_topic(fresh, kept)
    assert again.topic_id != before
    assert len(again.partitions) == 4


def test_it_outlives_a_restart(own_broker: Broker) -> None:
    ids = []
    for _ in range(2):
        with Wire(own_broker.host, own_broker.port) as wire:
            for name in BOTH:
                find_coordinator(wire, name)
            ids.append([calls.ready_topic(wire, name).topic_id for name in BOTH])
        own_broker.restart()
    assert ids[0] == ids[1]


def test_clients_tell_it_from_others(own_broker: Broker, fresh: Wire, kept: str) -> None:
    python = KafkaAdminClient(bootstrap_servers=own_broker.bootstrap)
    (found,) = python.describe_topics([kept])
    assert found["is_internal"]
    python.close()
    confluent = admin.AdminClient({"bootstrap.servers": own_broker.bootstrap})
    assert len(confluent.list_topics(timeout=30).topics[kept].partitions) == 4
