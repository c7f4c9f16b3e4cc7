"""Settings of topics and of the broker: what is described, taken and refused, field by field.

settings.tsv is what Apache Kafka 4.3.1 describes; `python -m compat_tests.traps.settings HOST:PORT`
writes it anew from a broker without settings of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.conftest import TARGET_SETTINGS, MakeTopic
from compat_tests.harness.waiting import eventually
from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire
from compat_tests.traps.settings import BROKER, TOPIC, Setting, described, load

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 2, 3, 4, 5
Change = tuple[str, int, str | None]

#: Ottla has defaults of its own, listens by itself and keeps one log.
OTHER_DEFAULTS = {
    *("broker.id", "fetch.max.bytes", "group.initial.rebalance.delay.ms", "listeners", "log.dir"),
    *("log.dirs", "node.id", "queued.max.request.bytes", "socket.receive.buffer.bytes"),
    "socket.send.buffer.bytes",
}
#: Kafka changes them while it runs. Ottla refuses to promise what it does not keep.
REFUSED = re.compile(
    r"ssl\..*|sasl\.(enabled\.mechanisms|jaas\.config|mechanism\.inter\.broker\.protocol)"
    r"|principal\.builder\.class|max\.connection\.creation\.rate|max\.connections\.per\.ip\.overrides"
    r"|listeners|listener\.security\.protocol\.map|config\.providers|cordoned\.log\.dirs"
    r"|metric\.reporters"
)


@pytest.fixture
def node(wire: Wire) -> str:
    return str(wire.call("Metadata", 12, topics=[]).controller_id)


def altered(
    wire: Wire, kind: int, name: str, *changes: Change, validate_only: bool = True
) -> Struct:
    configs = [{"name": k, "config_operation": op, "value": v} for k, op, v in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = wire.call(
        "IncrementalAlterConfigs", 1, resources=[resource], validate_only=validate_only
    )
    return answer.responses[0]  # type: ignore[no-any-return]


def code(wire: Wire, kind: int, name: str, *changes: Change, validate_only: bool = True) -> str:
    answer = altered(wire, kind, name, *changes, validate_only=validate_only)
    error = name_of(answer.error_code)
    assert error == "NONE" or answer.error_message, f"{error} without words"
    return error


def replaced(wire: Wire, kind: int, name: str, configs: dict[str, str]) -> str:
    """AlterConfigs, which replaces all; only to try."""
    named = [{"name": k, "value": v} for k, v in configs.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": named}
    answer = wire.call("AlterConfigs", 2, resources=[resource], validate_only=True)
    return name_of(answer.responses[0].error_code)


def value(wire: Wire, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = described(wire, kind, name, [key])
    return config.value, config.config_source


# ---------------------------------------------------------------------------------------- describe


def test_every_setting_of_a_topic_is_described_as_kafka_does(wire: Wire, topic: str) -> None:
    expected = load("topic")
    configs = {config.name: config for config in described(wire, TOPIC, topic)}
    assert configs.keys() == expected.keys()
    for name, config in configs.items():
        found = Setting.of("topic", config)
        assert found == expected[name], f"{found} is not {expected[name]}"
        assert config.documentation, name


def test_every_setting_of_the_broker_is_described_as_kafka_does(
    wire: Wire, node: str, target: str
) -> None:
    expected = load("broker")
    configs = {config.name: config for config in described(wire, BROKER, node)}
    own = {name for name in configs if name.startswith("ottla.")}
    internal = set(TARGET_SETTINGS[target])  # Kafka describes one that a file sets
    assert configs.keys() - own - internal == expected.keys() - internal
    for name, setting in expected.items():
        found = Setting.of("broker", configs[name])
        if target == "ottla":
            if name in OTHER_DEFAULTS:
                setting = setting._replace(default=found.default, synonyms=found.synonyms)
            if REFUSED.fullmatch(name):
                setting = setting._replace(read_only=True)
        assert found == setting, f"{found} is not {setting}"
        assert configs[name].documentation, name


# ------------------------------------------------------------------------------------- of topics

KEPT_OF_TOPICS = {
    "file.delete.delay.ms": "5",
    "follower.replication.throttled.replicas": "0:1,1:2",
    "index.interval.bytes": "512",
    "leader.replication.throttled.replicas": "*",
    "local.retention.bytes": "-1",
    "local.retention.ms": "700000000",  # longer than retention.ms: only looked at with tiers
    "preallocate": "true",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "remote.storage.enable": "false",
    "segment.index.bytes": "4096",
    "segment.jitter.ms": "604800001",
    "unclean.leader.election.enable": "true",
}


def test_settings_of_topics_without_effect_here_are_kept_and_described(
    wire: Wire, new_topic: MakeTopic, new_name: Callable[[], str]
) -> None:
    made = new_topic(**{key.replace(".", "_"): text for key, text in KEPT_OF_TOPICS.items()})
    plain = new_topic()
    changes = [(key, SET, text) for key, text in KEPT_OF_TOPICS.items()]
    assert code(wire, TOPIC, plain, *changes, validate_only=False) == "NONE"
    assert _own(wire, made) == KEPT_OF_TOPICS
    eventually(lambda: _own(wire, plain) == KEPT_OF_TOPICS, f"{plain} has them all")
    removed: list[Change] = [(key, DELETE, None) for key in KEPT_OF_TOPICS]
    assert code(wire, TOPIC, plain, *removed, validate_only=False) == "NONE"
    eventually(lambda: not _own(wire, plain), "back to the defaults")


def _own(wire: Wire, topic: str) -> dict[str, str | None]:
    configs = described(wire, TOPIC, topic)
    return {c.name: c.value for c in configs if c.config_source == DYNAMIC_TOPIC}


def test_settings_of_a_new_topic_without_effect_are_in_the_answer(
    wire: Wire, new_name: Callable[[], str]
) -> None:
    topic = {
        "name": new_name(),
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": k, "value": v} for k, v in KEPT_OF_TOPICS.items()],
    }
    answer = wire.call(
        "CreateTopics", 7, timeout_ms=20_000, topics=[topic], validate_only=True
    ).topics[0]
    assert name_of(answer.error_code) == "NONE", answer.error_message
    own = {c.name: c.value for c in answer.configs if c.config_source == DYNAMIC_TOPIC}
    assert own == KEPT_OF_TOPICS
    assert not any(c.read_only or c.is_sensitive for c in answer.configs)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("file.delete.delay.ms", "-1"),
        ("follower.replication.throttled.replicas", "x"),
        ("index.interval.bytes", "-1"),
        ("leader.replication.throttled.replicas", "0:x"),
        ("local.retention.bytes", "-3"),
        ("local.retention.ms", "-3"),
        ("preallocate", "perhaps"),
        ("remote.log.copy.disable", "x"),
        ("remote.storage.enable", "true"),
        ("remote.storage.enable", "x"),
        ("segment.index.bytes", "3"),
        ("segment.jitter.ms", "-1"),
        ("unclean.leader.election.enable", ""),
        ("cleanup.policy", "compact,,delete"),
    ],
)
def test_values_that_a_topic_refuses(
    wire: Wire, topic: str, new_name: Callable[[], str], key: str, text: str
) -> None:
    assert code(wire, TOPIC, topic, (key, SET, text)) == "INVALID_CONFIG"
    assert replaced(wire, TOPIC, topic, {key: text}) == "INVALID_CONFIG"
    made = {
        "name": new_name(),
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": key, "value": text}],
    }
    answer = wire.call("CreateTopics", 7, timeout_ms=20_000, topics=[made]).topics[0]
    assert name_of(answer.error_code) == "INVALID_CONFIG"


# -------------------------------------------------------------------------------- of the broker


@pytest.mark.parametrize(
    ("key", "text", "of_node", "of_all"),
    [
        # kept without effect
        ("num.io.threads", "16", "NONE", "NONE"),
        ("num.io.threads", "4", "NONE", "NONE"),
        ("num.io.threads", "17", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("num.io.threads", "3", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("num.io.threads", "0", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("num.io.threads", "many", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("num.network.threads", "6", "NONE", "NONE"),
        ("num.replica.fetchers", "3", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("num.recovery.threads.per.data.dir", "5", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("background.threads", "20", "NONE", "NONE"),
        ("log.cleaner.threads", "2", "NONE", "NONE"),
        ("log.cleaner.threads", "3", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("log.cleaner.threads", "0", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("remote.log.reader.threads", "21", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("remote.log.manager.copier.thread.pool.size", "20", "NONE", "NONE"),
        ("log.cleaner.io.max.bytes.per.second", "1e6", "NONE", "NONE"),
        ("log.cleaner.io.buffer.size", "-1", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("log.cleaner.io.buffer.load.factor", "x", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("log.preallocate", "true", "NONE", "NONE"),
        ("log.index.size.max.bytes", "3", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("log.roll.jitter.ms", "5", "NONE", "NONE"),
        ("log.roll.jitter.ms", "-1", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("log.segment.delete.delay.ms", "9", "NONE", "NONE"),
        ("log.local.retention.ms", "604800000", "NONE", "NONE"),
        ("log.local.retention.ms", "604800001", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("log.local.retention.ms", "-1", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("log.local.retention.bytes", "99", "NONE", "NONE"),
        ("unclean.leader.election.enable", "true", "NONE", "NONE"),
        ("unclean.leader.election.enable", "perhaps", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("group.consumer.assignment.interval.ms", "15000", "NONE", "NONE"),
        ("group.consumer.assignment.interval.ms", "15001", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("group.share.assignment.interval.ms", "15001", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("group.streams.assignment.interval.ms", "15001", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("group.coordinator.cached.buffer.max.bytes", "9", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("follower.replication.throttled.rate", "1000", "NONE", "NONE"),
        ("follower.replication.throttled.rate", "-1", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "1000", "NONE", "NONE"),
        # a broker's own
        ("sasl.kerberos.service.name", "kafka", "NONE", "INVALID_REQUEST"),
        ("sasl.kerberos.ticket.renew.jitter", "0.5", "NONE", "INVALID_REQUEST"),
        ("sasl.login.refresh.buffer.seconds", "60", "NONE", "INVALID_REQUEST"),
        ("sasl.login.refresh.window.factor", "x", "INVALID_REQUEST", "INVALID_REQUEST"),
        # with effect
        ("log.cleaner.backoff.ms", "100", "NONE", "NONE"),
        ("log.cleaner.backoff.ms", "-1", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("log.cleaner.dedupe.buffer.size", "1048577", "NONE", "NONE"),
        ("log.cleaner.dedupe.buffer.size", "1048576", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("producer.id.expiration.ms", "1", "NONE", "NONE"),
        ("producer.id.expiration.ms", "0", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("log.retention.ms", "0", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("log.cleanup.policy", "burn", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("max.connections", "-1", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("min.insync.replicas", "1", "INVALID_CONFIG", "NONE"),
        ("min.insync.replicas", "0", "INVALID_REQUEST", "INVALID_REQUEST"),
        # read at start
        ("num.partitions", "7", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("advertised.listeners", "PLAINTEXT://h:1", "INVALID_REQUEST", "INVALID_REQUEST"),
        ("ssl.keystore.location", "/x", "INVALID_REQUEST", "INVALID_REQUEST"),
    ],
)
def test_what_the_broker_takes_while_it_runs(
    wire: Wire, node: str, key: str, text: str, of_node: str, of_all: str
) -> None:
    assert code(wire, BROKER, node, (key, SET, text)) == of_node
    assert code(wire, BROKER, "", (key, SET, text)) == of_all
    assert replaced(wire, BROKER, node, {key: text}) == of_node
    rest = {} if key == "min.insync.replicas" else {"min.insync.replicas": "1"}
    assert replaced(wire, BROKER, "", {key: text, **rest}) == of_all


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("num.io.threads", APPEND, "1")], "INVALID_CONFIG"),
        ([("num.io.threads", SET, None)], "INVALID_REQUEST"),
        ([("num.io.threads", DELETE, None)], "NONE"),
        ([("no.such.setting", DELETE, None)], "NONE"),
        ([("num.partitions", DELETE, None)], "NONE"),
        ([("min.insync.replicas", DELETE, None)], "INVALID_CONFIG"),
        ([("num.io.threads", SET, "9"), ("num.partitions", SET, "9")], "INVALID_REQUEST"),
        (
            [("log.retention.bytes", SET, "5"), ("log.local.retention.bytes", SET, "6")],
            "INVALID_REQUEST",
        ),
        (
            [("log.retention.bytes", SET, "5"), ("log.local.retention.bytes", SET, "-1")],
            "INVALID_REQUEST",
        ),
        ([("log.retention.ms", SET, "-1"), ("log.local.retention.ms", SET, "-1")], "NONE"),
        (
            [("log.cleaner.threads", SET, "2"), ("log.cleaner.dedupe.buffer.size", SET, "1048576")],
            "INVALID_REQUEST",
        ),
    ],
)
def test_what_several_changes_of_a_broker_come_to(
    wire: Wire, node: str, changes: list[Change], expected: str
) -> None:
    assert code(wire, BROKER, node, *changes) == expected


@pytest.fixture
def restored(wire: Wire, node: str) -> Iterator[Callable[..., None]]:
    """`restored(name, changes ...)` alters the broker's settings until the test ends."""
    done: list[tuple[str, Change]] = []

    def change(name: str, *changes: Change) -> None:
        assert code(wire, BROKER, name, *changes, validate_only=False) == "NONE"
        done.extend((name, one) for one in changes)

    yield change
    for name, (key, _, _) in done:
        back: Any = (key, SET, "1") if key == "min.insync.replicas" else (key, DELETE, None)
        assert code(wire, BROKER, name, back, validate_only=False) == "NONE"
    gone = {(name, key) for name, (key, _, _) in done if key != "min.insync.replicas"}
    eventually(lambda: not any(_is_set(wire, *one) for one in gone), f"{gone} are gone")


