"""From options to offsets: where a read begins and ends, asked of the brokers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark_ottla import offsets as spec
from pyspark_ottla.cluster import Cluster
from pyspark_ottla.errors import BadOption, DataLoss
from pyspark_ottla.offsets import LATEST, Offsets, Partition, Position
from pyspark_ottla.options import Options

log: Final = logging.getLogger("pyspark_ottla")

_ALLOW: Final = "set failOnDataLoss to false to go on without them"


class Losses:
    """What to do about records that are not there: failOnDataLoss."""

    def __init__(self, options: Options) -> None:
        self.fail = options.flag("failOnDataLoss", True)

    def report(self, what: str) -> None:
        """Raise DataLoss, or say it in the log."""
        if self.fail:
            raise DataLoss(f"{what}; {_ALLOW}")
        log.warning("%s; failOnDataLoss is false, going on", what)


def start_offsets(
    cluster: Cluster, options: Options, losses: Losses, partitions: Sequence[Partition]
) -> Offsets:
    """Where reading begins. Raises BadOption, DataLoss."""
    position = spec.starting(options)
    times = _times(position, partitions)
    if times is None:
        return _resolved(cluster, losses, position, partitions)
    found = cluster.at_times(times)
    without = [partition for partition in partitions if found[partition] is None]
    if without and not spec.no_match_is_latest(options):
        raise BadOption(
            position.option,
            f"{', '.join(map(str, without))} has no record from that time on: give an earlier one,"
            " or set startingOffsetsByTimestampStrategy to latest",
        )
    return _or_latest(cluster, found)


def end_offsets(
    cluster: Cluster, options: Options, losses: Losses, partitions: Sequence[Partition]
) -> Offsets:
    """Where a batch ends, exclusive. Raises BadOption, DataLoss."""
    position = spec.ending(options)
    times = _times(position, partitions)
    if times is None:
        return _resolved(cluster, losses, position, partitions)
    return _or_latest(cluster, cluster.at_times(times))


def _times(position: Position, partitions: Sequence[Partition]) -> Mapping[Partition, int] | None:
    if position.everywhere_time is not None:
        return dict.fromkeys(partitions, position.everywhere_time)
    if position.times is not None:
        spec.check_complete(position._replace(offsets=position.times), partitions)
    return position.times


def _or_latest(cluster: Cluster, found: Mapping[Partition, int | None]) -> Offsets:
    return cluster.offsets({p: LATEST if value is None else value for p, value in found.items()})


def _resolved(
    cluster: Cluster, losses: Losses, position: Position, partitions: Sequence[Partition]
) -> Offsets:
    """Offsets as given, looked up where they are words; given ones must be within the log."""
    if position.everywhere is not None:
        return cluster.offsets(dict.fromkeys(partitions, position.everywhere))
    assert position.offsets is not None
    spec.check_complete(position, partitions)
    given = {p: value for p, value in position.offsets.items() if value >= 0}
    found = cluster.offsets(position.offsets)
    if not given:
        return found
    first, last = cluster.earliest(given), cluster.latest(given)
    for partition, value in given.items():
        if not first[partition] <= value <= last[partition]:
            losses.report(
                f"{position.option}: {partition} has offsets {first[partition]} to"
                f" {last[partition]}, not {value}"
            )
            found[partition] = min(max(value, first[partition]), last[partition])
    return found
