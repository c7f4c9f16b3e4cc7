"""Settings as DescribeConfigs and CreateTopics answer them: value, source, synonyms, type, words.

Source of the shapes: Kafka's ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
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


def topic_entries(
    config: ServerConfig, own: Mapping[str, str], names: Set[str] | None = None
) -> Iterator[Entry]:
    """The settings of a topic that sets `own` itself, by name: all, or those of `names` that there
    are. Each is made when it is asked for; so with the others here."""
    return (_topic_entry(config, key, own) for key in _wanted(_topic_keys(), names))


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


def broker_entries(config: ServerConfig, names: Set[str] | None = None) -> Iterator[Entry]:
    """The settings of this node; of quotas those that are set."""
    known = _broker_keys()
    quotas = keys("dynamic")
    given = {name: quotas[name] for name in (*config.cluster, *config.node) if name in quotas}
    if given:
        both = known | given
        known = {name: both[name] for name in sorted(both)}
    return (_broker_entry(config, key) for key in _wanted(known, names))


def cluster_entries(config: ServerConfig, names: Set[str] | None = None) -> Iterator[Entry]:
    """What has been set for all nodes while they run."""
    given = config.cluster
    found = {name: key for name in sorted(given) if (key := any_broker_key(name)) is not None}
    for entry in (_broker_entry(config, key) for key in _wanted(found, names)):
        yield entry._replace(
            value=given[entry.key.name],
            source=Source.CLUSTER,
            synonyms=[s for s in entry.synonyms if s.source is Source.CLUSTER],
        )


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


def group_entries(config: ServerConfig, names: Set[str] | None = None) -> Iterator[Entry]:
    """Settings of a group: the broker's, for none can be set of a group yet."""
    return (_group_entry(config, key) for key in _wanted(_group_keys(), names))


def _group_entry(config: ServerConfig, key: Key) -> Entry:
    if key.synonyms:
        name = key.synonyms[0].name
        synonyms, value = _broker_synonyms(config, name), config.text(name)
    else:
        value = key.default or ""
        synonyms = [Setting(key.name, value, Source.DEFAULT)]
    return Entry(key, value, synonyms[0].source, True, synonyms, _NO_EFFECT)


def client_metrics_entries(names: Set[str] | None = None) -> Iterator[Entry]:
    """Settings of a client metrics subscription: Kafka's defaults, for there are none here."""
    return (
        Entry(key, key.default, Source.DEFAULT, True, [], _NO_EFFECT)
        for key in _wanted(keys("metrics"), names)
    )


def _wanted(known: Mapping[str, Key], names: Set[str] | None) -> Iterable[Key]:
    if names is None:
        return known.values()
    if len(names) < len(known):
        return (known[name] for name in sorted(names) if name in known)
    return (key for name, key in known.items() if name in names)


@cache
def setting_names() -> frozenset[str]:
    """Of whatever resource."""
    every = (_topic_keys(), _broker_keys(), keys("dynamic"), _group_keys(), keys("metrics"))
    return frozenset().union(*every)


@cache
def _topic_keys() -> Mapping[str, Key]:
    return {name: key for name, key in keys("topic").items() if not key.internal}


@cache
def _broker_keys() -> dict[str, Key]:
    known = {**keys("broker"), **OWN_KEYS}
    return {name: known[name] for name in sorted(known) if not known[name].internal}


@cache
def _group_keys() -> Mapping[str, Key]:
    return {name: key for name, key in keys("group").items() if not key.internal}
