"""Topics and dynamic settings: what there is, what it is called, how it is configured.

Two views. Decisions (does this name exist, what comes of "append") are made on what has been
admitted, so that two requests in flight cannot both win; everything that answers clients sees only
what is committed, for what is not may yet fail. A change gets its ticket from the log and becomes
visible when that is done, before anyone else who waits for the ticket is called.

The rows are this module's: table TOPICS by topic name, table CONFIGS by resource, and two rows of
table CLUSTER. Their layout is in docs/design/metadata.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from ottla.broker import metadata_rows as rows
from ottla.broker.config import MIN_INSYNC, ServerConfig
from ottla.broker.config_kept import say_of_broker, say_of_topic
from ottla.broker.topic_config import TopicConfig, effective, partition_settings, rules
from ottla.group.outcome import Place
from ottla.log.errors import LogError
from ottla.log.options import Change, PartitionSettings, Table
from ottla.log.partition import Partition
from ottla.log.store import Store
from ottla.log.tickets import Ticket
from ottla.log.validate import Rules
from ottla.wire.errors import Error, KafkaError

MAX_NAME = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"))
"""What Kafka keeps in topics of its own: nothing can be produced to one (internal_topics.py)."""
RESERVED = "__cluster_metadata"
"""Kafka's own log of topics and settings: no topic may have its name."""


class ResourceType(IntEnum):
    """What a setting belongs to (ConfigResource.Type)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Effective(NamedTuple):
    """What a topic's settings come to, in the shapes their users want. Shared by equal topics."""

    config: TopicConfig
    rules: Rules
    settings: PartitionSettings


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as of one commit; a change makes a new object."""

    name: str
    topic_id: bytes
    partitions: tuple[int, ...]
    """The log's own numbers, by partition index."""
    configs: Mapping[str, str]
    """What the topic sets itself, in Kafka's spelling."""
    effective: Effective

    @property
    def config(self) -> TopicConfig:
        return self.effective.config

    @property
    def rules(self) -> Rules:
        """What a produced batch is held against."""
        return self.effective.rules

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL


class NewTopic(NamedTuple):
    """A topic to be made; all of it has been checked. `configs` in Kafka's spelling."""

    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str]


