"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources (trap 49)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Client, Harness

from ottla.broker import config_kept
from ottla.broker.altering import MOST_SETTINGS
from ottla.broker.config_honoured import BROKER as HONOURED
from ottla.broker.config_kept import BROKER_KEPT
from ottla.broker.config_keys import keys
from ottla.broker.metadata import ResourceType
from ottla.wire.api import alter_configs as legacy
from ottla.wire.api import incremental_alter_configs as incremental
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.list_config_resources import ListConfigResourcesRequest
from ottla.wire.errors import Error

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
FROM_TOPIC, FROM_NODE, FROM_CLUSTER, FROM_FILE, FROM_DEFAULT, FROM_LOGGER = 1, 2, 3, 4, 5, 6


def describe(client: Client, kind: int, name: str, *asked: str, version: int = 4) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(asked) or None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=version >= 3
    )
    return client.call(request, version).results[0]


def value(client: Client, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = describe(client, kind, name, key).configs
    return config.value, config.config_source


def alter(
    client: Client,
    kind: int,
    name: str,
    *steps: tuple[str, int, str | None],
    validate_only: bool = False,
) -> Error:
    configs = [
        incremental.AlterableConfig(name=key, config_operation=op, value=text)
        for key, op, text in steps
    ]
    resource = incremental.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    (answer,) = client.call(request, 1).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return Error(answer.error_code)


def replace(client: Client, kind: int, name: str, **configs: str | None) -> Error:
    resource = legacy.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            legacy.AlterableConfig(name=key.replace("_", "."), value=text)
            for key, text in configs.items()
        ],
    )
    (answer,) = client.call(legacy.AlterConfigsRequest(resources=[resource]), 2).responses
    return Error(answer.error_code)


# ----------------------------------------------------------------------------------------- describe


def test_a_topic_has_every_setting_of_kafka_with_type_source_and_synonyms(
    harness: Harness, client: Client
) -> None:
    harness.topic("a", 1, retention_ms="5")
    found = {config.name: config for config in describe(client, TOPIC, "a").configs}
    assert found.keys() == {name for name, key in keys("topic").items() if not key.internal}
    retention = found["retention.ms"]
    assert (retention.value, retention.config_source, retention.config_type) == ("5", 1, 5)
    assert (retention.read_only, retention.is_sensitive) == (False, False)
    assert retention.documentation
    size = found["max.message.bytes"]
    assert [(s.name, s.value, s.source) for s in size.synonyms] == [
        ("message.max.bytes", "1048588", FROM_DEFAULT)
    ]
    assert not any(config.read_only for config in found.values())
    assert found["preallocate"].documentation.startswith("Kept and described, without effect: ")
    assert [found[name].config_type for name in ("cleanup.policy", "preallocate")] == [7, 1]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_describe_configs_in_every_version(harness: Harness, client: Client, version: int) -> None:
    harness.topic("a")
    (config,) = describe(client, TOPIC, "a", "retention.ms", version=version).configs
    assert config.value == "604800000"
    assert bool(config.documentation) == (version >= 3)


def test_synonyms_are_named_layer_by_layer(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "d", message_max_bytes="1")
    client = harness.client()
    assert alter(client, BROKER, "", ("message.max.bytes", SET, "2")) is Error.NONE
    assert alter(client, BROKER, "1", ("message.max.bytes", SET, "3")) is Error.NONE
    (config,) = describe(client, BROKER, "1", "message.max.bytes").configs
    assert [(s.value, s.source) for s in config.synonyms] == [
        ("3", FROM_NODE),
        ("2", FROM_CLUSTER),
        ("1", FROM_FILE),
        ("1048588", FROM_DEFAULT),
    ]
    (config,) = describe(client, BROKER, "", "message.max.bytes").configs
    assert (config.name, config.value, config.config_source) == (
        "message.max.bytes",
        "2",
        FROM_CLUSTER,
    )
    assert [s.source for s in config.synonyms] == [FROM_CLUSTER]
    harness.store.close()


def test_hours_do_not_show_as_a_synonym_of_milliseconds_that_nobody_set(
    harness: Harness, client: Client
) -> None:
    harness.topic("a")
    (config,) = describe(client, TOPIC, "a", "retention.ms").configs
    assert (config.value, config.config_source, config.synonyms) == ("604800000", 5, [])
    (config,) = describe(client, BROKER, "1", "log.retention.ms").configs
    assert (config.value, config.synonyms) == (None, [])


