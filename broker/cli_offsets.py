"""Offsets by place or time, for the commands."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from ottla.broker.cli_client import Cluster
from ottla.broker.cli_errors import ClientError, raise_for
from ottla.broker.cli_values import INT64, moment_ms
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.errors import Error

LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
FORMS: Final = "earliest, latest, an offset, -N or @TIME"
_ASKED_AT_ONCE: Final = 2000
_OF_PARTITION: Final = re.compile(r"([0-9]{1,10}):(.*)", re.DOTALL)

Place = tuple[str, int]


def offsets_of(
    cluster: Cluster, places: Iterable[Place], timestamp: int, isolation: int = READ_UNCOMMITTED
) -> dict[Place, int]:
    """The offset of each partition at LATEST, EARLIEST or the first record from a time (ms) on; -1
    where no record is as late. LATEST under READ_COMMITTED is the last stable offset.

    Partitions that have no leader, or that their leader no longer has, are left out. The cluster's
    `topics` has been called for the topics. Raises KafkaError.
    """
    by_leader: dict[int, list[Place]] = defaultdict(list)
    for place in places:
        by_leader[cluster.leader(*place)].append(place)
    by_leader.pop(-1, None)
    found = {}
    for led in by_leader.values():
        for start in range(0, len(led), _ASKED_AT_ONCE):
            request = _request(led[start : start + _ASKED_AT_ONCE], timestamp, isolation)
            answer = cluster.call_leader(*led[0], request, ListOffsetsResponse)
            for topic in answer.topics:
                for partition in topic.partitions:
                    place = topic.name, partition.partition_index
                    if partition.error_code not in _GONE:
                        raise_for(partition.error_code, f"{place[0]} partition {place[1]}")
                        found[place] = partition.offset
    return found


_GONE: Final = (
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.LEADER_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.KAFKA_STORAGE_ERROR,
)


def _request(places: list[Place], timestamp: int, isolation: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in places:
        asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        topics.setdefault(name, ListOffsetsTopic(name=name)).partitions.append(asked)
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=list(topics.values()), timeout_ms=30_000
    )


def list_offsets(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    timestamp: int,
    isolation: int = READ_UNCOMMITTED,
) -> dict[int, int]:
    """`offsets_of` one topic, by partition. Raises KafkaError also for a partition without a
    leader."""
    places = [(topic, index) for index in partitions]
    found = offsets_of(cluster, places, timestamp, isolation)
    for place in places:
        if place not in found:
            raise_for(Error.LEADER_NOT_AVAILABLE, f"{topic} partition {place[1]}")
    return {index: offset for (_, index), offset in found.items()}


def start_offsets(
    cluster: Cluster,
    topic: str,
    partitions: list[int],
    where: str,
    option: str,
    isolation: int = READ_UNCOMMITTED,
) -> dict[int, int]:
    """The offset that `where`, the value of an option, means in each partition: one of FORMS. A
    time after the last record means the end; an offset is taken as it is, within the log or not.
    Raises ClientError for anything else."""
    if where == "earliest":
        return list_offsets(cluster, topic, partitions, EARLIEST)
    moment, number = _parsed(where, option)
    if number is not None and number >= 0:
        return dict.fromkeys(partitions, number)
    ends = list_offsets(cluster, topic, partitions, LATEST, isolation)
    if moment is not None:
        found = list_offsets(cluster, topic, partitions, moment)
        return {index: ends[index] if found[index] < 0 else found[index] for index in partitions}
    if number is None:
        return ends
    starts = list_offsets(cluster, topic, partitions, EARLIEST)
    return {index: max(starts[index], ends[index] + number) for index in partitions}


def by_partition(where: str, option: str) -> dict[int, str] | None:
    """PARTITION:WHERE,... by partition; None for a text that is not of this form. Raises
    ClientError for a text that is only partly so."""
    parts = where.split(",")
    found = [_OF_PARTITION.fullmatch(part) for part in parts]
    if not any(found):
        return None
    offsets = {}
    for match in found:
        if match is None:
            raise ClientError(f"{option} {where}: not PARTITION:WHERE, with commas between several")
        offsets[int(match[1])] = match[2]
    return offsets


def check_where(where: str, option: str) -> None:
    """Raises ClientError for what is not one of FORMS."""
    if where != "earliest":
        _parsed(where, option)


def _parsed(where: str, option: str) -> tuple[int | None, int | None]:
    """Milliseconds of a time and an offset; neither for latest. Raises ClientError."""
    if where == "latest":
        return None, None
    if where.startswith("@"):
        try:
            return moment_ms(where[1:]), None
        except ValueError:
            raise ClientError(
                f"{option} {where}: not a time such as @2024-05-01, @2024-05-01T12:00:00 (UTC) or"
                " @1714564800000 (ms)"
            ) from None
    if not re.fullmatch(r"-?[0-9]{1,40}", where):
        raise ClientError(f"{option} {where}: not {FORMS}")
    return None, max(-INT64, min(int(where), INT64))