class Topics:
    """All topics of the node, and the dynamic settings of topics and broker."""

    def __init__(self, store: Store, config: ServerConfig) -> None:
        """Reads everything from `store` and applies the dynamic settings to `config`."""
        self._store = store
        self._config = config
        self._listeners: list[Callable[[], None]] = []
        self._mourners: list[Callable[[Sequence[int]], None]] = []
        self.version = 0
        """Rises with every visible change of a topic."""
        self.answers: dict[object, bytes] = {}
        """Answers about all topics, kept by whoever made them; emptied when a topic changes."""
        self._load()
        store.on_reset(self._reset)

    # ------------------------------------------------------------------------------ what there is

    def __len__(self) -> int:
        return len(self._visible)

    def __iter__(self) -> Iterator[Topic]:
        """All topics by name."""
        visible = self._visible
        return (visible[name] for name in sorted(visible))

    def get(self, name: str) -> Topic | None:
        return self._visible.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def place(self, number: int) -> Place | None:
        """Where a partition with this number of the log's belongs; None: its topic is gone."""
        return self._places.get(number)

    def partition(self, name: str, index: int) -> Partition:
        """Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
        topic = self._visible.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        return self._store.partition(topic.partitions[index])

    def admitted(self, name: str) -> Topic | None:
        """The topic as it will be when all that is under way has been committed."""
        return self._admitted.get(name)

    def check_new_name(self, name: str) -> None:
        """Raises KafkaError INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS (by what has been
        admitted) or INVALID_REQUEST."""
        check_name(name)
        if name == RESERVED:
            raise KafkaError(Error.INVALID_REQUEST, f"{name} cannot be made")
        if name in self._admitted:
            raise KafkaError(Error.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")
        twin = self._collisions.get(_collision_key(name))
        if twin is not None:
            raise KafkaError(
                Error.INVALID_TOPIC_EXCEPTION,
                f"topic '{name}' collides with '{twin}': '.' and '_' are the same in metric names",
            )

    def own_configs(self, kind: ResourceType, name: str) -> dict[str, str]:
        """What has been set of a topic, or a broker ("": all brokers), as far as admitted."""
        return dict(self._own.get((kind, name), {}))

    def configured(self) -> list[tuple[ResourceType, str]]:
        """Resources with settings of their own, as far as committed."""
        return [(ResourceType(kind), name) for kind, name, _ in rows.scan_configs(self._store)]

    def settled(self) -> Ticket:
        """Done when all that has been admitted so far is visible, or has failed."""
        return self._store.settled()

    def on_change(self, fn: Callable[[], None]) -> None:
        """`fn` is called after every visible change of a topic or of broker settings."""
        self._listeners.append(fn)

    def on_delete(self, fn: Callable[[Sequence[int]], None]) -> None:
        """`fn` is called with the log's numbers of the partitions of topics that are gone for good,
        once that is committed."""
        self._mourners.append(fn)

    # ------------------------------------------------------------------------------ changing it

    def create(self, new: Sequence[NewTopic]) -> Ticket:
        """Make topics whose names have been checked with `check_new_name`, in one commit."""
        made: list[Topic] = []
        changes: list[Change] = []
        for plan in new:
            found = self._effective(plan.configs)
            numbers, partition_rows = self._store.new_partitions(plan.partitions, found.settings)
            topic = Topic(plan.name, plan.topic_id, tuple(numbers), dict(plan.configs), found)
            made.append(topic)
            changes += [*partition_rows, rows.topic_row(topic.name, topic.topic_id, numbers)]
            if topic.configs:
                changes.append(rows.config_row(ResourceType.TOPIC, topic.name, topic.configs))
                say_of_topic(topic.configs)
        ticket = self._change(changes, lambda: self._show(made))
        for topic in made:
            self._admit(topic)
        return ticket

    def add_partitions(self, name: str, total: int) -> Ticket:
        """Give a topic (admitted, with fewer partitions) `total` partitions."""
        topic = self._admitted[name]
        numbers, changes = self._store.new_partitions(
            total - len(topic.partitions), topic.effective.settings
        )
        grown = replace(topic, partitions=(*topic.partitions, *numbers))
        changes = [*changes, rows.topic_row(name, topic.topic_id, grown.partitions)]
        ticket = self._change(changes, lambda: self._show([grown]))
        self._admit(grown)
        return ticket

    def delete(self, names: Iterable[str]) -> Ticket:
        """Delete topics (admitted) for good, with their records and settings, in one commit."""
        gone = [self._admitted[name] for name in names]
        changes: list[Change] = []
        for topic in gone:
            changes += self._store.drop_partitions(topic.partitions)
            changes += [
                Change(Table.TOPICS, rows.topic_key(topic.name), None),
                rows.config_row(ResourceType.TOPIC, topic.name, {}),
            ]
        ticket = self._change(changes, lambda: self._hide(gone))
        for topic in gone:
            del self._admitted[topic.name]
            if self._collisions.get(_collision_key(topic.name)) == topic.name:
                del self._collisions[_collision_key(topic.name)]
            self._own.pop((ResourceType.TOPIC, topic.name), None)
        return ticket

    def set_configs(
        self, settings: Sequence[tuple[ResourceType, str, Mapping[str, str]]]
    ) -> Ticket:
        """Replace what resources set themselves; all checked, in one commit.

        A topic must be admitted. Broker settings ("" all, else this node) take effect when
        committed, and with them every topic that inherits from them.
        """
        changes = [rows.config_row(kind, name, own) for kind, name, own in settings]
        taken = [(kind, name, dict(own)) for kind, name, own in settings]
        for kind, _, own in taken:
            (say_of_topic if kind is ResourceType.TOPIC else say_of_broker)(own)
        ticket = self._change(changes, lambda: self._apply_configs(taken))
        for kind, name, own in taken:
            self._own[kind, name] = own
            if kind is ResourceType.TOPIC:
                found = self._effective(own)
                self._admitted[name] = replace(self._admitted[name], configs=own, effective=found)
        return ticket

    def _change(self, changes: Sequence[Change], show: Callable[[], None]) -> Ticket:
        ticket = self._store.change(changes)

        def committed(done: Ticket) -> None:
            if done.error is None:
                show()

        ticket.then(committed)
        return ticket

    def _admit(self, topic: Topic) -> None:
        self._admitted[topic.name] = topic
        self._collisions[_collision_key(topic.name)] = topic.name
        self._own[ResourceType.TOPIC, topic.name] = dict(topic.configs)

    # ------------------------------------------------------------------- what becomes visible

    def _show(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            before = self._visible.get(topic.name)
            # broker settings may have been committed between this topic's admission and now
            topic = replace(topic, effective=self._effective(topic.configs))
            self._visible[topic.name] = self._by_id[topic.topic_id] = topic
            self._place(topic, 0 if before is None else len(before.partitions))
            if (
                before is None
                or before.effective != topic.effective
                or len(before.partitions) != len(topic.partitions)
            ):
                self._store.configure(topic.partitions, topic.effective.settings)
        self._moved()

    def _hide(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            del self._visible[topic.name]
            del self._by_id[topic.topic_id]
            for number in topic.partitions:
                del self._places[number]
        self._moved()
        gone = [number for topic in topics for number in topic.partitions]
        for fn in self._mourners:
            fn(gone)

    def _place(self, topic: Topic, first: int) -> None:
        """Note where partitions belong, from index `first` on: the others are known."""
        for index in range(first, len(topic.partitions)):
            place = Place(topic.name, topic.topic_id, index)
            self._places[topic.partitions[index]] = place

    def _apply_configs(
        self, settings: Sequence[tuple[ResourceType, str, Mapping[str, str]]]
    ) -> None:
        own = {(kind, name): configs for kind, name, configs in settings}
        if any(kind is ResourceType.BROKER for kind, _ in own):
            self._apply_broker(own)
        self._show(
            [
                replace(self._visible[name], configs=configs)
                for kind, name, configs in settings
                if kind is ResourceType.TOPIC
            ]
        )

    def _apply_broker(self, own: Mapping[tuple[ResourceType, str], Mapping[str, str]]) -> None:
        node = str(self._config.node_id)
        self._config.set_dynamic(
            own.get((ResourceType.BROKER, ""), self._config.cluster),
            own.get((ResourceType.BROKER, node), self._config.node),
        )
        self._configure_log()
        self._inherited.clear()
        for name, topic in self._admitted.items():
            self._admitted[name] = replace(topic, effective=self._effective(topic.configs))
        self._show(list(self._visible.values()))

    def _configure_log(self) -> None:
        config = self._config
        options = replace(
            self._store.options,
            compaction_check_ms=config.log_cleaner_backoff_ms,
            compaction_keys_bytes=config.log_cleaner_dedupe_buffer_size,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
        )
        self._store.set_options(options)

    def _moved(self) -> None:
        self.version += 1
        self.answers.clear()
        for fn in self._listeners:
            fn()

    def _effective(self, own: Mapping[str, str]) -> Effective:
        key = tuple(sorted(own.items()))
        found = self._inherited.get(key)
        if found is None:
            config = effective(self._config, own)
            found = Effective(config, rules(config), partition_settings(config))
            self._inherited[key] = found
        return found

    # ------------------------------------------------------------------------------ reading it

    def _load(self) -> None:
        self._own: dict[tuple[int, str], dict[str, str]] = {
            (kind, name): own for kind, name, own in rows.scan_configs(self._store)
        }
        self._inherited: dict[tuple[tuple[str, str], ...], Effective] = {}
        node = self._own.get((ResourceType.BROKER, str(self._config.node_id)), {})
        # An earlier version let one broker have its own; Kafka drops it with eligible leaders, too.
        node.pop(MIN_INSYNC, None)
        self._config.set_dynamic(self._own.get((ResourceType.BROKER, ""), {}), node)
        self._configure_log()
        self._visible: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._places: dict[int, Place] = {}
        for name, topic_id, numbers in rows.scan_topics(self._store):
            own = self._own.get((ResourceType.TOPIC, name), {})
            topic = Topic(name, topic_id, numbers, own, self._effective(own))
            self._visible[name] = self._by_id[topic_id] = topic
            self._place(topic, 0)
            self._store.configure(numbers, topic.effective.settings)
        self._admitted = dict(self._visible)
        self._collisions = {_collision_key(name): name for name in self._visible}
        self._moved()

    def _reset(self, error: LogError) -> None:
        """A commit failed: what was admitted and not committed never was."""
        self._load()


def check_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION: 1 to 249 of a-z A-Z 0-9 . _ -, not "." or ".."."""
    if not name:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, "the empty string is no topic name")
    if name in (".", ".."):
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"'{name}' is no topic name")
    if len(name) > MAX_NAME:
        raise KafkaError(
            Error.INVALID_TOPIC_EXCEPTION, f"a topic name has at most {MAX_NAME} characters"
        )
    if not _LEGAL.fullmatch(name):
        raise KafkaError(
            Error.INVALID_TOPIC_EXCEPTION,
            f"topic name '{name}' may hold only letters, digits, '.', '_' and '-'",
        )


def _collision_key(name: str) -> str:
    """Names collide that are the same once '.' is '_', as in metric names (Kafka's rule)."""
    return name.replace(".", "_")