def test_the_broker_shows_every_key_and_only_what_takes_effect_at_once_as_alterable(
    client: Client,
) -> None:
    found = {config.name: config for config in describe(client, BROKER, "1").configs}
    kafkas = {name for name, key in keys("broker").items() if not key.internal}
    assert kafkas <= found.keys()
    assert {name for name in found if name not in kafkas} == {
        name for name in found if name.startswith("ottla.")
    }
    alterable = {name for name, config in found.items() if not config.read_only}
    dynamic = {name for name, honoured in HONOURED.items() if honoured.dynamic}
    assert alterable == dynamic | (BROKER_KEPT.keys() - keys("dynamic").keys())


def test_secrets_are_never_answered(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "d", ssl_key_password="hunter2")
    (config,) = describe(harness.client(), BROKER, "1", "ssl.key.password").configs
    assert (config.value, config.is_sensitive) == (None, True)
    assert [s.value for s in config.synonyms] == [None]
    harness.store.close()


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "none", Error.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", Error.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", Error.INVALID_REQUEST),
        (BROKER, "x", Error.INVALID_REQUEST),
        (LOGGER, "", Error.INVALID_REQUEST),
        (LOGGER, "2", Error.INVALID_REQUEST),
        (GROUP, "", Error.INVALID_REQUEST),
        (METRICS, "", Error.INVALID_REQUEST),
        (0, "a", Error.INVALID_REQUEST),
        (3, "a", Error.INVALID_REQUEST),
    ],
)
def test_what_describe_configs_refuses(client: Client, kind: int, name: str, error: Error) -> None:
    found = describe(client, kind, name)
    assert (Error(found.error_code), found.configs) == (error, [])
    assert (found.resource_type, found.resource_name) == (kind, name)


def test_no_keys_asked_for_are_all(harness: Harness, client: Client) -> None:
    harness.topic("a")
    resource = DescribeConfigsResource(
        resource_type=TOPIC, resource_name="a", configuration_keys=[]
    )
    (found,) = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert len(found.configs) == 33
    assert len(describe(client, TOPIC, "a", "retention.ms", "no.such").configs) == 1


def test_groups_and_client_metrics_have_kafkas_defaults(client: Client) -> None:
    assert len(describe(client, GROUP, "g").configs) == 17
    assert value(client, GROUP, "g", "consumer.session.timeout.ms") == ("45000", FROM_DEFAULT)
    assert [config.name for config in describe(client, METRICS, "m").configs] == [
        "interval.ms",
        "match",
        "metrics",
    ]


# ------------------------------------------------------------------------------- alter: topics


def test_set_delete_append_subtract(harness: Harness, client: Client) -> None:
    harness.topic("a")
    assert alter(client, TOPIC, "a", ("retention.ms", SET, " 7 ")) is Error.NONE
    assert value(client, TOPIC, "a", "retention.ms") == ("7", FROM_TOPIC)
    assert alter(client, TOPIC, "a", ("retention.ms", DELETE, "x")) is Error.NONE
    assert value(client, TOPIC, "a", "retention.ms") == ("604800000", FROM_DEFAULT)
    for op, word, then in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
    ):
        assert alter(client, TOPIC, "a", ("cleanup.policy", op, word)) is Error.NONE
        assert value(client, TOPIC, "a", "cleanup.policy") == (then, FROM_TOPIC)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (("retention.ms", APPEND, "5"), Error.INVALID_CONFIG),
        (("retention.ms", SET, None), Error.INVALID_REQUEST),
        (("retention.ms", SET, "-2"), Error.INVALID_CONFIG),
        (("retention.ms", SET, ""), Error.INVALID_CONFIG),
        (("retention.ms", 9, "5"), Error.INVALID_REQUEST),
        (("no.such", SET, "5"), Error.INVALID_CONFIG),
        (("no.such", APPEND, "5"), Error.INVALID_CONFIG),
        (("segment.ms", SET, "5"), Error.INVALID_REQUEST),  # the name twice
        (("unclean.leader.election.enable", SET, "perhaps"), Error.INVALID_CONFIG),
        (("file.delete.delay.ms", SET, "-1"), Error.INVALID_CONFIG),
        (("remote.storage.enable", SET, "true"), Error.INVALID_CONFIG),
        (("leader.replication.throttled.replicas", SET, "all"), Error.INVALID_CONFIG),
        (("min.compaction.lag.ms", SET, "x"), Error.INVALID_CONFIG),
    ],
)
def test_what_a_topic_refuses_leaves_it_as_it_was(
    harness: Harness, client: Client, step: tuple[str, int, str | None], error: Error
) -> None:
    harness.topic("a")
    assert alter(client, TOPIC, "a", ("segment.ms", SET, "77"), step) is error
    found = harness.broker.topics.get("a")
    assert found is not None
    assert found.configs == {}


