"""Text to values and back, with Kafka's types, ranges and spelling."""

from __future__ import annotations

import pytest

from ottla.broker.config_keys import OWN_KEYS, Key, broker_key, keys
from ottla.broker.config_values import ConfigError, parse, text_of


def test_every_key_of_kafka_is_known() -> None:
    counts = {scope: len(keys(scope)) for scope in ("broker", "topic", "group", "metrics")}
    assert counts == {"broker": 360, "topic": 34, "group": 17, "metrics": 3}


@pytest.mark.parametrize("scope", ["broker", "topic", "group", "metrics", "dynamic"])
def test_every_default_of_kafka_is_a_valid_value_in_its_own_spelling(scope: str) -> None:
    for key in keys(scope).values():  # type: ignore[arg-type]  # the parameters above
        if key.default is not None:
            assert key.canonical(key.default) == key.default


def test_our_own_keys_have_a_prefix_and_do_not_hide_kafkas() -> None:
    assert all(name.startswith("ottla.") for name in OWN_KEYS)
    assert not OWN_KEYS.keys() & keys("broker").keys()
    assert broker_key("ottla.durability") is OWN_KEYS["ottla.durability"]
    assert broker_key("num.partition") is None


@pytest.mark.parametrize(
    ("kind", "text", "value", "spelt"),
    [
        ("boolean", " TRUE ", True, "true"),
        ("boolean", "False", False, "false"),
        ("int", " +5 ", 5, "5"),
        ("long", str(2**63 - 1), 2**63 - 1, "9223372036854775807"),
        ("double", "0.50", 0.5, "0.5"),
        ("double", "1", 1.0, "1.0"),
        ("double", "1.7976931348623157E308", 1.7976931348623157e308, "1.7976931348623157E308"),
        ("list", "a, b ,a", ("a", "b"), "a,b"),
        ("list", "", (), ""),
        ("string", " x y ", "x y", "x y"),
    ],
)
def test_values_are_read_and_spelt_as_kafka_does(
    kind: str, text: str, value: object, spelt: str
) -> None:
    found = parse("key", kind, text)  # type: ignore[arg-type]
    assert found == value
    assert text_of(found) == spelt


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("boolean", "yes"),
        ("int", "1.5"),
        ("int", "0x10"),
        ("int", "1_000"),
        ("int", str(2**31)),
        ("short", "40000"),
        ("long", str(2**63)),
        ("double", "half"),
        ("int", ""),
    ],
)
def test_what_does_not_fit_its_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("some.key", kind, text)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"some.key={text}: ")


@pytest.mark.parametrize(
    ("name", "good", "bad", "says"),
    [
        ("num.partitions", "1", "0", "at least 1"),
        ("group.share.delivery.count.limit", "10", "11", "between 2 and 10"),
        ("compression.gzip.level", "-1", "0", "between 1 and 9, or -1"),
        ("log.cleaner.min.cleanable.ratio", "1", "1.1", "between 0 and 1"),
        ("log.cleanup.policy", "compact,delete", "compact,burn", "a list of compact, delete"),
        ("log.cleanup.policy", "", "burn", "a list of"),
        ("compression.type", "zstd", "brotli", "one of uncompressed, zstd"),
        ("log.message.timestamp.type", "LogAppendTime", "logappendtime", "CreateTime, Log"),
        ("group.consumer.migration.policy", "Upgrade", "sideways", "DISABLED"),
        ("remote.log.metadata.manager.impl.prefix", "x", "", "empty"),
    ],
)
def test_ranges_are_kafkas_and_the_error_says_what_is_allowed(
    name: str, good: str, bad: str, says: str
) -> None:
    key = keys("broker")[name]
    key.parse(good)
    with pytest.raises(ConfigError, match=f"{name}=.*{says}"):
        key.parse(bad)


@pytest.mark.parametrize("text", ["*", "0:1", "0:1,1:2", ""])
def test_throttled_replicas_may_be(text: str) -> None:
    keys("topic")["leader.replication.throttled.replicas"].parse(text)


@pytest.mark.parametrize("text", ["x", "0:1,2", "*,0:1"])
def test_throttled_replicas_may_not_be(text: str) -> None:
    with pytest.raises(ConfigError):
        keys("topic")["leader.replication.throttled.replicas"].parse(text)


@pytest.mark.parametrize("text", ["latest", "earliest", "by_duration:P1DT2H", "by_duration:PT0.5S"])
def test_share_offset_reset_may_be(text: str) -> None:
    keys("group")["share.auto.offset.reset"].parse(text)


@pytest.mark.parametrize("text", ["Latest", "by_duration:", "by_duration:P", "by_duration:PT"])
def test_share_offset_reset_may_not_be(text: str) -> None:
    with pytest.raises(ConfigError):
        keys("group")["share.auto.offset.reset"].parse(text)


def test_a_password_is_sensitive_and_nothing_else() -> None:
    assert Key("k", "password", None).sensitive
    assert not Key("k", "string", None).sensitive
