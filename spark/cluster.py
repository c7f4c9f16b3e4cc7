"""What the jobs ask a Kafka cluster, through confluent-kafka: topics, offsets, settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka import TopicCollection as Topics
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from ottla.spark.errors import JobError

T = TypeVar("T")
# A broker that restarts is away for seconds: every question is asked again until then.
PATIENCE_S = 90.0
_FINAL = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.TOPIC_EXCEPTION,
}


@dataclass(frozen=True)
class Range:
    """Offsets `start` (inclusive) to `end` (exclusive) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Cluster:
    """A Kafka cluster by its bootstrap servers.

    `settings` are librdkafka's, for security. Every method waits up to `patience` seconds for a
    broker that is away. Raises JobError after that, or at once when the answer is final.
    """

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, str] | None = None,
        *,
        patience: float = PATIENCE_S,
    ) -> None:
        self.bootstrap = bootstrap
        self.settings = {"bootstrap.servers": bootstrap, **(settings or {})}
        self._patience = patience
        try:
            self._admin = AdminClient(
                {**self.settings, "log_level": 0, "reconnect.backoff.max.ms": 1000}
            )
        except KafkaException as error:
            raise JobError(f"--kafka: {error.args[0].str()}") from error

    def cluster_id(self) -> str:
        return str(self._ask(lambda: self._admin.describe_cluster().result().cluster_id))

    def topic_names(self) -> list[str]:
        once = min(10.0, self._patience)
        return sorted(self._ask(lambda: self._admin.list_topics(timeout=once)).topics)

    def exists(self, topic: str) -> bool:
        return topic in self.topic_names()

    def describe(self, topic: str) -> tuple[str, list[int]]:
        """The topic's id and its partitions. Raises JobError when there is no such topic."""

        def ask() -> Any:
            return self._admin.describe_topics(Topics([topic]))[topic].result()

        found = self._ask(ask, f"topic {topic}")
        return str(found.topic_id), sorted(partition.id for partition in found.partitions)

    def offsets(self, topic: str, *, committed: bool = True) -> dict[int, tuple[int, int]]:
        """Log start and end of each partition; the end is the last stable offset if `committed`."""
        _, partitions = self.describe(topic)
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        start = self._list(topic, partitions, OffsetSpec.earliest(), level)
        end = self._list(topic, partitions, OffsetSpec.latest(), level)
        return {p: (start[p], max(start[p], end[p])) for p in partitions}

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int | None]:
        """The first offset at or after a time in each partition; None where there is none."""
        _, partitions = self.describe(topic)
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        found = self._list(topic, partitions, spec, IsolationLevel.READ_UNCOMMITTED)
        return {p: None if offset < 0 else offset for p, offset in found.items()}

    def configs(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

        def ask() -> Any:
            return self._admin.describe_configs([resource])[resource].result()

        entries = self._ask(ask, f"topic {topic}")
        return {name: entry.value for name, entry in entries.items()}

    def create(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Make a topic and wait until it can be used; fine when it was there."""
        new = NewTopic(topic, partitions, replication_factor=-1, config=dict(configs))

        def ask() -> Any:
            return self._admin.create_topics([new])[topic].result()

        try:
            self._ask(ask, f"topic {topic}")
        except JobError as error:
            cause = error.__cause__
            if (
                not isinstance(cause, KafkaException)
                or cause.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS
            ):
                raise
        self._ask(lambda: self._usable(topic))

    def _usable(self, topic: str) -> None:
        error = self._admin.list_topics(topic, timeout=10).topics[topic].error
        if error is not None:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    def _list(self, topic: str, partitions: Iterable[int], spec: Any, level: Any) -> dict[int, int]:
        asked = {TopicPartition(topic, p): spec for p in partitions}

        def ask() -> dict[int, int]:
            futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=10)
            return {tp.partition: future.result().offset for tp, future in futures.items()}

        return self._ask(ask, f"offsets of {topic}")

    def _ask(self, question: Callable[[], T], what: str = "cluster") -> T:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return question()
            except KafkaException as error:
                final = error.args[0].code() in _FINAL
                if final or time.monotonic() > deadline:
                    raise JobError(
                        f"--bootstrap-server {self.bootstrap}: {what}: {error.args[0].str()}"
                    ) from error
            time.sleep(0.2)