def _is_set(wire: Wire, name: str, key: str) -> bool:
    source = DYNAMIC_BROKER if name else DYNAMIC_DEFAULT
    return any(config.config_source == source for config in described(wire, BROKER, name, [key]))


def test_kept_settings_of_the_broker_show_in_every_layer(
    wire: Wire, node: str, topic: str, restored: Callable[..., None]
) -> None:
    restored(
        node,
        ("num.io.threads", SET, " 10"),
        ("log.preallocate", SET, "true"),
        ("leader.replication.throttled.rate", SET, "1000"),
    )
    restored("", ("num.io.threads", SET, "12"))
    # what was altered of the cluster shows last
    eventually(lambda: len(_layers(wire, node)) == 3, "the cluster's value shows")
    (threads,) = described(wire, BROKER, node, ["num.io.threads"])
    assert (threads.value, threads.config_source) == ("10", DYNAMIC_BROKER)
    assert [source for _, source in _layers(wire, node)] == [
        DYNAMIC_BROKER,
        DYNAMIC_DEFAULT,
        DEFAULT,
    ]
    assert value(wire, BROKER, "", "num.io.threads") == ("12", DYNAMIC_DEFAULT)
    assert value(wire, TOPIC, topic, "preallocate") == ("true", DYNAMIC_BROKER)
    (rate,) = described(wire, BROKER, node, ["leader.replication.throttled.rate"])
    assert (rate.value, rate.config_type, rate.read_only) == ("1000", 5, False)
    assert [(s.name, s.source) for s in rate.synonyms] == [(rate.name, DYNAMIC_BROKER)]


