"""The broker's settings: Kafka's names and meanings, typed, in the layers that Kafka has.

A setting is looked for in what IncrementalAlterConfigs said of this node, then of all nodes, then
in the file and the command line, then in our default, which is Kafka's unless `config_honoured`
says otherwise. Values are held as text in Kafka's spelling, because that is what DescribeConfigs
answers, and parsed once into the attributes of ServerConfig.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from ottla.broker.config_honoured import BROKER
from ottla.broker.config_keys import Key, Synonym, broker_key, keys
from ottla.broker.config_values import ConfigError
from ottla.broker.listeners import Listener, parse_listeners

NEVER_FLUSHED = str((1 << 63) - 1)
MIN_INSYNC = "min.insync.replicas"


class Source(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it (ConfigEntry.ConfigSource)."""

    TOPIC = 1
    NODE = 2
    CLUSTER = 3
    STATIC = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Setting(NamedTuple):
    """One value of one key in one layer."""

    name: str
    value: str
    source: Source


class ServerConfig:
    """Every setting that the broker acts on, by Kafka's name with "_" for ".".

    Read a setting when it is needed and do not keep it: IncrementalAlterConfigs changes the
    attributes in place, and a change takes effect by being read. Defaults of topics are not here
    but in each topic's TopicConfig.
    """

    auto_create_topics_enable: bool
    broker_rack: str | None
    connections_max_idle_ms: int
    default_replication_factor: int
    delete_topic_enable: bool
    fetch_max_bytes: int
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_enable: bool
    log_dirs: tuple[str, ...]
    log_retention_check_interval_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_incremental_fetch_session_cache_slots: int
    max_request_partition_size_limit: int
    node_id: int
    num_partitions: int
    offset_metadata_max_bytes: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    ottla_cluster_id: str | None
    ottla_connection_parked_max_requests: int
    ottla_producer_states_max_count: int
    ottla_connection_send_max_bytes: int
    ottla_durability: str
    """ "fsync" or "os"."""
    ottla_fetch_session_cache_max_partitions: int
    ottla_request_max_bytes: int
    ottla_file_mode: str
    """Octal."""
    ottla_send_max_bytes: int
    producer_id_expiration_ms: int
    queued_max_request_bytes: int
    """-1: no bound."""
    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    """-1: the system's choice; so for the send buffer."""
    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    transaction_max_timeout_ms: int
    transaction_state_log_num_partitions: int
    transaction_partition_verification_enable: bool
    transactional_id_expiration_ms: int

    listeners: tuple[Listener, ...]

    def __init__(self, static: Mapping[str, str] | None = None) -> None:
        """`static`: texts by key, as a file or the command line gave them. Raises ConfigError."""
        self.static = {name: _known(name).canonical(text) for name, text in (static or {}).items()}
        self.cluster: dict[str, str] = {}
        self.node: dict[str, str] = {}
        _apply_aliases(self.static)
        self.set_dynamic({}, {})
        self.listeners = parse_listeners(self.text)
        _check_together(self)

    @property
    def data_dir(self) -> Path:
        return Path(self.log_dirs[0])

    def set_dynamic(self, cluster: Mapping[str, str], node: Mapping[str, str]) -> None:
        """Take the dynamic settings that have been committed; the attributes change in place.

        `cluster`, `node`: what has been altered for all nodes and for this one. The cluster always
        has min.insync.replicas, as it does in Kafka while eligible leader replicas are enabled:
        what the file says until it is altered. Raises ConfigError and changes nothing when a value
        cannot be read.
        """
        before = self.cluster, self.node
        started = self.static.get(MIN_INSYNC) or default_text(MIN_INSYNC) or ""
        self.cluster, self.node = {MIN_INSYNC: started, **cluster}, dict(node)
        try:
            self._refresh()
        except ConfigError:
            self.cluster, self.node = before
            self._refresh()
            raise

    def with_dynamic(self, cluster: Mapping[str, str], node: Mapping[str, str]) -> ServerConfig:
        """A copy with other dynamic settings. Raises ConfigError."""
        changed = copy.copy(self)
        changed.set_dynamic(cluster, node)
        return changed

    def check_cleaner(self) -> None:
        """Raises ConfigError where keys of a compaction have too little room (CleanerConfig)."""
        threads = max(1, int(self.text("log.cleaner.threads") or 1))
        if self.log_cleaner_dedupe_buffer_size // threads <= 1 << 20:
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size",
                self.log_cleaner_dedupe_buffer_size,
                f"must be more than 1 MiB for each of log.cleaner.threads={threads}",
            )

    def text(self, name: str) -> str | None:
        """The value of a broker key in Kafka's spelling; None when nothing sets it."""
        settings = self.settings([name])
        return settings[0].value if settings else None

    def settings(self, names: Iterable[str]) -> list[Setting]:
        """What the layers say of these keys, the one that counts first: layer by layer, and in each
        the keys in the order given (DescribeConfigs calls them synonyms)."""
        names = list(names)
        layers = ((self.node, Source.NODE), (self.cluster, Source.CLUSTER))
        found = [
            Setting(name, layer[name], source)
            for layer, source in (*layers, (self.static, Source.STATIC))
            for name in names
            if name in layer
        ]
        for name in names:
            default = default_text(name)
            if default is not None:
                found.append(Setting(name, default, Source.DEFAULT))
        return found

    def topic_default(self, key: Key) -> str | None:
        """What a topic without a setting of its own has, in the topic key's unit."""
        found = self.settings([synonym.name for synonym in key.synonyms])
        if not found:
            return key.default
        best = _finest(found, key.synonyms)
        factor = next(s.factor for s in key.synonyms if s.name == best.name)
        if key.name == "retention.ms":  # any negative number of any unit is "for ever"
            return str(-1 if int(best.value) < 0 else int(best.value) * factor)
        return best.value if factor == 1 else str(int(best.value) * factor)

    def default_of_topics(self, name: str) -> str:
        """The text of a topic setting in a topic that does not set it."""
        key = keys("topic")[name]
        text = self.topic_default(key)
        return (key.default or "") if text is None else text

    def _refresh(self) -> None:
        for field in _FIELDS:
            name = field.replace("_", ".")
            text = self.text(name)
            setattr(self, field, None if text is None else _known(name).parse(text))


