"""Settings of topics and brokers, and `ottla configs` for brokers; on any Kafka cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from ottla.broker.cli_client import Cluster
from ottla.broker.cli_errors import ClientError, raise_for
from ottla.broker.cli_output import print_json, print_rows, say
from ottla.broker.config_files import parse_overrides
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.api.describe_configs import DescribeConfigsResourceResult as Setting
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC: Final = 2
BROKER: Final = 4
_SET, _DELETE = 0, 1
_ASKED_AT_ONCE: Final = 200
_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "started with",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
_DYNAMIC: Final = {TOPIC: (1,), BROKER: (2, 3)}
"""Sources of what was altered while the broker ran, by the type of the resource."""


def configs(args: argparse.Namespace) -> int:
    """Run one action of the command."""
    name = "" if args.broker is None else str(args.broker)
    with Cluster(args.bootstrap_server) as cluster:
        if args.action == "describe":
            return _describe(cluster, args, name)
        changes = parsed_changes(args)
        if not changes:
            raise ClientError("nothing to alter: give --config or --delete-config")
        alter(cluster, BROKER, name, changes)
    owner = f"broker {name}" if name else "all brokers"
    if args.json:
        print_json({"broker": args.broker, "result": "altered"})
    else:
        say(f"altered {owner}")
    return 0


def _describe(cluster: Cluster, args: argparse.Namespace, name: str) -> int:
    if args.all and not name:
        name = str(cluster.any_node())
    settings = described(cluster, BROKER, [name])[name]
    rows = setting_rows(settings if args.all else own(settings, BROKER))
    print_rows(args.json, ("name", "value", "source"), rows)
    return 0


def setting_rows(settings: Sequence[Setting]) -> list[tuple[str, str | None, str]]:
    """Name, value and source of each; no value of what is sensitive."""
    return [
        (one.name, one.value, _SOURCES.get(one.config_source, "unknown"))
        for one in sorted(settings, key=lambda one: one.name)
    ]


def own(settings: Sequence[Setting], kind: int) -> list[Setting]:
    """Those that were altered for a resource of this type."""
    return [one for one in settings if one.config_source in _DYNAMIC[kind]]


def described(cluster: Cluster, kind: int, names: Sequence[str]) -> dict[str, list[Setting]]:
    """All settings of each resource. Raises KafkaError."""
    found = {}
    for start in range(0, len(names), _ASKED_AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for name in names[start : start + _ASKED_AT_ONCE]
        ]
        request = DescribeConfigsRequest(resources=resources)
        if kind == BROKER and names != [""]:  # a broker knows itself alone
            answer = cluster.call_node(int(names[start]), request, DescribeConfigsResponse)
        else:
            answer = cluster.call(request, DescribeConfigsResponse)
        for result in answer.results:
            raise_for(result.error_code, result.resource_name, result.error_message)
            found[result.resource_name] = result.configs
    return found


def parsed_changes(args: argparse.Namespace) -> list[AlterableConfig]:
    """What --config and --delete-config ask for. Raises ConfigError."""
    changes = [
        AlterableConfig(name=name, config_operation=_SET, value=value)
        for name, value in parse_overrides(args.config, "--config").items()
    ]
    return changes + [
        AlterableConfig(name=name, config_operation=_DELETE, value=None)
        for name in args.delete_config
    ]


def alter(cluster: Cluster, kind: int, name: str, changes: list[AlterableConfig]) -> None:
    """Apply the changes. Raises ClientError for settings that the cluster does not have (Kafka
    itself takes the deletion of any), KafkaError."""
    _check_deletions(cluster, kind, name, changes)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    if kind == BROKER and name:
        answer = cluster.call_node(int(name), request, IncrementalAlterConfigsResponse)
    else:
        answer = cluster.call(request, IncrementalAlterConfigsResponse)
    for result in answer.responses:
        raise_for(result.error_code, result.resource_name, result.error_message)


def _check_deletions(
    cluster: Cluster, kind: int, name: str, changes: list[AlterableConfig]
) -> None:
    deleted = [change.name for change in changes if change.config_operation == _DELETE]
    if not deleted:
        return
    known_by = name or (str(cluster.any_node()) if kind == BROKER else name)
    known = {one.name for one in described(cluster, kind, [known_by])[known_by]}
    for setting in deleted:
        if setting not in known:
            near = get_close_matches(setting, known, 1, 0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ClientError(f"--delete-config {setting}: there is no such setting{hint}")
