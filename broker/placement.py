"""Which nodes hold a partition: checks of what a request asks for. There is one node, so the answer
is always that node, but a request that asks for more must be refused and not quietly served less.
Source: Kafka's ReplicationControlManager (createTopic, validateManualPartitionAssignment)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.wire.errors import Error, KafkaError

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Kafka's bound on what one request may make; it keeps one commit from growing without limit."""


def check_counts(partitions: int, replicas: int) -> None:
    """Of a topic made by counts; -1 is the broker's default. Raises KafkaError."""
    if replicas < -1 or replicas == 0:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            "the replication factor must be above 0, or -1 for the broker's default",
        )
    if partitions < -1 or partitions == 0:
        raise KafkaError(
            Error.INVALID_PARTITIONS,
            "the number of partitions must be above 0, or -1 for the broker's default",
        )
    if replicas > 1:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            f"{replicas} replicas cannot be kept: there is 1 broker",
        )


def check_manual(
    node: int, partitions: int, replicas: int, assignments: Mapping[int, Sequence[int]]
) -> None:
    """Of a topic made by saying which nodes get which partition. Raises KafkaError."""
    if replicas != -1:
        raise KafkaError(
            Error.INVALID_REQUEST, "with a manual assignment the replication factor must be -1"
        )
    if partitions != -1:
        raise KafkaError(
            Error.INVALID_REQUEST, "with a manual assignment the number of partitions must be -1"
        )
    for brokers in assignments.values():
        check_replicas(node, brokers)
    if sorted(assignments) != list(range(len(assignments))):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without a gap"
        )


def check_replicas(node: int, brokers: Sequence[int]) -> None:
    """Of one partition. Raises KafkaError INVALID_REPLICA_ASSIGNMENT."""
    if not brokers:
        reason = "a partition needs a replica"
    elif len(set(brokers)) != len(brokers):
        reason = "a broker is named twice for one partition"
    elif list(brokers) != [node]:
        unknown = next(broker for broker in brokers if broker != node)
        reason = f"there is no broker {unknown}"
    else:
        return
    raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, reason)
