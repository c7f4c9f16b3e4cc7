"""Metadata and topics: facts 11 to 16."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

from compat_tests.conftest import SETTINGS, MakeBroker, MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.raw import batch, calls
from compat_tests.raw.errors import CODES, name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire

NewName = Callable[[], str]


def names(answer: Struct) -> list[str]:
    return [topic.name for topic in answer.topics]


def test_trap_11_metadata_v0_without_topics_means_all(wire: Wire, topic: str) -> None:
    assert topic in names(wire.call("Metadata", 0, topics=[]))


@pytest.mark.parametrize("version", range(1, 14))
def test_trap_11_metadata_null_means_all_and_empty_none(
    wire: Wire, topic: str, version: int
) -> None:
    assert topic in names(wire.call("Metadata", version, topics=None))
    assert names(wire.call("Metadata", version, topics=[])) == []
    assert names(wire.call("Metadata", version, topics=[{"name": topic}])) == [topic]


def test_trap_12_no_creation_without_the_flag(wire: Wire, new_name: NewName) -> None:
    name = new_name()
    for _ in range(2):
        found = calls.topic_metadata(wire, name, create=False)
        assert name_of(found.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert name not in names(wire.call("Metadata", 12, topics=None, allow_auto_topic_creation=True))


@pytest.mark.parametrize("version", [1, 3, 4, 8, 12])
def test_trap_12_a_topic_in_creation_is_retriable_and_never_without_partitions(
    wire: Wire, new_name: NewName, version: int
) -> None:
    name = new_name()
    flag = {"allow_auto_topic_creation": True} if version >= 4 else {}
    deadline = time.monotonic() + 10
    while True:
        (found,) = wire.call("Metadata", version, topics=[{"name": name}], **flag).topics
        if found.error_code == 0:
            break
        assert name_of(found.error_code) in {"UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE"}
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert len(found.partitions) == int(SETTINGS["num.partitions"])


def test_trap_12_no_creation_when_the_broker_does_not_want_it(
    make_broker: MakeBroker, new_name: NewName
) -> None:
    broker = make_broker({"auto.create.topics.enable": "false"})
    name = new_name()
    with Wire(broker.host, broker.port) as wire:
        for version, flag in [(3, {}), (12, {"allow_auto_topic_creation": True})]:
            (found,) = wire.call("Metadata", version, topics=[{"name": name}], **flag).topics
            assert name_of(found.error_code) == "UNKNOWN_TOPIC_OR_PARTITION"
            assert found.partitions == []
        assert name not in names(wire.call("Metadata", 12, topics=None))
    broker.stop()


def test_trap_13_a_leader_epoch_never_falls_over_restarts(
    broker: Broker, new_topic: MakeTopic
) -> None:
    topic = new_topic(3)

    def state() -> tuple[uuid.UUID, list[int]]:
        with Wire(broker.host, broker.port) as wire:
            found = calls.ready_topic(wire, topic)
            produced = calls.produced(wire, topic, batch.build())
            (stored,) = calls.fetched_batches(wire, topic, produced)
            assert stored.leader_epoch <= found.partitions[0].leader_epoch
            return found.topic_id, [
                p.leader_epoch for p in sorted(found.partitions, key=lambda p: p.partition_index)
            ]

    first_id, epochs = state()
    broker.restart()
    second_id, after_stop = state()
    broker.kill()
    broker.start()
    third_id, after_kill = state()
    assert first_id == second_id == third_id
    assert all(a <= b <= c for a, b, c in zip(epochs, after_stop, after_kill, strict=True))


def test_trap_14_a_topic_made_again_has_a_new_id(wire: Wire, new_topic: MakeTopic) -> None:
    topic = new_topic()
    old = calls.topic_metadata(wire, topic).topic_id
    calls.delete_topic(wire, topic)
    new = calls.create_topic(wire, topic).topic_id
    assert old != new
    assert old.int
    assert new.int
    for asked in (old, uuid.uuid4()):
        answer = calls.produce(wire, asked, batch.build(), version=13)
        assert name_of(answer.error_code) == "UNKNOWN_TOPIC_ID"
        answer = calls.fetch(wire, asked, version=13)
        assert name_of(answer.error_code) == "UNKNOWN_TOPIC_ID"
        assert answer.records == b""
    assert calls.produced(wire, new, batch.build(), version=13) == 0
    assert calls.fetch(wire, new, version=17).error_code == 0


def test_trap_14_a_session_that_holds_the_old_id_is_told(wire: Wire, new_topic: MakeTopic) -> None:
    """Metadata by id too: an id that is gone is UNKNOWN_TOPIC_ID, with a null name (v12)."""
    topic = new_topic()
    old = calls.topic_metadata(wire, topic).topic_id
    opened = wire.call(
        "Fetch", 13, **calls.fetch_fields({old: [calls.fetch_partition(0)]}, session_epoch=0)
    )
    assert opened.session_id != 0
    calls.delete_topic(wire, topic)
    calls.create_topic(wire, topic)
    answer = wire.call(
        "Fetch", 13, **calls.fetch_fields({}, session_id=opened.session_id, session_epoch=1)
    )
    assert answer.error_code == 0
    (told,) = answer.responses
    assert told.topic_id == old
    assert name_of(told.partitions[0].error_code) in {"UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID"}
    (found,) = wire.call("Metadata", 12, topics=[{"topic_id": old, "name": None}]).topics
    assert (name_of(found.error_code), found.name) == ("UNKNOWN_TOPIC_ID", None)


@pytest.mark.parametrize("version", [1, 2, 9, 12, 13])
def test_trap_15_the_controller_is_a_listed_broker_at_the_address_in_use(
    wire: Wire, broker: Broker, version: int
) -> None:
    answer = wire.call("Metadata", version, topics=[])
    assert answer.controller_id in [b.node_id for b in answer.brokers]
    assert {(b.host, b.port) for b in answer.brokers} == {(broker.host, broker.port)}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_trap_15_describe_cluster_says_the_same(wire: Wire, broker: Broker, version: int) -> None:
    known = wire.call("Metadata", 12, topics=[])
    answer = wire.call("DescribeCluster", version)
    assert answer.error_code == 0
    assert answer.cluster_id == known.cluster_id
    assert answer.controller_id in [b.broker_id for b in answer.brokers]
    assert {(b.host, b.port) for b in answer.brokers} == {(broker.host, broker.port)}


BAD_NAMES = ["", ".", "..", "a b", "a/b", "ä", "a,b", "x" * 250, "a\0b"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_trap_16_names_that_are_refused(wire: Wire, name: str) -> None:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
    answer = wire.call("CreateTopics", 5, timeout_ms=5000, topics=topics)
    assert name_of(answer.topics[0].error_code) == "INVALID_TOPIC_EXCEPTION"
    found = calls.topic_metadata(wire, name, create=True)
    assert name_of(found.error_code) == "INVALID_TOPIC_EXCEPTION"


@pytest.mark.parametrize("name", ["x" * 249, "a.b-c_D.9", "..."])
def test_trap_16_names_that_are_fine(wire: Wire, name: str) -> None:
    calls.create_topic(wire, name)
    calls.delete_topic(wire, name)


def test_trap_16_a_dot_and_an_underscore_collide(wire: Wire, new_name: NewName) -> None:
    base = new_name()
    calls.create_topic(wire, f"{base}.x")
    for clash in (f"{base}_x", f"{base.replace('_', '.', 1)}.x"):
        topics = [{"name": clash, "num_partitions": 1, "replication_factor": 1}]
        answer = wire.call("CreateTopics", 5, timeout_ms=5000, topics=topics)
        assert name_of(answer.topics[0].error_code) == "INVALID_TOPIC_EXCEPTION"
    topics = [{"name": f"{base}.x", "num_partitions": 1, "replication_factor": 1}]
    again = wire.call("CreateTopics", 5, timeout_ms=5000, topics=topics)
    assert again.topics[0].error_code == CODES["TOPIC_ALREADY_EXISTS"]