_FIELDS = [field for field in ServerConfig.__annotations__ if field != "listeners"]


def default_text(name: str) -> str | None:
    """Our default of a broker key: Kafka's, unless Ottla has its own. A quota has none."""
    ours = BROKER.get(name)
    if ours is not None and ours.default is not None:
        return ours.default
    key = broker_key(name)
    return None if key is None else key.default


def is_secret(name: str) -> bool:
    """Whether values of a broker key are shown to nobody."""
    key = broker_key(name)
    return key is None or key.sensitive


def load(given: Mapping[str, str]) -> tuple[ServerConfig, list[str]]:
    """The configuration that a file and the command line describe, and one line each on what of it
    is unknown or has no effect here. Raises ConfigError."""
    unknown = [name for name in given if not _is_known(name)]
    static = {name: text for name, text in given.items() if broker_key(name) is not None}
    idle = [name for name in given if _is_known(name) and name not in BROKER]
    config = ServerConfig(static)
    notices = [_unknown_notice(name) for name in unknown]
    if idle:
        notices.append("these settings have no effect in Ottla: " + ", ".join(sorted(idle)))
    if config.default_replication_factor > 1:
        notices.append(
            f"default.replication.factor={config.default_replication_factor} is ignored: a single"
            " node keeps one replica"
        )
    return config, notices


def _known(name: str) -> Key:
    key = broker_key(name)
    if key is None:
        raise ConfigError(name, None, "is not a setting that Kafka or Ottla knows")
    return key


def _is_known(name: str) -> bool:
    # super.users and allow.everyone... are read by Kafka's authorizer, not defined as broker keys
    beside = ("allow.everyone.if.no.acl.found", "super.users")
    return broker_key(name) is not None or name in beside or name.startswith("listener.name.")


def _unknown_notice(name: str) -> str:
    from difflib import get_close_matches  # slow to import, and only a misspelt name needs it

    from ottla.broker.config_keys import keys

    near = get_close_matches(name, keys("broker"), 1, cutoff=0.8)
    return f"unknown setting {name} is ignored" + (f"; did you mean {near[0]}?" if near else "")


def _apply_aliases(static: dict[str, str]) -> None:
    """node.id wins over broker.id, and log.dirs over log.dir (KafkaConfig)."""
    for older, name in (("broker.id", "node.id"), ("log.dir", "log.dirs")):
        if older in static and static[older] != "-1":
            static.setdefault(name, static[older])
    if "node.id" in static:
        static["broker.id"] = static["node.id"]


def _finest(found: list[Setting], synonyms: tuple[Synonym, ...]) -> Setting:
    """Kafka reads ms before minutes before hours in whatever layer they are set."""
    order = [synonym.name for synonym in synonyms]
    chosen = [setting for setting in found if setting.source is not Source.DEFAULT] or found
    return min(chosen, key=lambda setting: order.index(setting.name))


def _check_together(config: ServerConfig) -> None:
    """Settings that are right alone and wrong together, or right and not to be had here."""
    if len(config.log_dirs) != 1 or not config.log_dirs[0]:
        raise ConfigError("log.dirs", config.text("log.dirs"), "must name one folder")
    if "\0" in config.log_dirs[0]:
        raise ConfigError("log.dirs", config.text("log.dirs"), "is not the name of a folder")
    roles = config.static.get("process.roles")
    if roles and "broker" not in roles.split(","):
        raise ConfigError("process.roles", roles, "must hold broker: there is no controller to run")
    if config.text("authorizer.class.name"):
        raise ConfigError(
            "authorizer.class.name",
            config.text("authorizer.class.name"),
            "access rules are not enforced yet; remove it to start without them",
        )
    _check_times(config)
    config.check_cleaner()
    low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if low > high:
        raise ConfigError("group.min.session.timeout.ms", low, f"must be at most {high}")
    if config.ottla_durability == "os":
        for name in ("log.flush.interval.messages", "log.flush.interval.ms"):
            if config.static.get(name, NEVER_FLUSHED) != NEVER_FLUSHED:
                raise ConfigError(
                    name,
                    config.static[name],
                    "ottla.durability=os never forces a flush; remove one of the two",
                )


def _check_times(config: ServerConfig) -> None:
    """Retention is -1 or at least a millisecond (KafkaConfig.validateValues)."""
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if config.static.get(name) == "0":
            raise ConfigError(name, 0, "must be at least 1, or -1 for no bound")
