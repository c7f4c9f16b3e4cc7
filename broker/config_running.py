"""Which settings of the broker may be altered while it runs, and with which values.

Rules, codes and their order are Kafka's (DynamicBrokerConfig, ConfigurationControlManager): a value
that is wrong, alone or beside the others, is INVALID_REQUEST. Security settings, classes and limits
that Ottla does not have are refused, where Kafka takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.broker.config import MIN_INSYNC, NEVER_FLUSHED, ServerConfig
from ottla.broker.config_honoured import BROKER
from ottla.broker.config_kept import BROKER_KEPT
from ottla.broker.config_keys import Key, any_broker_key
from ottla.broker.config_values import ConfigError
from ottla.wire.errors import Error, KafkaError

_POOLS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
"""Sizes that Kafka lets grow to the double and shrink to the half in one step."""

_AT_MOST = (
    ("group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
    ("group.share.assignment.interval.ms", "group.share.max.assignment.interval.ms"),
    ("group.streams.assignment.interval.ms", "group.streams.max.assignment.interval.ms"),
)


def checked_broker(config: ServerConfig, node: str, own: Mapping[str, str]) -> dict[str, str]:
    """The settings that a node, or with "" all nodes, are to have, in Kafka's spelling.

    Raises KafkaError: INVALID_CONFIG for a name that nobody knows, else INVALID_REQUEST.
    """
    try:
        settings = {name: _checked(config, node, name, text) for name, text in own.items()}
        cluster, nodes = (config.cluster, settings) if node else (settings, config.node)
        _check_together(config, config.with_dynamic(cluster, nodes))
    except ConfigError as error:
        raise KafkaError(Error.INVALID_REQUEST, str(error)) from None
    return settings


def check_min_insync(node: str, named: Iterable[str], own: Mapping[str, str]) -> None:
    """With eligible leader replicas (KIP-966) min.insync.replicas belongs to the cluster. `named`:
    what the request sets or removes. Raises KafkaError INVALID_CONFIG."""
    if MIN_INSYNC not in named:
        return
    if node:
        raise KafkaError(
            Error.INVALID_CONFIG,
            f"{MIN_INSYNC} cannot be altered for one broker while eligible leader replicas are"
            " enabled: alter it for the cluster (--entity-default) or for a topic",
        )
    if MIN_INSYNC not in own:
        raise KafkaError(
            Error.INVALID_CONFIG,
            f"{MIN_INSYNC} of the cluster cannot be removed while eligible leader replicas are"
            " enabled: set it instead",
        )


def is_alterable(name: str) -> bool:
    """Whether a request may change this setting of the broker."""
    honoured = BROKER.get(name)
    return name in BROKER_KEPT if honoured is None else honoured.dynamic


def _checked(config: ServerConfig, node: str, name: str, text: str) -> str:
    key = any_broker_key(name)
    if key is None:
        raise KafkaError(Error.INVALID_CONFIG, f"{name} is not a setting that Kafka or Ottla knows")
    if not is_alterable(name):
        why = "is read when the broker starts" if name in BROKER else "is not supported here"
        raise KafkaError(Error.INVALID_REQUEST, f"cannot update {name} dynamically: it {why}")
    if key.update == "node" and not node:
        raise KafkaError(
            Error.INVALID_REQUEST,
            f"cannot update {name} for all brokers: name one, as this setting is a broker's own",
        )
    return _checked_value(config, key, text)


def _checked_value(config: ServerConfig, key: Key, text: str) -> str:
    value = key.canonical(text)
    if key.name == "log.retention.ms" and value == "0":
        raise ConfigError(key.name, text, "must be at least 1, or -1 for no bound")
    if key.name == "log.roll.jitter.ms" and int(value) < 0:
        raise ConfigError(key.name, text, "must be at least 0")
    flushes = key.name.startswith("log.flush.interval.") and value != NEVER_FLUSHED
    if flushes and config.ottla_durability == "os":
        raise ConfigError(key.name, text, "ottla.durability=os never forces a flush")
    return value


def _check_together(now: ServerConfig, then: ServerConfig) -> None:
    """Values that are right alone and wrong beside others, or too far from those in force."""
    for name in _POOLS:
        before, after = int(now.text(name) or 0), int(then.text(name) or 0)
        low, high = max(1, before // 2), before * 2
        if before != after and not low <= after <= high:
            raise ConfigError(
                name, after, f"one step goes from {before} to between {low} and {high}"
            )
    then.check_cleaner()
    for name, limit in _AT_MOST:
        if int(then.text(name) or 0) > int(then.text(limit) or 0):
            raise ConfigError(name, then.text(name), f"must be at most {limit}={then.text(limit)}")
    _check_local(then, "log.local.retention.ms", then.default_of_topics("retention.ms"))
    _check_local(then, "log.local.retention.bytes", then.default_of_topics("retention.bytes"))


def _check_local(config: ServerConfig, name: str, retention: str) -> None:
    """Local retention is at most all retention; -2 stands for that (RemoteLogManagerConfig)."""
    local, whole = int(config.text(name) or -2), int(retention)
    if local != -2 and whole != -1 and not 0 <= local <= whole:
        raise ConfigError(name, local, f"must be -2, or between 0 and log.retention, {whole}")