def test_only_to_try_and_what_is_not_there(harness: Harness, client: Client) -> None:
    harness.topic("a")
    step = ("retention.ms", SET, "7")
    assert alter(client, TOPIC, "a", step, validate_only=True) is Error.NONE
    assert value(client, TOPIC, "a", "retention.ms") == ("604800000", FROM_DEFAULT)
    assert alter(client, TOPIC, "b", step) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(client, TOPIC, "", step) is Error.INVALID_REQUEST
    assert alter(client, TOPIC, "a b", step) is Error.INVALID_TOPIC_EXCEPTION
    assert alter(client, TOPIC, "a", ("no.such", DELETE, None)) is Error.NONE


def test_a_resource_twice_is_refused_both_times(harness: Harness, client: Client) -> None:
    harness.topic("a")
    config = incremental.AlterableConfig(name="retention.ms", value="7")
    resource = incremental.AlterConfigsResource(
        resource_type=TOPIC, resource_name="a", configs=[config]
    )
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource, resource])
    codes = [answer.error_code for answer in client.call(request, 1).responses]
    assert codes == [Error.INVALID_REQUEST, Error.INVALID_REQUEST]


def test_changes_in_flight_build_on_each_other(harness: Harness) -> None:
    harness.topic("a")
    one, two = harness.client(), harness.client()
    for client, word in ((one, "compact"), (two, "delete")):
        op = APPEND if word == "compact" else SUBTRACT
        config = incremental.AlterableConfig(name="cleanup.policy", config_operation=op, value=word)
        resource = incremental.AlterConfigsResource(
            resource_type=TOPIC, resource_name="a", configs=[config]
        )
        request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
        client.connection.feed(client.frame(request, 1))
    harness.turn()
    assert [client.receive().responses[0].error_code for client in (one, two)] == [0, 0]
    assert value(one, TOPIC, "a", "cleanup.policy") == ("compact", FROM_TOPIC)


# ------------------------------------------------------------------------------- alter: broker


def test_a_setting_of_the_broker_takes_effect_at_once(harness: Harness, client: Client) -> None:
    harness.topic("a")
    assert alter(client, BROKER, "1", ("log.retention.ms", SET, "9")) is Error.NONE
    assert value(client, TOPIC, "a", "retention.ms") == ("9", FROM_NODE)
    (number,) = harness.broker.topics.get("a").partitions  # type: ignore[union-attr]
    assert harness.store.settings(number).retention_ms == 9
    assert alter(client, BROKER, "", ("max.connections.per.ip", SET, "3")) is Error.NONE
    assert harness.broker.config.max_connections_per_ip == 3
    assert alter(client, BROKER, "1", ("log.retention.ms", DELETE, None)) is Error.NONE
    assert value(client, TOPIC, "a", "retention.ms") == ("604800000", FROM_DEFAULT)


def test_every_setting_that_is_listed_as_alterable_can_be_altered(
    harness: Harness, client: Client
) -> None:
    harness.topic("a")
    for config in describe(client, BROKER, "1").configs:
        if not config.read_only:
            text = config.value if config.value is not None else "100"
            node = "" if config.name == "min.insync.replicas" else "1"
            assert alter(client, BROKER, node, (config.name, SET, text)) is Error.NONE, config.name
    for config in describe(client, TOPIC, "a").configs:
        expected = Error.NONE
        assert alter(client, TOPIC, "a", (config.name, SET, config.value)) is expected, config.name


