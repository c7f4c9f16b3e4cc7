"""The interface the tests are written against."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

Headers = Sequence[tuple[str, bytes | None]]


class Partition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True)
class Message:
    """What is sent. No timestamp: now. No partition: the client's partitioner."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = 0
    timestamp: int | None = None
    headers: Headers = ()


@dataclass(frozen=True)
class Received:
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str  # CreateTime or LogAppendTime
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True)
class Ack:
    """Where an acknowledged record lies; offset -1 with acks 0."""

    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True)
class At:
    offset: int
    timestamp: int


@dataclass(frozen=True)
class Cluster:
    cluster_id: str
    controller: int
    nodes: list[str]  # host:port


@dataclass(frozen=True)
class TopicDescription:
    topic_id: str | None  # None from clients that do not tell
    leaders: dict[int, int]  # broker id by partition


class Failed(Exception):
    """An error of the broker, or of the client about it, by the name of Kafka's error code."""

    def __init__(self, error: str, message: str = "") -> None:
        super().__init__(f"{error}: {message}")
        self.error = error


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    acks: str = "all"  # "all", "1" or "0"
    compression: str = "none"
    idempotent: bool = False
    linger_ms: int = 0
    batch_bytes: int = 16384
    max_request_bytes: int = 1_000_000
    delivery_timeout_ms: int = 30_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    max_partition_bytes: int = 1 << 20
    isolation_level: str = "read_uncommitted"
    auto_offset_reset: str = "none"  # or "earliest", "latest"


class _Closing(abc.ABC):
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    @abc.abstractmethod
    def close(self) -> None: ...


class Pending(abc.ABC):
    """A record on its way."""

    @abc.abstractmethod
    def result(self, timeout: float = 30) -> Ack:
        """Raises Failed."""


class Producer(_Closing):
    """With a transactional id it is initialised when it is made: earlier instances are fenced."""

    @abc.abstractmethod
    def __init__(self, bootstrap: str, options: ProducerOptions) -> None: ...

    @abc.abstractmethod
    def send(self, message: Message) -> Pending: ...

    @abc.abstractmethod
    def flush(self) -> None: ...

    def send_all(self, messages: Iterable[Message]) -> list[Ack]:
        """Send, flush, and wait for every acknowledgement. Raises Failed."""
        pending = [self.send(message) for message in messages]
        self.flush()
        return [one.result() for one in pending]

    @abc.abstractmethod
    def begin(self) -> None:
        """Begin a transaction. Raises Failed."""

    @abc.abstractmethod
    def send_offsets(self, offsets: Mapping[Partition, int], group: str) -> None:
        """Commit for the group with the transaction, as nobody's member. Raises Failed."""

    @abc.abstractmethod
    def commit(self) -> None:
        """Wait for what was sent, and commit. Raises Failed."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Raises Failed."""

    def transaction(self, messages: Iterable[Message], *, commit: bool = True) -> None:
        """One whole transaction, committed or aborted. Raises Failed."""
        self.begin()
        self.send_all(messages)
        self.commit() if commit else self.abort()


class Consumer(_Closing):
    """A consumer without a group: partitions are assigned by hand."""

    @abc.abstractmethod
    def __init__(self, bootstrap: str, options: ConsumerOptions) -> None: ...

    @abc.abstractmethod
    def assign(self, positions: Mapping[Partition, int]) -> None: ...

    @abc.abstractmethod
    def seek(self, partition: Partition, offset: int) -> None: ...

    @abc.abstractmethod
    def seek_to_beginning(self, partition: Partition) -> None: ...

    @abc.abstractmethod
    def seek_to_end(self, partition: Partition) -> None: ...

    @abc.abstractmethod
    def position(self, partition: Partition) -> int: ...

    @abc.abstractmethod
    def poll(self, seconds: float) -> list[Received]:
        """What is there, waiting up to `seconds` for the first. Raises Failed."""

    @abc.abstractmethod
    def beginning_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]: ...

    @abc.abstractmethod
    def end_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]: ...

    @abc.abstractmethod
    def offsets_for_times(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        """Offset of the first record at or after; -1 where there is none."""

    def take(self, count: int, seconds: float = 60) -> list[Received]:
        """Exactly `count` records. Raises AssertionError when they do not come."""
        got: list[Received] = []
        deadline = time.monotonic() + seconds
        while len(got) < count:
            got += self.poll(0.5)
            assert time.monotonic() < deadline, f"{len(got)} of {count} records in {seconds} s"
        assert len(got) == count, f"{len(got)} records, {count} expected"
        return got


class Admin(_Closing):
    """Every client has these four; the rest only where its own admin client has it."""

    @abc.abstractmethod
    def __init__(self, bootstrap: str) -> None: ...

    @abc.abstractmethod
    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None: ...

    @abc.abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abc.abstractmethod
    def list_topics(self) -> set[str]: ...

    @abc.abstractmethod
    def describe_topic(self, topic: str) -> TopicDescription: ...

    def create_partitions(self, topic: str, total: int) -> None:
        raise NotImplementedError

    def describe_configs(self, kind: str, name: str) -> dict[str, str | None]:
        """`kind` is TOPIC or BROKER."""
        raise NotImplementedError

    def alter_configs(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        """The old call: replaces everything."""
        raise NotImplementedError

    def incremental_alter_configs(
        self, kind: str, name: str, config: Mapping[str, str | None]
    ) -> None:
        """None takes the value away."""
        raise NotImplementedError

    def delete_records(self, before: Mapping[Partition, int]) -> dict[Partition, int]:
        """The new low watermarks."""
        raise NotImplementedError

    def log_dirs(self) -> dict[Partition, int]:
        """Size in bytes by partition."""
        raise NotImplementedError

    def describe_cluster(self) -> Cluster:
        raise NotImplementedError

    def list_offsets(self, at: Mapping[Partition, str]) -> dict[Partition, At]:
        """`at` is latest, earliest, max_timestamp or a timestamp in digits."""
        raise NotImplementedError


class Client:
    name: ClassVar[str]
    producer_class: ClassVar[type[Producer]]
    consumer_class: ClassVar[type[Consumer]]
    admin_class: ClassVar[type[Admin]]

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @classmethod
    def can(cls, method: str) -> bool:
        """Whether its admin client has this method."""
        mine: Callable[..., object] = getattr(cls.admin_class, method)
        return mine is not getattr(Admin, method)

    def producer(self, **options: Any) -> Producer:
        """`options` are those of ProducerOptions."""
        return self.producer_class(self.bootstrap, ProducerOptions(**options))

    def consumer(self, **options: Any) -> Consumer:
        """`options` are those of ConsumerOptions."""
        return self.consumer_class(self.bootstrap, ConsumerOptions(**options))

    def admin(self) -> Admin:
        return self.admin_class(self.bootstrap)

    def read(
        self, positions: Mapping[Partition, int], count: int, **options: Any
    ) -> list[Received]:
        """Exactly `count` records from these positions."""
        with self.consumer(**options) as consumer:
            consumer.assign(positions)
            return consumer.take(count)
