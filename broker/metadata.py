"""Topics and dynamic settings: what there is, what it is called, how it is configured.

Two views. Decisions (does this name exist, what comes of "append") are made on what has been
admitted, so that two requests in flight cannot both win; everything that answers clients sees only
what is committed, for what is not may yet fail. A change gets its ticket from the log and becomes
visible when that is done, before anyone else who waits for the ticket is called.

The rows are this module's: table TOPICS by topic name, table CONFIGS by resource, and two rows of
table CLUSTER. Their layout is in docs/design/metadata.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from ottla.broker import metadata_rows as rows
from ottla.broker.config import MIN_INSYNC, ServerConfig
from ottla.broker.config_kept import say_of_broker, say_of_topic
from ottla.broker.topic_config import TopicConfig, effective, partition_settings, rules
from ottla.broker.topic_names import check_name, collision_key
from ottla.group.outcome import Place
from ottla.log.errors import LogError
from ottla.log.options import Change, PartitionSettings, Table
from ottla.log.partition import Partition
from ottla.log.store import Store
from ottla.log.tickets import Ticket
from ottla.log.validate import Rules
from ottla.wire.errors import Error, KafkaError

_STEP = 200
"""Partitions that are prepared in one step."""
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
        self._sorted: list[Topic] | None = None
        self.version = 0
        """Rises with every visible change of a topic."""
        self._inherited: dict[tuple[tuple[str, str], ...], Effective] = {}
        self._load()
        store.on_reset(self._reset)

    # ------------------------------------------------------------------------------ what there is

    def __len__(self) -> int:
        return len(self._visible)

    def __iter__(self) -> Iterator[Topic]:
        """All topics by name, as they are now, whatever becomes of them meanwhile."""
        return iter(self._by_name)

    def from_name(self, name: str) -> Sequence[Topic]:
        """The topics whose names are not before `name`, by name."""
        topics = self._by_name
        return topics[bisect_left(topics, name, key=lambda topic: topic.name) :]

    @property
    def _by_name(self) -> list[Topic]:
        """Sorted when first asked for after a change."""
        if self._sorted is None:
            visible = self._visible
            self._sorted = [visible[name] for name in sorted(visible)]
        return self._sorted

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
        twin = self._collisions.get(collision_key(name))
        if twin is not None:
            raise KafkaError(
                Error.INVALID_TOPIC_EXCEPTION,
                f"topic '{name}' collides with '{twin}': '.' and '_' are the same in metric names",
            )

    def name_like(self, name: str) -> str | None:
        """The admitted topic whose name collides with this one, or is the same."""
        return self._collisions.get(collision_key(name))

    def own_configs(self, kind: ResourceType, name: str) -> dict[str, str]:
        """What has been set of a topic, or a broker ("": all brokers), as far as admitted."""
        return dict(self._own.get((kind, name), {}))

    def own_now(self, kind: int, name: str) -> object:
        """Another object once these have changed."""
        return self._own.get((kind, name))

    def configured(self, kind: ResourceType) -> list[str]:
        """Resources of a kind with settings of their own, as far as committed."""
        return [name for _, name, _ in rows.scan_configs(self._store, kind)]

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
        prepared = Prepared(self, self._store)
        for plan in new:
            prepared.all(prepared.create(plan))
        return self.admit(prepared)

    def add_partitions(self, name: str, total: int) -> Ticket:
        """Give a topic (admitted, with fewer partitions) `total` partitions."""
        prepared = Prepared(self, self._store)
        prepared.all(prepared.grow(self._admitted[name], total))
        return self.admit(prepared)

    def delete(self, names: Iterable[str]) -> Ticket:
        """Delete topics (admitted) for good, with their records and settings, in one commit."""
        prepared = Prepared(self, self._store)
        for name in names:
            prepared.all(prepared.delete(self._admitted[name]))
        return self.admit(prepared)

    def prepare(self) -> Prepared:
        """For changes of many topics in one commit."""
        return Prepared(self, self._store)

    def admit(self, prepared: Prepared) -> Ticket:
        """Make the changes, which must still stand, in one commit."""
        changes = prepared.changes
        if prepared.places:
            changes = [*changes, self._store.partition_counter()]
        ticket = self._change(changes, lambda: self._show_prepared(prepared))
        for name in prepared.gone:
            del self._admitted[name]
            key = collision_key(name)
            if self._collisions.get(key) == name:
                del self._collisions[key]
            self._own.pop((ResourceType.TOPIC, name), None)
        for (kind, _), own in prepared.own.items():
            if own:
                (say_of_topic if kind == ResourceType.TOPIC else say_of_broker)(own)
        self._admitted.update(prepared.topics)
        self._collisions.update(prepared.collisions)
        self._own.update(prepared.own)
        return ticket

    def set_configs(
        self, settings: Sequence[tuple[ResourceType, str, Mapping[str, str]]]
    ) -> Ticket:
        """Replace what resources set themselves; all checked, in one commit.

        A topic must be admitted. Broker settings ("" all, else this node) take effect when
        committed, and with them every topic that inherits from them.
        """
        prepared = Prepared(self, self._store)
        for kind, name, own in settings:
            prepared.configure(kind, name, own)
        return self.admit(prepared)

    def _change(self, changes: Sequence[Change], show: Callable[[], None]) -> Ticket:
        ticket = self._store.change(changes)

        def committed(done: Ticket) -> None:
            if done.error is None:
                show()

        ticket.then(committed)
        return ticket

    # ------------------------------------------------------------------- what becomes visible

    def _show(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            before = self._visible.get(topic.name)
            # broker settings may have been committed between this topic's admission and now
            topic = replace(topic, effective=self.effective(topic.configs))
            self._visible[topic.name] = self._by_id[topic.topic_id] = topic
            self._place(topic, 0 if before is None else len(before.partitions))
            if (
                before is None
                or before.effective != topic.effective
                or len(before.partitions) != len(topic.partitions)
            ):
                self._store.configure(topic.partitions, topic.effective.settings)
        self._moved()

    def _show_prepared(self, prepared: Prepared) -> None:
        """All of it in a few steps, however much it is."""
        for topic in prepared.gone.values():
            del self._visible[topic.name]
            del self._by_id[topic.topic_id]
            for number in topic.partitions:
                del self._places[number]
        if prepared.others:
            self._apply_broker(prepared.others)
        if prepared.inherits is self._inherited:
            self._visible.update(prepared.topics)
            self._by_id.update(prepared.ids)
            self._places.update(prepared.places)
            for topic in prepared.topics.values():
                self._store.configure(topic.partitions, topic.effective.settings)
            self._moved()
        else:
            # broker settings have been committed between these topics' preparation and now
            self._show(list(prepared.topics.values()))
        if prepared.gone:
            gone = [number for topic in prepared.gone.values() for number in topic.partitions]
            for fn in self._mourners:
                fn(gone)

    @property
    def inherited(self) -> object:
        """Another object once what topics inherit has changed."""
        return self._inherited

    def _place(self, topic: Topic, first: int) -> None:
        """Note where partitions belong, from index `first` on: the others are known."""
        for index in range(first, len(topic.partitions)):
            place = Place(topic.name, topic.topic_id, index)
            self._places[topic.partitions[index]] = place

    def _apply_broker(self, own: Mapping[tuple[ResourceType, str], Mapping[str, str]]) -> None:
        if not any(kind is ResourceType.BROKER for kind, _ in own):
            return
        node = str(self._config.node_id)
        self._config.set_dynamic(
            own.get((ResourceType.BROKER, ""), self._config.cluster),
            own.get((ResourceType.BROKER, node), self._config.node),
        )
        self._configure_log()
        self._inherited = {}
        for name, topic in self._admitted.items():
            self._admitted[name] = replace(topic, effective=self.effective(topic.configs))
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
        self._sorted = None
        self.version += 1
        for fn in self._listeners:
            fn()

    def effective(self, own: Mapping[str, str]) -> Effective:
        """What settings of a topic's own come to."""
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
        self._inherited = {}
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
            topic = Topic(name, topic_id, numbers, own, self.effective(own))
            self._visible[name] = self._by_id[topic_id] = topic
            self._place(topic, 0)
            self._store.configure(numbers, topic.effective.settings)
        self._admitted = dict(self._visible)
        self._collisions = {collision_key(name): name for name in self._visible}
        self._moved()

    def _reset(self, error: LogError) -> None:
        """A commit failed: what was admitted and not committed never was."""
        self._load()


