"""Administration, with every client that can."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Admin, Client, Failed, Message, Partition, Received
from compat_tests.conftest import SETTINGS, MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually

NewName = Callable[[], str]


def leaders(admin: Admin, topic: str) -> dict[int, int]:
    """Empty as long as the topic is not there."""
    try:
        return admin.describe_topic(topic).leaders
    except Failed as error:
        if error.error != "UNKNOWN_TOPIC_OR_PARTITION":
            raise
        return {}


@for_clients()
def test_topics(client: Client, new_name: NewName) -> None:
    topic = new_name()
    with client.admin() as admin:
        admin.create_topic(topic, 4, {"retention.ms": "100000"})
        eventually(lambda: len(leaders(admin, topic)) == 4, "four partitions")
        assert set(leaders(admin, topic)) == {0, 1, 2, 3}
        assert topic in admin.list_topics()
        with pytest.raises(Failed) as told:
            admin.create_topic(topic, 4, {})
        assert told.value.error == "TOPIC_ALREADY_EXISTS"
        admin.delete_topic(topic)
        eventually(lambda: topic not in admin.list_topics(), "deleted")
        with pytest.raises(Failed) as told:
            admin.delete_topic(topic)
        assert told.value.error == "UNKNOWN_TOPIC_OR_PARTITION"


@for_clients()
def test_a_bad_topic_config_is_refused(client: Client, new_name: NewName) -> None:
    with client.admin() as admin, pytest.raises(Failed) as told:
        admin.create_topic(new_name(), 1, {"cleanup.policy": "burn"})
    assert told.value.error == "INVALID_CONFIG"


@for_clients("create_partitions")
def test_partitions_are_added(client: Client, topic: str) -> None:
    with client.producer() as producer, client.admin() as admin:
        producer.send_all([Message(topic, b"old")])
        admin.create_partitions(topic, 3)
        eventually(lambda: len(leaders(admin, topic)) == 3, "three partitions")
        with pytest.raises(Failed) as told:
            admin.create_partitions(topic, 2)
        assert told.value.error == "INVALID_PARTITIONS"
    # a client that learns of the new partition only now
    with client.producer() as producer:
        producer.send_all([Message(topic, b"new", partition=2)])
    got = client.read({Partition(topic, p): 0 for p in range(3)}, 2)
    assert {(r.partition, r.value) for r in got} == {(0, b"old"), (2, b"new")}


@for_clients("describe_configs")
def test_configs_of_a_topic_and_of_the_broker(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(retention_ms=4321)
    with client.admin() as admin:
        configs = admin.describe_configs("TOPIC", topic)
        assert configs["retention.ms"] == "4321"
        assert configs["cleanup.policy"] == "delete"
        node = str(admin.describe_cluster().controller)
        assert (
            admin.describe_configs("BROKER", node)["num.partitions"] == SETTINGS["num.partitions"]
        )


@for_clients("describe_configs", without=("kafka-python",))  # which drops the error
def test_configs_of_a_missing_topic(client: Client, new_name: NewName) -> None:
    with client.admin() as admin, pytest.raises(Failed) as told:
        admin.describe_configs("TOPIC", new_name())
    assert told.value.error == "UNKNOWN_TOPIC_OR_PARTITION"


@for_clients("incremental_alter_configs")
def test_configs_are_altered_one_by_one(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(retention_ms=4321, segment_ms=1111111)
    with client.admin() as admin:

        def configs() -> dict[str, str | None]:
            return admin.describe_configs("TOPIC", topic)

        admin.incremental_alter_configs(
            "TOPIC", topic, {"retention.ms": "99999", "max.message.bytes": "2000"}
        )
        eventually(lambda: configs()["retention.ms"] == "99999", "the new value")
        assert (configs()["max.message.bytes"], configs()["segment.ms"]) == ("2000", "1111111")
        admin.incremental_alter_configs("TOPIC", topic, {"retention.ms": None})
        eventually(lambda: configs()["retention.ms"] == "604800000", "the default")
        with pytest.raises(Failed) as told:
            admin.incremental_alter_configs("TOPIC", topic, {"retention.ms": "soon"})
        assert told.value.error == "INVALID_CONFIG"
    with client.producer() as producer, pytest.raises(Failed) as told:
        producer.send_all([Message(topic, bytes(3000))])
    assert told.value.error == "MESSAGE_TOO_LARGE", "the new limit holds"


@for_clients("incremental_alter_configs")
def test_settings_without_effect_here_are_kept(client: Client, new_name: NewName) -> None:
    """Tools and frameworks give them to every topic they make."""
    topic = new_name()
    with client.admin() as admin:
        admin.create_topic(topic, 1, {"segment.index.bytes": "1048576", "preallocate": "false"})

        def configs() -> dict[str, str | None]:
            return admin.describe_configs("TOPIC", topic)

        eventually(lambda: leaders(admin, topic), "the topic")
        assert configs()["segment.index.bytes"] == "1048576"
        admin.incremental_alter_configs("TOPIC", topic, {"unclean.leader.election.enable": "true"})
        eventually(lambda: configs()["unclean.leader.election.enable"] == "true", "the new value")
        with pytest.raises(Failed) as told:
            admin.incremental_alter_configs("TOPIC", topic, {"remote.storage.enable": "true"})
        assert told.value.error == "INVALID_CONFIG"


@for_clients("incremental_alter_configs")
def test_settings_of_the_running_broker_are_altered_and_checked(client: Client) -> None:
    with client.admin() as admin:
        node = str(admin.describe_cluster().controller)

        def has(key: str, text: str) -> bool:
            return admin.describe_configs("BROKER", node)[key] == text

        changes = {"log.cleaner.threads": "2", "log.cleaner.backoff.ms": "14000"}
        admin.incremental_alter_configs("BROKER", node, changes)
        eventually(lambda: all(has(*one) for one in changes.items()), f"{changes}")
        for key, text, error in (
            ("log.cleaner.threads", "5", "INVALID_REQUEST"),  # more than the double
            ("min.insync.replicas", "1", "INVALID_CONFIG"),  # the cluster's
            ("num.partitions", "5", "INVALID_REQUEST"),  # read at start
        ):
            with pytest.raises(Failed) as told:
                admin.incremental_alter_configs("BROKER", node, {key: text})
            assert told.value.error == error, key
        admin.incremental_alter_configs("BROKER", node, dict.fromkeys(changes))
        eventually(lambda: has("log.cleaner.backoff.ms", "15000"), "the default")


@for_clients("alter_configs", without=("kafka-python",))  # adds what is there by itself
def test_configs_are_replaced_by_the_older_call(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(retention_ms=4321, segment_ms=1111111)
    with client.admin() as admin:
        admin.alter_configs("TOPIC", topic, {"retention.ms": "5432"})
        eventually(
            lambda: admin.describe_configs("TOPIC", topic)["segment.ms"] == "604800000",
            "what was left out has its default again",
        )
        assert admin.describe_configs("TOPIC", topic)["retention.ms"] == "5432"


@for_clients("log_dirs")
def test_log_dirs_tell_sizes(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(2)
    with client.producer() as producer, client.admin() as admin:
        producer.send_all([Message(topic, bytes(range(256)) * 40, partition=1)])
        eventually(lambda: admin.log_dirs().get(Partition(topic, 1), 0) > 10_000, "its size")
        assert admin.log_dirs()[Partition(topic, 0)] < 5000


@for_clients("describe_cluster")
def test_the_cluster(client: Client, broker: Broker) -> None:
    with client.admin() as admin:
        cluster = admin.describe_cluster()
    assert cluster.nodes == [broker.bootstrap]
    assert cluster.cluster_id
    assert cluster.controller >= 0


@for_clients("delete_records")
def test_delete_records_beyond_the_end_is_refused(client: Client, topic: str) -> None:
    with client.producer() as producer:
        producer.send_all([Message(topic, b"x")])
    with client.admin() as admin, pytest.raises(Exception, match=r"(?i)offset.*out.*range|error 1"):
        admin.delete_records({Partition(topic, 0): 2})


@for_clients()
def test_a_topic_is_made_on_first_use(client: Client, new_name: NewName) -> None:
    topic = new_name()
    with client.producer() as producer:
        producer.send_all([Message(topic, b"made by writing")])
    with client.admin() as admin:
        assert len(leaders(admin, topic)) == int(SETTINGS["num.partitions"])
    (got,) = client.read({Partition(topic, 0): 0}, 1)
    assert got.value == b"made by writing"


@for_clients()
def test_a_topic_made_again_is_another_topic(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic()
    partition = Partition(topic, 0)

    def read_one() -> Received:
        (got,) = client.read({partition: 0}, 1, auto_offset_reset="earliest")
        return got

    with client.admin() as admin:
        before = admin.describe_topic(topic).topic_id
        with client.producer() as producer:
            producer.send_all([Message(topic, b"old"), Message(topic, b"older")])
        assert client.read({partition: 0}, 2)[0].value == b"old"
        admin.delete_topic(topic)
        eventually(lambda: topic not in admin.list_topics(), "deleted")
        admin.create_topic(topic, 1, {})
        eventually(lambda: leaders(admin, topic), "made again")
        after = admin.describe_topic(topic).topic_id
    assert before is None or before != after
    with client.producer() as producer:
        (ack,) = producer.send_all([Message(topic, b"new")])
    assert ack.offset == 0
    assert read_one().value == b"new"


@for_clients("incremental_alter_configs")
def test_retention_by_time_deletes_old_records(client: Client, new_topic: MakeTopic) -> None:
    """Also where no newer record closes the file they are in."""
    topic = new_topic(retention_ms=600_000)
    partition = Partition(topic, 0)
    old = int(time.time() * 1000) - 3_600_000
    with client.producer() as producer, client.consumer() as consumer:
        producer.send_all([Message(topic, b"old", timestamp=old) for _ in range(3)])
        eventually(lambda: consumer.beginning_offsets([partition])[partition] == 3, "old ones gone")
        producer.send_all([Message(topic, b"new")])
        assert consumer.beginning_offsets([partition]) == {partition: 3}
        assert consumer.end_offsets([partition]) == {partition: 4}


@for_clients("incremental_alter_configs")
def test_retention_by_size_deletes_the_oldest(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(retention_bytes=1 << 20, segment_bytes=1 << 20)
    partition = Partition(topic, 0)
    with client.producer(linger_ms=5) as producer, client.consumer() as consumer:
        for _ in range(10):  # whole commits go: one must not hold nearly all
            producer.send_all([Message(topic, b"x" * 50_000) for _ in range(10)])

        def first() -> int:
            return consumer.beginning_offsets([partition])[partition]

        # 5 MB sent; about 1 MiB is to stay, and never less
        eventually(lambda: first() >= 50, "the oldest gone")
        assert first() <= 100 - (1 << 20) // 50_200
        assert consumer.end_offsets([partition]) == {partition: 100}
