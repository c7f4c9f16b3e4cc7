"""What a topic's settings come to: its own, else the broker's defaults, typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.broker.config import NEVER_FLUSHED, ServerConfig
from ottla.broker.config_honoured import TOPIC
from ottla.broker.config_keys import Key, keys
from ottla.broker.config_values import ConfigError, parse
from ottla.log.options import PartitionSettings
from ottla.log.validate import Rules
from ottla.wire.codecs import Codec


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic that the broker acts on, by Kafka's names with "_" for ".".

    Times are milliseconds and sizes bytes; -1 in `retention_*` means no bound.
    """

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    flush_messages: int
    flush_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_ms: int

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def longest_open_ms(self) -> int:
        """How long its records may lie in a file that is being written: only closed ones are
        compacted (LogConfig.maxSegmentMs)."""
        return (
            min(self.segment_ms, self.max_compaction_lag_ms)
            if self.compacted
            else (self.segment_ms)
        )

    @property
    def expires(self) -> bool:
        """Whether retention by time and size removes records."""
        return "delete" in self.cleanup_policy


def effective(config: ServerConfig, own: Mapping[str, str]) -> TopicConfig:
    """The settings of a topic whose own are `own` (checked when they were set)."""
    values = {}
    for name in TOPIC:
        key = keys("topic")[name]
        text = own[name] if name in own else config.default_of_topics(name)
        values[name.replace(".", "_")] = parse(name, key.type, text)
    return TopicConfig(**values)  # type: ignore[arg-type]  # a test holds the table against the fields


def rules(config: TopicConfig) -> Rules:
    """What a batch produced to the topic is held against."""
    kind = config.compression_type
    codec = None if kind == "producer" else Codec["none" if kind == "uncompressed" else kind]
    levels = {
        Codec.gzip: config.compression_gzip_level,
        Codec.lz4: config.compression_lz4_level,
        Codec.zstd: config.compression_zstd_level,
    }
    return Rules(
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        compression_type=codec,
        compression_level=None if codec is None else levels.get(codec),
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        compacted=config.compacted,
    )


def partition_settings(config: TopicConfig) -> PartitionSettings:
    """What the log has to know of the topic."""
    return PartitionSettings(
        retention_ms=config.retention_ms,
        retention_bytes=max(config.retention_bytes, -1),
        delete=config.expires,
        compact=config.compacted,
        delete_retention_ms=config.delete_retention_ms,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
    )


def check_own(config: ServerConfig, own: Mapping[str, str]) -> dict[str, str]:
    """The settings a topic is to get, in Kafka's spelling. Raises ConfigError on the first at
    fault: unknown, out of Kafka's range, or not to be had here (log/LogConfig.validate)."""
    checked = {}
    for name, text in own.items():
        key = keys("topic").get(name)
        if key is None or key.internal:
            raise ConfigError(name, text, "is not a topic setting")
        checked[name] = key.canonical(text)
        _check_honoured(config, key, checked[name])
    _check_lags(config, checked)
    return checked


def _check_honoured(config: ServerConfig, key: Key, text: str) -> None:
    if key.name in ("flush.messages", "flush.ms"):
        if config.ottla_durability == "os" and text != NEVER_FLUSHED:
            raise ConfigError(
                key.name, text, "ottla.durability=os never forces a flush; only fsync does"
            )
    elif key.name == "remote.storage.enable" and text == "true":
        raise ConfigError(key.name, text, "there is no tiered storage here; only false is accepted")


def _check_lags(config: ServerConfig, own: Mapping[str, str]) -> None:
    """min.compaction.lag.ms may not exceed max.compaction.lag.ms (LogConfig.validate)."""
    high = keys("topic")["max.compaction.lag.ms"]
    limit = int(own.get(high.name) or config.default_of_topics(high.name))
    low = int(own.get("min.compaction.lag.ms", 0))
    if low > limit:
        raise ConfigError("min.compaction.lag.ms", low, f"must be at most {limit}, the maximum")
