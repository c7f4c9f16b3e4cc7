"""Settings as DescribeConfigs and CreateTopics answer them: value, source, synonyms, type, words.

Source of the shapes: Kafka's ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import dropwhile
from typing import NamedTuple

from ottla.broker.config import ServerConfig, Setting, Source
from ottla.broker.config_honoured import BROKER, TOPIC
from ottla.broker.config_kept import BROKER_KEPT, TOPIC_KEPT
from ottla.broker.config_keys import OWN_KEYS, Key, any_broker_key, keys
from ottla.broker.config_running import is_alterable

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
_KEPT = "Kept and described, without effect:"

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
        config.default_of_topics(key.name) if value is None else value,
        synonyms[0].source if synonyms else Source.DEFAULT,
        False,
        synonyms,
        TOPIC.get(key.name) or f"{_KEPT} {TOPIC_KEPT[key.name]}.",
    )


def broker_entries(config: ServerConfig) -> list[Entry]:
    """Every setting of this node, by name; of quotas those that are set."""
    known = {**keys("broker"), **OWN_KEYS}
    quotas = keys("dynamic")
    known |= {name: quotas[name] for name in (*config.cluster, *config.node) if name in quotas}
    return [
        _broker_entry(config, known[name]) for name in sorted(known) if not known[name].internal
    ]


def cluster_entries(config: ServerConfig) -> list[Entry]:
    """What has been set for all nodes while they run."""
    found = [key for key in map(any_broker_key, sorted(config.cluster)) if key is not None]
    return [
        entry._replace(
            value=config.cluster[entry.key.name],
            source=Source.CLUSTER,
            synonyms=[s for s in entry.synonyms if s.source is Source.CLUSTER],
        )
        for entry in (_broker_entry(config, key) for key in found)
    ]


def _broker_entry(config: ServerConfig, key: Key) -> Entry:
    synonyms = _broker_synonyms(config, key.name)
    return Entry(
        key,
        config.text(key.name),
        synonyms[0].source if synonyms else Source.DEFAULT,
        not is_alterable(key.name),
        synonyms,
        _broker_doc(key.name),
    )


def _broker_doc(name: str) -> str:
    if name in BROKER:
        return BROKER[name].doc
    return f"{_KEPT} {BROKER_KEPT[name]}." if name in BROKER_KEPT else _NO_EFFECT


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
