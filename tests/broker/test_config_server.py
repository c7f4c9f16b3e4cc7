"""The broker's settings: layers, aliases, what is refused and what is only said."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.config_page import MARKER, PAGE
from tests.broker.config_page import tables as config_tables

from ottla.broker.config import ServerConfig, Setting, Source, default_text, load
from ottla.broker.config_honoured import BROKER, TOPIC
from ottla.broker.config_kept import BROKER_KEPT, TOPIC_KEPT
from ottla.broker.config_keys import broker_key, keys
from ottla.broker.config_values import ConfigError
from ottla.broker.topic_config import TopicConfig, effective

SOURCES = Path(__file__).parents[2]


def test_without_any_setting_the_broker_keeps_to_the_machine_and_to_the_disk() -> None:
    config = ServerConfig()
    (listener,) = config.listeners
    assert (listener.host, listener.port) == ("127.0.0.1", 9092)
    assert config.data_dir == Path("ottla-data")
    assert config.ottla_durability == "fsync"
    assert config.group_initial_rebalance_delay_ms == 0
    assert config.node_id == 1


def test_every_honoured_key_is_a_key() -> None:
    assert all(broker_key(name) for name in BROKER)
    assert TOPIC.keys() <= keys("topic").keys()


def test_every_topic_setting_we_act_on_has_its_field() -> None:
    fields = set(TopicConfig.__dataclass_fields__)
    assert fields == {name.replace(".", "_") for name in TOPIC}


def test_every_honoured_broker_key_is_read_somewhere() -> None:
    """An option that is accepted and ignored is worse than one that is refused."""
    code = "".join(
        path.read_text()
        for folder in ("broker", "group", "log")
        for path in (SOURCES / folder).rglob("*.py")
        if path.name not in ("config_honoured.py", "config_keys.py")
    )
    inherited = {synonym.name for key in keys("topic").values() for synonym in key.synonyms}
    for name in BROKER:
        read = f".{name.replace('.', '_')}" in code or f'"{name}"' in code
        assert read or name in inherited, f"nothing reads {name}"


def test_what_changes_while_running_is_what_topics_inherit_or_is_read_each_time() -> None:
    """A setting that is copied at start must not claim to be dynamic."""
    inherited = {synonym.name for key in keys("topic").values() for synonym in key.synonyms}
    read_each_time = {
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "max.connections",
        "max.connections.per.ip",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
    }
    dynamic = {name for name, honoured in BROKER.items() if honoured.dynamic}
    assert dynamic <= inherited | read_each_time
    assert all(keys("broker")[name].update != "read-only" for name in dynamic), "nor in Kafka"


def test_each_setting_that_is_dynamic_in_kafka_is_acted_on_kept_or_refused_on_purpose() -> None:
    found = {**keys("broker"), **keys("dynamic")}
    changing = {name for name, key in found.items() if key.update != "read-only"}
    honoured = {name for name, setting in BROKER.items() if setting.dynamic}
    assert changing - honoured - BROKER_KEPT.keys() == {
        # security, which would not be there
        *(name for name in changing if name.startswith("ssl.")),
        "principal.builder.class",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.mechanism.inter.broker.protocol",
        # limits that are not kept
        "max.connection.creation.rate",
        "max.connections.per.ip.overrides",
        # what acts at once in Kafka and cannot here
        "config.providers",
        "cordoned.log.dirs",
        "listener.security.protocol.map",
        "listeners",
        "metric.reporters",
    }
    assert not honoured & BROKER_KEPT.keys()
    assert BROKER_KEPT.keys() <= changing


def test_every_setting_of_a_topic_is_acted_on_or_kept() -> None:
    public = {name for name, key in keys("topic").items() if not key.internal}
    assert public == TOPIC.keys() | TOPIC_KEPT.keys()
    assert not TOPIC.keys() & TOPIC_KEPT.keys()


# ------------------------------------------------------------------------------------------- layers


def test_node_wins_over_cluster_over_file_over_default() -> None:
    config = ServerConfig({"message.max.bytes": "10"})
    names = ["message.max.bytes"]
    assert config.settings(names) == [
        Setting("message.max.bytes", "10", Source.STATIC),
        Setting("message.max.bytes", "1048588", Source.DEFAULT),
    ]
    config.set_dynamic({"message.max.bytes": "20"}, {})
    assert config.text("message.max.bytes") == "20"
    config.set_dynamic({"message.max.bytes": "20"}, {"message.max.bytes": "30"})
    assert [s.value for s in config.settings(names)] == ["30", "20", "10", "1048588"]
    assert [s.source for s in config.settings(names)] == [
        Source.NODE,
        Source.CLUSTER,
        Source.STATIC,
        Source.DEFAULT,
    ]


def test_attributes_follow_dynamic_settings() -> None:
    config = ServerConfig()
    config.set_dynamic({"max.connections.per.ip": "3"}, {})
    assert config.max_connections_per_ip == 3
    config.set_dynamic({}, {})
    assert config.max_connections_per_ip == 2**31 - 1


def test_a_dynamic_setting_that_cannot_be_read_changes_nothing() -> None:
    config = ServerConfig()
    with pytest.raises(ConfigError):
        config.set_dynamic({"max.connections": "many"}, {})
    assert config.cluster == {"min.insync.replicas": "1"}
    assert config.max_connections == 2**31 - 1


def test_the_cluster_has_the_files_min_insync_replicas_until_it_is_altered() -> None:
    config = ServerConfig({"min.insync.replicas": "2"})
    assert config.settings(["min.insync.replicas"]) == [
        Setting("min.insync.replicas", "2", Source.CLUSTER),
        Setting("min.insync.replicas", "2", Source.STATIC),
        Setting("min.insync.replicas", "1", Source.DEFAULT),
    ]
    config.set_dynamic({"min.insync.replicas": "3"}, {})
    assert effective(config, {}).min_insync_replicas == 3


def test_our_default_where_it_is_not_kafkas() -> None:
    assert keys("broker")["group.initial.rebalance.delay.ms"].default == "3000"
    assert default_text("group.initial.rebalance.delay.ms") == "0"
    assert default_text("num.partitions") == "1"


# ---------------------------------------------------------------------------------- topic defaults


@pytest.mark.parametrize(
    ("static", "expected"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-7"}, -1),
    ],
)
def test_retention_comes_from_ms_before_minutes_before_hours(
    static: dict[str, str], expected: int
) -> None:
    assert effective(ServerConfig(static), {}).retention_ms == expected


def test_hours_of_a_higher_layer_do_not_beat_milliseconds() -> None:
    config = ServerConfig({"log.retention.ms": "4"})
    config.set_dynamic({"log.retention.ms": "9"}, {})
    assert effective(config, {}).retention_ms == 9


@pytest.mark.parametrize(
    ("static", "expected"),
    [({}, 604_800_000), ({"log.roll.hours": "1"}, 3_600_000), ({"log.roll.ms": "5"}, 5)],
)
def test_roll_comes_from_ms_before_hours(static: dict[str, str], expected: int) -> None:
    assert effective(ServerConfig(static), {}).segment_ms == expected


def test_a_topics_own_setting_wins() -> None:
    config = ServerConfig({"message.max.bytes": "10"})
    assert effective(config, {}).max_message_bytes == 10
    assert effective(config, {"max.message.bytes": "11"}).max_message_bytes == 11


# --------------------------------------------------------------------------------------- load: told


def test_a_server_properties_of_kafka_starts_us_and_is_told_once_what_has_no_effect() -> None:
    config, notices = load(
        {
            "broker.id": "7",
            "num.network.threads": "3",
            "num.io.threads": "8",
            "zookeeper.connect": "zk:2181",
            "super.users": "User:admin",
            "listener.name.internal.ssl.client.auth": "none",
            "log.dirs": "/data",
            "offsets.topic.replication.factor": "1",
        }
    )
    assert config.node_id == 7
    assert config.text("broker.id") == "7"
    assert notices == [
        "unknown setting zookeeper.connect is ignored",
        "these settings have no effect in Ottla: listener.name.internal.ssl.client.auth,"
        " num.io.threads, num.network.threads, offsets.topic.replication.factor, super.users",
    ]


def test_a_misspelt_setting_is_told_what_was_meant() -> None:
    _, notices = load({"num.partition": "3"})
    assert notices == ["unknown setting num.partition is ignored; did you mean num.partitions?"]


def test_a_setting_of_clients_is_not_taken_for_another_one() -> None:
    _, notices = load({"group.protocol": "consumer"})
    assert notices == ["unknown setting group.protocol is ignored"]


def test_more_replicas_than_there_are_nodes_is_told() -> None:
    _, notices = load({"default.replication.factor": "3"})
    assert len(notices) == 1
    assert notices[0].startswith("default.replication.factor=3 is ignored: a single node keeps")


def test_node_id_wins_over_broker_id_and_log_dirs_over_log_dir() -> None:
    config = ServerConfig({"broker.id": "2", "node.id": "3", "log.dir": "/a", "log.dirs": "/b"})
    assert (config.node_id, config.text("broker.id"), config.log_dirs) == (3, "3", ("/b",))
    assert ServerConfig({"log.dir": "/a"}).log_dirs == ("/a",)
    assert ServerConfig({"broker.id": "-1"}).node_id == 1


# ------------------------------------------------------------------------------------ load: refused


@pytest.mark.parametrize(
    ("static", "says"),
    [
        ({"num.partitions": "0"}, "num.partitions=0: must be at least 1"),
        ({"log.dirs": "/a,/b"}, "log.dirs=/a,/b: must name one folder"),
        ({"log.dirs": ""}, "log.dirs=: must name one folder"),
        ({"process.roles": "controller"}, "process.roles=controller: must hold broker"),
        ({"authorizer.class.name": "x.Y"}, "authorizer.class.name=x.Y: access rules are not"),
        ({"group.min.session.timeout.ms": "1800001"}, "must be at most 1800000"),
        ({"log.retention.ms": "0"}, "log.retention.ms=0: must be at least 1"),
        ({"ottla.durability": "maybe"}, "ottla.durability=maybe: must be one of fsync, os"),
        (
            {"ottla.durability": "os", "log.flush.interval.messages": "1"},
            "log.flush.interval.messages=1: ottla.durability=os never forces a flush",
        ),
        ({"no.such.key": "1"}, "no.such.key: is not a setting"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_way_out(static: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerConfig(static)
    assert says in str(caught.value)


def test_never_flushing_goes_with_the_durability_that_never_does() -> None:
    """Testcontainers sets this: in Kafka's words, never force a flush."""
    ServerConfig({"ottla.durability": "os", "log.flush.interval.messages": str(2**63 - 1)})
    ServerConfig({"log.flush.interval.messages": "1"})


def test_the_page_about_the_settings_says_what_the_tables_say() -> None:
    _, marker, tables = PAGE.read_text().partition(MARKER)
    assert marker + tables == config_tables(), "run: python -m tests.broker.config_page"
