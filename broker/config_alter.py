"""What AlterConfigs and IncrementalAlterConfigs may change, and how a change is checked.

Rules and codes are Kafka's (ConfigAdminManager, ConfigurationControlManager): one resource is
changed whole or not at all; a topic's bad value is INVALID_CONFIG, a broker's INVALID_REQUEST. An
accepted setting is one that counts, or one of config_kept.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from ottla.broker.config import ServerConfig
from ottla.broker.config_keys import any_broker_key, keys
from ottla.broker.config_running import checked_broker
from ottla.broker.config_values import ConfigError
from ottla.broker.metadata import ResourceType, Topics
from ottla.broker.topic_config import check_own
from ottla.broker.topic_names import check_name
from ottla.wire.errors import Error, KafkaError


class Op(IntEnum):
    """AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPS: Final = frozenset(Op)


class Step(NamedTuple):
    """One operation on one setting of a resource; `op` as the request had it."""

    name: str
    op: int
    value: str | None


class Resource(Protocol):
    """What is altered, as either request names it."""

    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[object]:
        """The settings that are named."""


def check_steps(steps: Sequence[Step]) -> None:
    """What can be said without knowing the resource. Raises KafkaError INVALID_REQUEST."""
    counts = Counter(step.name for step in steps)
    for step in steps:
        if counts[step.name] > 1:
            raise KafkaError(Error.INVALID_REQUEST, f"{step.name} is named twice")
        if step.op not in _OPS:
            raise KafkaError(Error.INVALID_REQUEST, f"{step.name}: operation {step.op} is unknown")
        if step.value is None and step.op != Op.DELETE:
            raise KafkaError(Error.INVALID_REQUEST, f"{step.name}: null is no value")


def altered(
    topics: Topics, config: ServerConfig, kind: ResourceType, name: str, steps: Sequence[Step]
) -> dict[str, str]:
    """The settings of a resource after `steps`, unchecked. Raises KafkaError INVALID_CONFIG for an
    operation on lists where there is none."""
    own = topics.own_configs(kind, name)
    for step in steps:
        if step.op == Op.DELETE:
            own.pop(step.name, None)
        elif step.op == Op.SET:
            own[step.name] = step.value or ""
        else:
            own[step.name] = _list_changed(config, kind, own, step)
    return own


def _list_changed(
    config: ServerConfig, kind: ResourceType, own: Mapping[str, str], step: Step
) -> str:
    is_topic = kind is ResourceType.TOPIC
    key = keys("topic").get(step.name) if is_topic else any_broker_key(step.name)
    if key is None or key.type != "list":
        raise KafkaError(Error.INVALID_CONFIG, f"{step.name} is not a list")
    inherited = config.default_of_topics(step.name) if is_topic else config.text(step.name)
    text = own.get(step.name, inherited) or ""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    words = [word.strip() for word in (step.value or "").split(",")]
    if step.op == Op.APPEND:
        return ",".join(parts + [word for word in words if word not in parts])
    return ",".join(part for part in parts if part not in words)


def checked(
    topics: Topics, config: ServerConfig, kind: ResourceType, name: str, own: Mapping[str, str]
) -> dict[str, str]:
    """The settings that a resource is to have, in Kafka's spelling. Raises KafkaError."""
    if kind is ResourceType.TOPIC:
        return _checked_topic(topics, config, name, own)
    if kind is ResourceType.BROKER:
        return checked_broker(config, name, own)
    if own:
        raise KafkaError(
            Error.INVALID_CONFIG, f"settings of {kind.name.lower()} {name} are without effect here"
        )
    return {}


def _checked_topic(
    topics: Topics, config: ServerConfig, name: str, own: Mapping[str, str]
) -> dict[str, str]:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "topics have no settings in common: name one")
    check_name(name)
    try:
        settings = check_own(config, own)
    except ConfigError as error:
        raise KafkaError(Error.INVALID_CONFIG, str(error)) from None
    if topics.admitted(name) is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    return settings
