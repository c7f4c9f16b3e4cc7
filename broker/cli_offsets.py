"""Offsets by place or time, for the commands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ottla.broker.cli_client import ClientError, Cluster, raise_for
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2


def list_offsets(
    cluster: Cluster, topic: str, partitions: Iterable[int], timestamp: int
) -> dict[int, int]:
    """The offset of each partition at LATEST, EARLIEST or the first record from a time (ms) on; -1
    where no record is as late. The cluster's `topics` has told of the topic."""
    by_leader: dict[int, list[int]] = defaultdict(list)
    for index in partitions:
        by_leader[cluster.leader(topic, index)].append(index)
    offsets = {}
    for indexes in by_leader.values():
        asked = ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                for index in indexes
            ],
        )
        answer = cluster.call_leader(
            topic,
            indexes[0],
            ListOffsetsRequest(replica_id=-1, topics=[asked]),
            ListOffsetsResponse,
        )
        for partition in answer.topics[0].partitions:
            raise_for(partition.error_code)
            offsets[partition.partition_index] = partition.offset
    return offsets


def start_offsets(
    cluster: Cluster, topic: str, partitions: list[int], where: str
) -> dict[int, int]:
    """Where to begin: "earliest", "latest", an offset, "-N" before the end, or "@MS", a time; after
    the last record of a partition, its end. Raises ClientError for anything else."""
    if where == "earliest":
        return list_offsets(cluster, topic, partitions, EARLIEST)
    ends = list_offsets(cluster, topic, partitions, LATEST)
    if where == "latest":
        return ends
    try:
        number = int(where.removeprefix("@"))
    except ValueError:
        raise ClientError(f"--from {where}: not earliest, latest, an offset, -N or @MS") from None
    if where.startswith("@"):
        found = list_offsets(cluster, topic, partitions, number)
        return {index: ends[index] if found[index] < 0 else found[index] for index in partitions}
    if number >= 0:
        return dict.fromkeys(partitions, number)
    starts = list_offsets(cluster, topic, partitions, EARLIEST)
    return {index: max(starts[index], ends[index] + number) for index in partitions}
