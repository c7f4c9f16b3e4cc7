"""`ottla topics`: list, create, describe, alter, delete; on any Kafka cluster."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable

from ottla.broker.cli_client import Cluster, raise_for
from ottla.broker.cli_offsets import EARLIEST, LATEST, list_offsets
from ottla.broker.cli_output import fail, print_json, print_rows, say, settings_text
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
from ottla.wire.api.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.api.metadata import MetadataResponseTopic
from ottla.wire.errors import Error, KafkaError

_TOPIC = 2
_DYNAMIC_TOPIC_CONFIG = 1
_SET, _DELETE = 0, 1
_TIMEOUT_MS = 30_000


def topics(args: argparse.Namespace) -> int:
    """Run one action of the command."""
    actions: dict[str, Callable[[Cluster, argparse.Namespace], int]] = {
        "list": _list,
        "create": _create,
        "describe": _describe,
        "alter": _alter,
        "delete": _delete,
    }
    with Cluster(args.bootstrap_server) as cluster:
        return actions[args.action](cluster, args)


def _list(cluster: Cluster, args: argparse.Namespace) -> int:
    found = sorted(cluster.topics(), key=lambda topic: topic.name or "")
    rows = [(topic.name, len(topic.partitions), id_text(topic.topic_id)) for topic in found]
    print_rows(args.json, ("topic", "partitions", "topic_id"), rows)
    return 0


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
            for name in args.names
        ],
        timeout_ms=_TIMEOUT_MS,
    )
    status = 0
    for result in cluster.call(request, CreateTopicsResponse).topics:
        there = result.error_code == Error.TOPIC_ALREADY_EXISTS
        if there and args.if_not_exists:
            _done(args, "exists", result.name)
        elif result.error_code:
            status = _failed(result.name, result.error_code, result.error_message)
        else:
            _done(args, "created", result.name)
    return status


def _describe(cluster: Cluster, args: argparse.Namespace) -> int:
    found = cluster.topics(args.names or None)
    for topic in found:
        raise_for(topic.error_code, f"{topic.name}: {Error(topic.error_code).name}")
    configs = _own_configs(cluster, found)
    for topic in sorted(found, key=lambda topic: topic.name or ""):
        _print_topic(cluster, args, topic, configs[topic.name or ""])
    return 0


def _print_topic(
    cluster: Cluster,
    args: argparse.Namespace,
    topic: MetadataResponseTopic,
    configs: dict[str, str],
) -> None:
    name = topic.name or ""
    indexes = sorted(partition.partition_index for partition in topic.partitions)
    starts = list_offsets(cluster, name, indexes, EARLIEST)
    ends = list_offsets(cluster, name, indexes, LATEST)
    rows = [
        (
            index,
            cluster.leader(name, index),
            starts[index],
            ends[index],
            ends[index] - starts[index],
        )
        for index in indexes
    ]
    headings = ("partition", "leader", "start", "end", "offsets")
    if args.json:
        partitions = [dict(zip(headings, row, strict=True)) for row in rows]
        print_json(
            {
                "topic": name,
                "topic_id": id_text(topic.topic_id),
                "configs": configs,
                "partitions": partitions,
            }
        )
        return
    settings = f"  {settings_text(configs)}" if configs else ""
    print(f"{name}  id {id_text(topic.topic_id)}  {len(indexes)} partitions{settings}")
    print_rows(False, headings, rows)


def _own_configs(
    cluster: Cluster, found: Iterable[MetadataResponseTopic]
) -> dict[str, dict[str, str]]:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=_TOPIC, resource_name=topic.name or "", configuration_keys=None
            )
            for topic in found
        ]
    )
    own = {}
    for result in cluster.call(request, DescribeConfigsResponse).results:
        raise_for(result.error_code, result.error_message)
        own[result.resource_name] = {
            config.name: config.value or ""
            for config in result.configs
            if config.config_source == _DYNAMIC_TOPIC_CONFIG
        }
    return own


def _alter(cluster: Cluster, args: argparse.Namespace) -> int:
    changes = [
        AlterableConfig(name=name, config_operation=_SET, value=value)
        for name, value in parse_overrides(args.config, "--config").items()
    ]
    changes += [
        AlterableConfig(name=name, config_operation=_DELETE, value=None)
        for name in args.delete_config
    ]
    if not changes and args.partitions is None:
        return fail("nothing to alter: give --partitions, --config or --delete-config")
    if args.partitions is not None:
        _grow(cluster, args.name, args.partitions)
    if changes:
        resource = AlterConfigsResource(
            resource_type=_TOPIC, resource_name=args.name, configs=changes
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        for answer in cluster.call(request, IncrementalAlterConfigsResponse).responses:
            raise_for(answer.error_code, answer.error_message)
    _done(args, "altered", args.name)
    return 0


def _grow(cluster: Cluster, name: str, partitions: int) -> None:
    wanted = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)
    for result in cluster.call(request, CreatePartitionsResponse).results:
        raise_for(result.error_code, result.error_message)


def _delete(cluster: Cluster, args: argparse.Namespace) -> int:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name) for name in args.names],
        topic_names=args.names,
        timeout_ms=_TIMEOUT_MS,
    )
    status = 0
    for result in cluster.call(request, DeleteTopicsResponse).responses:
        if result.error_code:
            status = _failed(result.name or "", result.error_code, result.error_message)
        else:
            _done(args, "deleted", result.name or "")
    return status


def _done(args: argparse.Namespace, what: str, name: str) -> None:
    if args.json:
        print_json({"topic": name, "result": what})
    else:
        say(f"{what} {name}")


def _failed(name: str, code: int, message: str | None) -> int:
    return fail(KafkaError(Error(code), f"{name}: {message}" if message else name))
