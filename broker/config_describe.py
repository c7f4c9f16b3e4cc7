"""Settings as DescribeConfigs and CreateTopics answer them: value, source, synonyms, type, words.

Source of the shapes: Kafka's ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import dropwhile
from typing import NamedTuple

from ottla.broker.config import ServerConfig, Setting, Source
from ottla.broker.config_honoured import BROKER, TOPIC
from ottla.broker.config_keys import OWN_KEYS, Key, keys
from ottla.broker.topic_config import value_of

TYPES = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
"""ConfigEntry.ConfigType: user interfaces choose their editor by it."""

_NO_EFFECT = "Known to Kafka; without effect here."

_ONE_SETTING = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_SYNONYMS = {name: names for names in _ONE_SETTING for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}
"""Broker keys that say the same thing (DynamicBrokerConfig.brokerConfigSynonyms)."""


class Entry(NamedTuple):
    """One setting of one resource. `synonyms`: every layer that says something, the one that counts
    first. Who answers it leaves out the values of a key that is `sensitive`."""

    key: Key
    value: str | None
    source: Source
    read_only: bool
    synonyms: list[Setting]
    documentation: str

    @property
    def config_type(self) -> int:
        return TYPES[self.key.type]


def topic_entries(config: ServerConfig, own: Mapping[str, str]) -> list[Entry]:
    """Every setting of a topic that sets `own` itself, by name."""
    return [_topic_entry(config, key, own) for key in keys("topic").values() if not key.internal]


def _topic_entry(config: ServerConfig, key: Key, own: Mapping[str, str]) -> Entry:
    value = own.get(key.name)
    synonyms = [] if value is None else [Setting(key.name, value, Source.TOPIC)]
    if key.synonyms:
        synonyms += _broker_synonyms(config, key.synonyms[0].name)
    return Entry(
        key,
        value_of(config, key) if value is None else value,
        synonyms[0].source if synonyms else Source.DEFAULT,
        key.name not in TOPIC,
        synonyms,
        TOPIC.get(key.name, _NO_EFFECT),
    )


def broker_entries(config: ServerConfig) -> list[Entry]:
    """Every setting of this node, by name."""
    known = {**keys("broker"), **OWN_KEYS}
    return [
        _broker_entry(config, known[name]) for name in sorted(known) if not known[name].internal
    ]


def cluster_entries(config: ServerConfig) -> list[Entry]:
    """What has been set for all nodes while they run."""
    found = {**keys("broker"), **OWN_KEYS}
    return [
        entry._replace(
            value=config.cluster[entry.key.name],
            source=Source.CLUSTER,
            synonyms=[s for s in entry.synonyms if s.source is Source.CLUSTER],
        )
        for entry in (_broker_entry(config, found[name]) for name in sorted(config.cluster))
    ]


def _broker_entry(config: ServerConfig, key: Key) -> Entry:
    synonyms = _broker_synonyms(config, key.name)
    honoured = BROKER.get(key.name)
    return Entry(
        key,
        config.text(key.name),
        synonyms[0].source if synonyms else Source.DEFAULT,
        honoured is None or not honoured.dynamic,
        synonyms,
        honoured.doc if honoured else _NO_EFFECT,
    )


def _broker_synonyms(config: ServerConfig, name: str) -> list[Setting]:
    """What the layers say of a key and its synonyms; what a synonym says before the key itself has
    been named is left out, as in Kafka (it hides log.retention.hours from log.retention.ms)."""
    found = config.settings(_SYNONYMS.get(name, (name,)))
    return list(dropwhile(lambda setting: setting.name != name, found))


def group_entries(config: ServerConfig) -> list[Entry]:
    """Settings of a group: the broker's, for none can be set of a group yet."""
    return [_group_entry(config, key) for key in keys("group").values() if not key.internal]


def _group_entry(config: ServerConfig, key: Key) -> Entry:
    if key.synonyms:
        name = key.synonyms[0].name
        synonyms, value = _broker_synonyms(config, name), config.text(name)
    else:
        value = key.default or ""
        synonyms = [Setting(key.name, value, Source.DEFAULT)]
    return Entry(key, value, synonyms[0].source, True, synonyms, _NO_EFFECT)


def client_metrics_entries() -> list[Entry]:
    """Settings of a client metrics subscription: Kafka's defaults, for there are none here."""
    return [
        Entry(key, key.default, Source.DEFAULT, True, [], _NO_EFFECT)
        for key in keys("metrics").values()
    ]
