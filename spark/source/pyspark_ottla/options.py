"""The options: which there are, for what, and how their text is read.

Names are those of Spark's Kafka connector (KafkaSourceProvider), in any case. Each is honoured or
refused by name; `kafka.*` goes to the client (properties.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark_ottla.errors import BadOption

READ_BATCH: Final = "batch reads"
READ_STREAM: Final = "streaming reads"
WRITE: Final = "writes"

KAFKA_PREFIX: Final = "kafka."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")

_READS: Final = frozenset({READ_BATCH, READ_STREAM})
_BATCH: Final = frozenset({READ_BATCH})
_STREAM: Final = frozenset({READ_STREAM})
_WRITE: Final = frozenset({WRITE})

#: What each option is for.
OPTIONS: Final[Mapping[str, frozenset[str]]] = {
    "subscribe": _READS,
    "subscribePattern": _READS,
    "assign": _READS,
    "startingOffsets": _READS,
    "startingOffsetsByTimestamp": _READS,
    "startingTimestamp": _READS,
    "startingOffsetsByTimestampStrategy": _READS,
    "endingOffsets": _BATCH,
    "endingOffsetsByTimestamp": _BATCH,
    "endingTimestamp": _BATCH,
    "maxOffsetsPerTrigger": _STREAM,
    "minOffsetsPerTrigger": _STREAM,
    "maxTriggerDelay": _STREAM,
    "minPartitions": _READS,
    "maxRecordsPerPartition": _READS,
    "failOnDataLoss": _READS,
    "includeHeaders": _READS,
    "groupIdPrefix": _READS,
    "fetchOffset.numRetries": _READS,
    "fetchOffset.retryIntervalMs": _READS,
    "kafkaConsumer.pollTimeoutMs": _READS,
    "commitGroupId": _STREAM,
    "ottla.log.dir": _READS,
    "topic": _WRITE,
}
_BY_LOWER: Final = {name.lower(): name for name in OPTIONS}
#: Spark's own, which it hands to the sink with the sink's.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})

_DURATION: Final = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")
#: Spark's JavaUtils.timeStringAsMs.
_UNITS: Final = {
    "": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


class Strategy(NamedTuple):
    """Which of the three ways names the topics, and its text."""

    option: str
    text: str


class Options:
    """The options of one use. Raises BadOption for one that is not for it."""

    def __init__(self, use: str, given: Mapping[str, str]) -> None:
        self.use = use
        #: By the names of OPTIONS.
        self.values: dict[str, str] = {}
        #: The client's properties by their names in Java or librdkafka, without the prefix.
        self.kafka: dict[str, str] = {}
        for key, value in dict(given).items():
            lower = key.lower()
            if lower.startswith(KAFKA_PREFIX):
                self.kafka[lower.removeprefix(KAFKA_PREFIX)] = value
            elif lower not in _OF_SPARK or use != WRITE:
                self.values[_known(key, use)] = value
        if not self.kafka.get("bootstrap.servers", "").strip():
            raise BadOption(BOOTSTRAP, "is missing: give the brokers as host:port,host:port")

    def get(self, name: str) -> str | None:
        return self.values.get(name)

    def flag(self, name: str, default: bool) -> bool:
        return flag(self.values, name, default)

    def number(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        """A whole number, at least `least`. Raises BadOption."""
        text = self.values.get(name)
        if text is None:
            return default
        try:
            value = int(text.strip())
        except ValueError:
            raise BadOption(name, f"{text!r} is no whole number") from None
        if value < least:
            raise BadOption(name, f"{value} is below {least}")
        return value

    def duration_ms(self, name: str, default: int) -> int:
        """A time such as 15m or 200ms; milliseconds without a unit. Raises BadOption."""
        text = self.values.get(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text.lower())
        if match is None or match[2] not in _UNITS:
            raise BadOption(name, f"{text!r} is no time: write it like 200ms, 30s, 15m or 1h")
        return int(match[1]) * _UNITS[match[2]]

    def strategy(self) -> Strategy:
        """The one of subscribe, subscribePattern and assign that is given. Raises BadOption."""
        given = [name for name in STRATEGIES if name in self.values]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise BadOption(" | ".join(STRATEGIES), f"give exactly one of these (found {found})")
        text = self.values[given[0]].strip()
        if not text:
            raise BadOption(given[0], "is empty")
        return Strategy(given[0], text)


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """true or false, in any case. Raises BadOption."""
    text = options.get(name)
    if text is None:
        return default
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise BadOption(name, f"{text!r} is neither true nor false")
    return value


def _known(key: str, use: str) -> str:
    name = _BY_LOWER.get(key.lower())
    if name is None:
        if key.lower() == "path":
            raise BadOption("path", "topics are named by options: call .load() without a path")
        raise BadOption(key, f"is no option of format ottla; for {use} there are {_names(use)}")
    if use not in OPTIONS[name]:
        others = " and ".join(sorted(OPTIONS[name]))
        raise BadOption(name, f"is for {others}, not for {use}: leave it out")
    return name


def _names(use: str) -> str:
    return ", ".join([*sorted(name for name, uses in OPTIONS.items() if use in uses), "kafka.*"])