class Prepared:
    """Changes of topics that are to be one commit, prepared some at a time: however many they are,
    to admit and to show them takes little."""

    def __init__(self, topics: Topics, store: Store) -> None:
        self._all = topics
        self._store = store
        self.inherits = topics.inherited
        self.changes: list[Change] = []
        #: What each topic was that is changed; None where there was none.
        self._before: dict[str, Topic | None] = {}
        #: New and changed topics, and what is known by their names, ids and partitions.
        self.topics: dict[str, Topic] = {}
        self.ids: dict[bytes, Topic] = {}
        self.places: dict[int, Place] = {}
        self.collisions: dict[str, str] = {}
        #: Own settings; `others`: of what is no topic.
        self.own: dict[tuple[int, str], dict[str, str]] = {}
        self.others: dict[tuple[ResourceType, str], Mapping[str, str]] = {}
        self._own_before: dict[tuple[int, str], object] = {}
        self.gone: dict[str, Topic] = {}

    def stands(self) -> bool:
        """Whether nothing has been admitted meanwhile that it does not know of; else prepare it
        again."""
        admitted, taken = self._all.admitted, self._all.name_like
        return (
            self.inherits is self._all.inherited
            and all(self._all.own_now(*of) is own for of, own in self._own_before.items())
            and all(admitted(name) is before for name, before in self._before.items())
            and all(self._before[name] is not None or taken(name) is None for name in self.topics)
        )

    @staticmethod
    def all(steps: Iterator[None]) -> None:
        """Take all steps at once."""
        for _ in steps:
            pass

    def create(self, plan: NewTopic) -> Iterator[None]:
        """Steps that prepare a new topic; its name has been checked."""
        own = dict(plan.configs)
        topic = Topic(plan.name, plan.topic_id, (), own, self._all.effective(own))
        self._before[plan.name] = None
        self.collisions[collision_key(plan.name)] = plan.name
        if own:
            self.changes.append(rows.config_row(ResourceType.TOPIC, plan.name, own))
        return self._number(topic, plan.partitions)

    def grow(self, topic: Topic, total: int) -> Iterator[None]:
        """Steps that prepare further partitions of a topic that is admitted."""
        self._before[topic.name] = topic
        return self._number(topic, total - len(topic.partitions))

    def _number(self, topic: Topic, count: int) -> Iterator[None]:
        numbers = list(topic.partitions)
        while count > 0:
            added, changes = self._store.number_partitions(min(count, _STEP))
            count -= len(added)
            self.changes += changes
            for number in added:
                self.places[number] = Place(topic.name, topic.topic_id, len(numbers))
                numbers.append(number)
            yield
        self.changes.append(rows.topic_row(topic.name, topic.topic_id, numbers))
        self._set(replace(topic, partitions=tuple(numbers)))

    def delete(self, topic: Topic) -> Iterator[None]:
        """Steps that prepare the end of a topic that is admitted."""
        self._before[topic.name] = self.gone[topic.name] = topic
        numbers = topic.partitions
        for first in range(0, len(numbers), _STEP):
            self.changes += self._store.drop_partitions(numbers[first : first + _STEP])
            yield
        self.changes += [
            Change(Table.TOPICS, rows.topic_key(topic.name), None),
            rows.config_row(ResourceType.TOPIC, topic.name, {}),
        ]

    def configure(self, kind: ResourceType, name: str, own: Mapping[str, str]) -> None:
        """Other settings of a resource; a topic is admitted."""
        self.changes.append(rows.config_row(kind, name, own))
        topic = self._all.admitted(name) if kind is ResourceType.TOPIC else None
        if topic is None:
            self._own_before[kind, name] = self._all.own_now(kind, name)
            self.own[kind, name] = dict(own)
            self.others[kind, name] = self.own[kind, name]
            return
        self._before[name] = topic
        own = dict(own)
        self._set(replace(topic, configs=own, effective=self._all.effective(own)))

    def _set(self, topic: Topic) -> None:
        self.topics[topic.name] = self.ids[topic.topic_id] = topic
        self.own[ResourceType.TOPIC, topic.name] = dict(topic.configs)