@pytest.mark.parametrize(
    ("name", "step", "error"),
    [
        ("1", ("num.partitions", SET, "7"), Error.INVALID_REQUEST),
        ("1", ("num.io.threads", SET, "7"), Error.NONE),
        ("", ("num.io.threads", SET, "16"), Error.NONE),
        ("1", ("num.io.threads", SET, "17"), Error.INVALID_REQUEST),  # more than the double
        ("1", ("num.io.threads", SET, "3"), Error.INVALID_REQUEST),  # less than half
        ("1", ("num.io.threads", SET, "many"), Error.INVALID_REQUEST),
        ("1", ("log.cleaner.threads", SET, "0"), Error.INVALID_REQUEST),
        ("1", ("log.roll.jitter.ms", SET, "-1"), Error.INVALID_REQUEST),
        ("1", ("log.local.retention.ms", SET, "604800000"), Error.NONE),
        ("1", ("log.local.retention.ms", SET, "604800001"), Error.INVALID_REQUEST),
        ("1", ("log.local.retention.ms", SET, "-1"), Error.INVALID_REQUEST),
        ("1", ("log.local.retention.bytes", SET, "-1"), Error.NONE),
        ("1", ("group.consumer.assignment.interval.ms", SET, "15001"), Error.INVALID_REQUEST),
        ("1", ("log.cleaner.dedupe.buffer.size", SET, "1048576"), Error.INVALID_REQUEST),
        ("1", ("log.cleaner.dedupe.buffer.size", SET, "1048577"), Error.NONE),
        ("1", ("sasl.kerberos.service.name", SET, "kafka"), Error.NONE),
        ("", ("sasl.kerberos.service.name", SET, "kafka"), Error.INVALID_REQUEST),
        ("1", ("ssl.client.auth", SET, "required"), Error.INVALID_REQUEST),
        ("1", ("sasl.enabled.mechanisms", SET, "PLAIN"), Error.INVALID_REQUEST),
        ("1", ("max.connections.per.ip.overrides", SET, "::1:5"), Error.INVALID_REQUEST),
        ("1", ("max.connection.creation.rate", SET, "5"), Error.INVALID_REQUEST),
        ("1", ("min.insync.replicas", SET, "1"), Error.INVALID_CONFIG),
        ("1", ("min.insync.replicas", SET, "0"), Error.INVALID_REQUEST),
        ("1", ("min.insync.replicas", DELETE, None), Error.INVALID_CONFIG),
        ("", ("min.insync.replicas", DELETE, None), Error.INVALID_CONFIG),
        ("", ("min.insync.replicas", SET, "2"), Error.NONE),
        ("1", ("listeners", SET, "PLAINTEXT://:1"), Error.INVALID_REQUEST),
        ("1", ("no.such", SET, "7"), Error.INVALID_CONFIG),
        ("1", ("no.such", DELETE, None), Error.NONE),
        ("1", ("leader.replication.throttled.rate", SET, "7"), Error.NONE),
        ("1", ("leader.replication.throttled.rate", SET, "-1"), Error.INVALID_REQUEST),
        ("1", ("message.max.bytes", SET, "-1"), Error.INVALID_REQUEST),
        ("1", ("message.max.bytes", SET, "x"), Error.INVALID_REQUEST),
        ("1", ("message.max.bytes", APPEND, "1"), Error.INVALID_CONFIG),
        ("1", ("log.retention.ms", SET, "0"), Error.INVALID_REQUEST),
        ("2", ("message.max.bytes", SET, "1"), Error.INVALID_REQUEST),
        ("x", ("message.max.bytes", SET, "1"), Error.INVALID_REQUEST),
        ("", ("log.cleanup.policy", APPEND, "compact"), Error.NONE),
    ],
)
def test_what_the_broker_takes_and_refuses(
    client: Client, name: str, step: tuple[str, int, str | None], error: Error
) -> None:
    assert alter(client, BROKER, name, step) is error