def _layers(wire: Wire, node: str) -> list[tuple[str, int]]:
    (threads,) = described(wire, BROKER, node, ["num.io.threads"])
    return [(synonym.value, synonym.source) for synonym in threads.synonyms]


def test_min_insync_replicas_is_a_setting_of_the_cluster(
    wire: Wire, node: str, topic: str, restored: Callable[..., None]
) -> None:
    key = "min.insync.replicas"
    for kind, name in ((BROKER, ""), (BROKER, node), (TOPIC, topic)):
        assert value(wire, kind, name, key) == ("1", DYNAMIC_DEFAULT)
    (config,) = described(wire, TOPIC, topic, [key])
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        (key, "1", DYNAMIC_DEFAULT),
        (key, "1", DEFAULT),
    ]
    refused = altered(wire, BROKER, node, (key, SET, "2"))
    assert name_of(refused.error_code) == "INVALID_CONFIG"
    assert key in refused.error_message
    assert replaced(wire, BROKER, "", {}) == "INVALID_CONFIG", "it would be removed"
    restored("", (key, SET, "2"))
    eventually(lambda: value(wire, TOPIC, topic, key) == ("2", DYNAMIC_DEFAULT), "topics follow")


def test_eligible_leader_replicas_are_announced_and_described(wire: Wire, topic: str) -> None:
    answer = wire.call("ApiVersions", 4, client_software_name="raw", client_software_version="1")
    supported = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
    finalized = {f.name: f.max_version_level for f in answer.finalized_features}
    assert supported["eligible.leader.replicas.version"][1] == 1
    assert finalized["eligible.leader.replicas.version"] == 1
    assert supported["kraft.version"][0] == 0
    assert "kraft.version" not in finalized, "level 0: the quorum does not change"
    found = wire.call("DescribeTopicPartitions", 0, topics=[{"name": topic}]).topics[0]
    (partition,) = found.partitions
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


def test_a_setting_that_is_deleted_step_by_step_keeps_to_its_steps(
    wire: Wire, node: str, restored: Callable[..., None]
) -> None:
    """A pool at four times its size is not let go in one step, as it was not let grow in one."""
    restored(node, ("num.io.threads", SET, "16"))
    eventually(lambda: _layers(wire, node)[0] == ("16", DYNAMIC_BROKER), "16")
    assert code(wire, BROKER, node, ("num.io.threads", SET, "32"), validate_only=False) == "NONE"
    eventually(lambda: _layers(wire, node)[0] == ("32", DYNAMIC_BROKER), "32")
    assert code(wire, BROKER, node, ("num.io.threads", DELETE, None)) == "INVALID_REQUEST"
    assert code(wire, BROKER, node, ("num.io.threads", SET, "16"), validate_only=False) == "NONE"
    eventually(lambda: _layers(wire, node)[0] == ("16", DYNAMIC_BROKER), "16")
