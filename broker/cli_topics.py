"""`ottla topics`: list, create, describe, alter, delete, delete records; on any Kafka cluster."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable

from ottla.broker.cli_client import Cluster
from ottla.broker.cli_configs import (
    TOPIC,
    alter,
    described,
    own,
    parsed_changes,
    setting_rows,
)
from ottla.broker.cli_errors import ClientError, problem, raise_for
from ottla.broker.cli_offsets import (
    EARLIEST,
    LATEST,
    Place,
    check_where,
    list_offsets,
    offsets_of,
    start_offsets,
)
from ottla.broker.cli_output import (
    count,
    fail,
    print_json,
    print_rows,
    print_table,
    say,
    settings_text,
)
from ottla.broker.config_files import parse_overrides
from ottla.broker.ids import id_text
from ottla.wire.api.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.api.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.api.describe_configs import DescribeConfigsResourceResult as Setting
from ottla.wire.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.api.metadata import MetadataResponseTopic
from ottla.wire.errors import Error

_TIMEOUT_MS = 30_000


def topics(args: argparse.Namespace) -> int:
    """Run one action of the command."""
    actions: dict[str, Callable[[Cluster, argparse.Namespace], int]] = {
        "list": _list,
        "create": _create,
        "describe": _describe,
        "alter": _alter,
        "delete": _delete,
        "delete-records": _delete_records,
    }
    with Cluster(args.bootstrap_server) as cluster:
        return actions[args.action](cluster, args)


# ------------------------------------------------------------------------------------------ looking


def _list(cluster: Cluster, args: argparse.Namespace) -> int:
    found = sorted(cluster.topics(), key=lambda topic: topic.name or "")
    places = [
        (topic.name or "", partition.partition_index)
        for topic in found
        for partition in topic.partitions
    ]
    sizes = _bytes(cluster)
    starts, ends = (offsets_of(cluster, places, where) for where in (EARLIEST, LATEST))
    spans = {place: ends[place] - starts[place] for place in starts.keys() & ends.keys()}
    rows = []
    for topic in found:
        own_places = [(topic.name or "", each.partition_index) for each in topic.partitions]
        rows.append(
            (
                topic.name,
                len(own_places),
                _sum(spans, own_places),
                _sum(sizes, own_places),
            )
        )
    if not args.json:
        print_table(("topic", "partitions", "records", "bytes"), rows)
        return 0
    for topic, row in zip(found, rows, strict=True):
        names = ("topic", "partitions", "records", "bytes")
        print_json(dict(zip(names, row, strict=True)) | {"topic_id": id_text(topic.topic_id)})
    return 0


def _sum(numbers: dict[Place, int], places: list[Place]) -> int | None:
    """None where that of a partition is not known."""
    if not all(place in numbers for place in places):
        return None
    return sum(numbers[place] for place in places)


def _bytes(cluster: Cluster) -> dict[Place, int]:
    """Bytes of the largest replica of each partition; those of which no broker tells are left
    out."""
    sizes: dict[Place, int] = defaultdict(int)
    try:
        request = DescribeLogDirsRequest(topics=None)
        answers = cluster.call_all(request, DescribeLogDirsResponse)
    except ClientError:  # a broker that is down, or that is too old
        return {}
    for answer in answers:
        for folder in answer.results:
            for topic in folder.topics:
                for partition in topic.partitions:
                    place = topic.name, partition.partition_index
                    if not partition.is_future_key:
                        sizes[place] = max(sizes[place], partition.partition_size)
    return sizes


def _describe(cluster: Cluster, args: argparse.Namespace) -> int:
    found = cluster.topics(args.names or None)
    for topic in found:
        raise_for(topic.error_code, topic.name or "")
    names = [topic.name or "" for topic in found]
    settings = described(cluster, TOPIC, names)
    for topic in sorted(found, key=lambda topic: topic.name or ""):
        _print_topic(cluster, args, topic, settings[topic.name or ""])
    return 0


def _print_topic(
    cluster: Cluster,
    args: argparse.Namespace,
    topic: MetadataResponseTopic,
    settings: list[Setting],
) -> None:
    name = topic.name or ""
    places = [(name, index) for index in sorted(part.partition_index for part in topic.partitions)]
    starts, ends = (offsets_of(cluster, places, where) for where in (EARLIEST, LATEST))
    rows = []
    for place in places:
        start, end = starts.get(place), ends.get(place)
        span = None if start is None or end is None else end - start
        rows.append((place[1], cluster.leader(*place), start, end, span))
    headings = ("partition", "leader", "start", "end", "offsets")
    configs = {one.name: one.value or "" for one in own(settings, TOPIC)}
    if args.json:
        every = {one[0]: {"value": one[1], "source": one[2]} for one in setting_rows(settings)}
        print_json(
            {
                "topic": name,
                "topic_id": id_text(topic.topic_id),
                "configs": configs,
                **({"all_configs": every} if args.all_configs else {}),
                "partitions": [dict(zip(headings, row, strict=True)) for row in rows],
            }
        )
        return
    partitions = count(len(places), "partition")
    print(f"{name}  id {id_text(topic.topic_id)}  {partitions}  {settings_text(configs)}".rstrip())
    print_table(headings, rows)
    if args.all_configs:
        print_table(("name", "value", "source"), setting_rows(settings))


# ----------------------------------------------------------------------------------------- changing


def _create(cluster: Cluster, args: argparse.Namespace) -> int:
    configs = [
        CreatableTopicConfig(name=name, value=value)
        for name, value in parse_overrides(args.config, "--config").items()
    ]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=args.partitions,
                replication_factor=args.replication_factor,
                configs=configs,
            )
            for name in dict.fromkeys(args.names)
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    status = 0
    for result in cluster.call_controller(request, CreateTopicsResponse).topics:
        there = result.error_code == Error.TOPIC_ALREADY_EXISTS
        if there and args.if_not_exists:
            _done(args, "exists", result.name)
        elif result.error_code:
            status = _failed(result.name, result.error_code, result.error_message)
        else:
            _done(args, "created", result.name)
    return status


def _alter(cluster: Cluster, args: argparse.Namespace) -> int:
    changes = parsed_changes(args)
    if not changes and args.partitions is None:
        raise ClientError("nothing to alter: give --partitions, --config or --delete-config")
    cluster.topic(args.name)
    if args.partitions is not None:
        wanted = CreatePartitionsTopic(name=args.name, count=args.partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)
        for result in cluster.call_controller(request, CreatePartitionsResponse).results:
            raise_for(result.error_code, args.name, result.error_message)
    if changes:
        alter(cluster, TOPIC, args.name, changes)
    _done(args, "altered", args.name)
    return 0


def _delete(cluster: Cluster, args: argparse.Namespace) -> int:
    names = list(dict.fromkeys(args.names))
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in names],
        topic_names=names,
        timeout_ms=_TIMEOUT_MS,
    )
    status = 0
    for result in cluster.call_controller(request, DeleteTopicsResponse).responses:
        if result.error_code:
            status = _failed(result.name or "", result.error_code, None)
        else:
            _done(args, "deleted", result.name or "")
    return status


def _delete_records(cluster: Cluster, args: argparse.Namespace) -> int:
    check_where(args.before, "--before")
    topic = cluster.topic(args.name)
    there = sorted(partition.partition_index for partition in topic.partitions)
    for index in args.partition or ():
        if index not in there:
            raise ClientError(f"{args.name} has no partition {index}, but 0 to {len(there) - 1}")
    wanted = sorted(set(args.partition)) if args.partition else there
    starts, ends = (list_offsets(cluster, args.name, wanted, at) for at in (EARLIEST, LATEST))
    offsets = start_offsets(cluster, args.name, wanted, args.before, "--before")
    rows = []
    for index in wanted:
        offset = max(starts[index], min(offsets[index], ends[index]))
        rows.append((index, starts[index], _delete_before(cluster, args.name, index, offset)))
    deleted = sum(after - before for _, before, after in rows)
    if not args.json:
        say(f"deleted {count(deleted, 'offset')} of {args.name}")
    print_rows(args.json, ("partition", "start_before", "start"), rows)
    return 0


def _delete_before(cluster: Cluster, name: str, index: int, offset: int) -> int:
    """Where the partition begins now."""
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name,
                partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)],
            )
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    answer = cluster.call_leader(name, index, request, DeleteRecordsResponse)
    (found,) = answer.topics[0].partitions
    raise_for(found.error_code, f"{name} partition {index}")
    return found.low_watermark


def _done(args: argparse.Namespace, verb: str, name: str) -> None:
    if args.json:
        print_json({"topic": name, "result": verb})
    else:
        say(f"{verb} {name}")


def _failed(name: str, code: int, message: str | None) -> int:
    return fail(problem(code, name, message).message)