def test_what_is_kept_without_effect_is_said_once(
    harness: Harness, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    config_kept._say.cache_clear()
    harness.topic("a")
    for text in ("true", "false"):
        assert alter(client, TOPIC, "a", ("preallocate", SET, text)) is Error.NONE
        assert value(client, TOPIC, "a", "preallocate") == (text, FROM_TOPIC)
    assert alter(client, BROKER, "1", ("num.io.threads", SET, "9")) is Error.NONE
    assert alter(client, BROKER, "1", ("log.retention.ms", SET, "9")) is Error.NONE
    step = ("background.threads", SET, "9")
    assert alter(client, BROKER, "1", step, validate_only=True) is Error.NONE
    assert [record.getMessage() for record in caplog.records if "kept" in record.name] == [
        "the topic setting preallocate is kept and described, without effect: the log's files hold"
        " many partitions and are neither indexed nor preallocated as Kafka's",
        "the broker setting num.io.threads is kept and described, without effect: the broker has no"
        " such pool of threads",
    ]


def test_a_quota_is_described_where_it_is_set(client: Client) -> None:
    name = "follower.replication.throttled.rate"
    assert describe(client, BROKER, "1", name).configs == []
    assert alter(client, BROKER, "1", (name, SET, "1000")) is Error.NONE
    (config,) = describe(client, BROKER, "1", name).configs
    assert (config.value, config.config_source, config.read_only) == ("1000", FROM_NODE, False)
    assert [(s.value, s.source) for s in config.synonyms] == [("1000", FROM_NODE)]


def test_min_insync_replicas_is_the_clusters(harness: Harness, client: Client) -> None:
    harness.topic("a")
    assert value(client, BROKER, "", "min.insync.replicas") == ("1", FROM_CLUSTER)
    assert value(client, TOPIC, "a", "min.insync.replicas") == ("1", FROM_CLUSTER)
    assert alter(client, BROKER, "", ("min.insync.replicas", SET, "2")) is Error.NONE
    assert value(client, TOPIC, "a", "min.insync.replicas") == ("2", FROM_CLUSTER)


def test_a_brokers_own_min_insync_replicas_of_an_earlier_version_is_dropped(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "d")
    own = {"min.insync.replicas": "2", "log.retention.ms": "9"}
    harness.broker.topics.set_configs([(ResourceType.BROKER, "1", own)])
    harness.turn()
    harness.store.close()
    harness = Harness(tmp_path / "d")
    client = harness.client()
    assert value(client, BROKER, "1", "min.insync.replicas") == ("1", FROM_CLUSTER)
    assert value(client, BROKER, "1", "log.retention.ms") == ("9", FROM_NODE)
    assert alter(client, BROKER, "1", ("log.retention.ms", SET, "10")) is Error.NONE
    harness.store.close()


def test_the_log_follows_settings_that_change_while_it_runs(
    harness: Harness, client: Client
) -> None:
    before = harness.store.options
    for name, text in (
        ("log.cleaner.backoff.ms", "70"),
        ("log.cleaner.dedupe.buffer.size", "2097152"),
        ("producer.id.expiration.ms", "5000"),
    ):
        assert alter(client, BROKER, "", (name, SET, text)) is Error.NONE
    options = harness.store.options
    assert options.compaction_check_ms == 70
    assert options.compaction_keys_bytes == 2097152
    assert options.producer_id_expiration_ms == 5000
    for name in (
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "producer.id.expiration.ms",
    ):
        assert alter(client, BROKER, "", (name, DELETE, None)) is Error.NONE
    assert harness.store.options == before


def test_under_durability_os_flushes_cannot_be_asked_for_later(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "d", ottla_durability="os")
    client = harness.client()
    step = ("log.flush.interval.messages", SET, "1")
    assert alter(client, BROKER, "1", step) is Error.INVALID_REQUEST
    harness.store.close()


@pytest.mark.parametrize("kind", [GROUP, METRICS])
def test_settings_without_effect_are_refused(client: Client, kind: int) -> None:
    assert alter(client, kind, "x", ("interval.ms", SET, "5000")) is Error.INVALID_CONFIG
    assert alter(client, kind, "x", ("interval.ms", DELETE, None)) is Error.NONE


# ------------------------------------------------------------------------------ alter: the old way


def test_alter_configs_replaces_all_there_was(harness: Harness, client: Client) -> None:
    harness.topic("a", 1, retention_ms="5")
    assert replace(client, TOPIC, "a", retention_bytes="9") is Error.NONE
    assert value(client, TOPIC, "a", "retention.bytes") == ("9", FROM_TOPIC)
    assert value(client, TOPIC, "a", "retention.ms") == ("604800000", FROM_DEFAULT)
    assert replace(client, TOPIC, "a") is Error.NONE
    assert value(client, TOPIC, "a", "retention.bytes") == ("-1", FROM_DEFAULT)


@pytest.mark.parametrize(
    ("kind", "name", "configs", "error"),
    [
        (TOPIC, "a", {"retention_ms": None}, Error.INVALID_REQUEST),
        (TOPIC, "a", {"no_such": "1"}, Error.INVALID_CONFIG),
        (TOPIC, "b", {"retention_ms": "1"}, Error.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1", {"num_partitions": "3"}, Error.INVALID_REQUEST),
        (BROKER, "2", {}, Error.INVALID_REQUEST),
        (BROKER, "1", {"min_insync_replicas": "1"}, Error.INVALID_CONFIG),
        (BROKER, "", {}, Error.INVALID_CONFIG),  # which would remove min.insync.replicas
        (BROKER, "", {"min_insync_replicas": "1"}, Error.NONE),
        (LOGGER, "1", {"root": "INFO"}, Error.INVALID_REQUEST),
        (99, "1", {}, Error.INVALID_REQUEST),
    ],
)
def test_what_alter_configs_refuses(
    harness: Harness,
    client: Client,
    kind: int,
    name: str,
    configs: dict[str, str | None],
    error: Error,
) -> None:
    harness.topic("a")
    assert replace(client, kind, name, **configs) is error


# ------------------------------------------------------------------------------------------ loggers


def test_log_levels_are_settings_until_the_process_ends(client: Client) -> None:
    logger = logging.getLogger("ottla.broker.dispatch")
    before = logger.level
    try:
        assert alter(client, LOGGER, "1", (logger.name, SET, "TRACE")) is Error.NONE
        assert value(client, LOGGER, "1", logger.name) == ("TRACE", FROM_LOGGER)
        assert logger.isEnabledFor(logging.DEBUG)
        assert alter(client, LOGGER, "1", (logger.name, DELETE, None)) is Error.NONE
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(before)
    assert "root" in [config.name for config in describe(client, LOGGER, "1").configs]


@pytest.mark.parametrize(
    ("name", "step", "error"),
    [
        ("1", ("root", SET, "LOUD"), Error.INVALID_CONFIG),
        ("1", ("root", DELETE, None), Error.INVALID_REQUEST),
        ("1", ("root", APPEND, "INFO"), Error.INVALID_REQUEST),
        ("1", ("no.such.logger", SET, "INFO"), Error.INVALID_CONFIG),
        ("2", ("root", SET, "INFO"), Error.INVALID_REQUEST),
        ("", ("root", SET, "INFO"), Error.INVALID_REQUEST),
    ],
)
def test_what_loggers_refuse(
    client: Client, name: str, step: tuple[str, int, str | None], error: Error
) -> None:
    before = logging.root.level
    assert alter(client, LOGGER, name, step) is error
    assert logging.root.level == before


# -------------------------------------------------------------------------------------------- list


def test_what_has_settings_is_listed(harness: Harness, client: Client) -> None:
    harness.topic("a")

    def listed(*kinds: int, version: int = 1) -> list[tuple[str, int]]:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        answer = client.call(request, version)
        assert answer.error_code == 0
        return [(found.resource_name, found.resource_type) for found in answer.config_resources]

    assert listed() == [("a", TOPIC), ("1", BROKER), ("1", LOGGER)]
    assert listed(BROKER) == [("1", BROKER)]
    assert listed(version=0) == [], "version 0 knows client metrics only"
    answer = client.call(ListConfigResourcesRequest(resource_types=[3]), 1)
    assert answer.error_code == Error.UNSUPPORTED_VERSION


def test_a_resource_takes_only_so_many_settings_in_one_request(client: Client) -> None:
    """They are looked at in one go; no resource has a tenth of them."""
    names = [f"setting.{number}" for number in range(MOST_SETTINGS + 1)]
    many = [(name, SET, "1") for name in names]
    assert alter(client, TOPIC, "orders", *many) is Error.INVALID_REQUEST
    assert replace(client, TOPIC, "orders", **dict.fromkeys(names, "1")) is Error.INVALID_REQUEST
