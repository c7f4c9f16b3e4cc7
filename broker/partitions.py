"""Small questions about one partition that several handlers ask."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.log.partition import Partition
from ottla.log.store import Store
from ottla.wire.errors import Error, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Broker


class _Indexed(Protocol):
    partition_index: int


P = TypeVar("P", bound=_Indexed)


class _Named(Protocol[P]):
    """A topic as a request names it, with some of its partitions."""

    name: str
    partitions: list[P]


#: A client that names no leader epoch, or the answer where none is known.
NO_EPOCH = -1

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def find(broker: Broker, name: str, index: int) -> Partition:
    """Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION."""
    return broker.topics.partition(name, index)


def committed_only(isolation_level: int) -> bool:
    """Whether a reader is to see nothing of open transactions. Raises KafkaError
    UNKNOWN_SERVER_ERROR for a level that there is not: Kafka has no better code for it."""
    if isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaError(
            Error.UNKNOWN_SERVER_ERROR, f"isolation level {isolation_level} is unknown: 0 or 1"
        )
    return isolation_level == READ_COMMITTED


def view(broker: Broker, number: int) -> Partition | None:
    """By the log's own number; None where its topic has been deleted meanwhile."""
    try:
        return broker.store.partition(number)
    except KeyError:
        return None


def by_name(topics: Iterable[_Named[P]]) -> Generator[None, None, dict[str, dict[int, list[P]]]]:
    """Steps, and what a request names: all its mentions of a partition by topic and index."""
    found: dict[str, dict[int, list[P]]] = {}
    for topic in topics:
        mine = found.setdefault(topic.name, {})
        for partition in topic.partitions:
            mine.setdefault(partition.partition_index, []).append(partition)
            yield
        yield
    return found


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Raises KafkaError if a client that names a leader epoch knows another than ours (KIP-320)."""
    if epoch == NO_EPOCH or epoch == partition.leader_epoch:
        return
    if epoch < partition.leader_epoch:
        raise KafkaError(Error.FENCED_LEADER_EPOCH)
    raise KafkaError(Error.UNKNOWN_LEADER_EPOCH)


def epoch_at(store: Store, partition: Partition, offset: int) -> int:
    """The leader epoch in which `offset` was written.

    Clients keep it with their position and later ask whether the log was truncated since; an epoch
    that is too new would hide that.
    """
    epoch = partition.leader_epoch
    while epoch > 0:
        before, end = store.epoch_end(partition, epoch - 1)
        if before < 0 or offset >= end:
            break
        epoch = before
    return epoch
