"""DescribeConfigs v1-4: settings of topics, the broker, its loggers, groups and client metrics.

v1 synonyms and sources; v3 types and documentation; v4 flexible. No keys, or null, mean all.
"""

from __future__ import annotations

from ottla.broker.config import Source
from ottla.broker.config_describe import (
    Entry,
    broker_entries,
    client_metrics_entries,
    cluster_entries,
    group_entries,
    topic_entries,
)
from ottla.broker.context import Api, Broker, Context
from ottla.broker.loggers import loggers
from ottla.broker.metadata import ResourceType, check_name
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.wire.errors import Error, KafkaError


def handle(ctx: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_described(ctx.broker, request, resource) for resource in request.resources]
    )


def _described(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        configs = _configs(broker, request, resource)
    except KafkaError as error:
        result.error_code, result.error_message = error.error, error.message or ""
    else:
        asked = resource.configuration_keys
        result.configs = [entry for entry in configs if not asked or entry.name in asked]
    return result


def _configs(
    broker: Broker, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.BROKER_LOGGER:
        check_node(broker, name)
        return [_logger(logger, level) for logger, level in loggers().items()]
    return [_result(request, entry) for entry in _entries(broker, kind, name)]


def _entries(broker: Broker, kind: int, name: str) -> list[Entry]:
    if kind == ResourceType.TOPIC:
        check_name(name)
        topic = broker.topics.get(name)
        if topic is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_entries(broker.config, topic.configs)
    if kind == ResourceType.BROKER:
        if not name:
            return cluster_entries(broker.config)
        check_node(broker, name)
        return broker_entries(broker.config)
    if kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        if not name:
            raise KafkaError(Error.INVALID_REQUEST, "the resource needs a name")
        grouped = kind == ResourceType.GROUP
        return group_entries(broker.config) if grouped else client_metrics_entries()
    raise KafkaError(Error.INVALID_REQUEST, f"resource type {kind} has no settings")


def check_node(broker: Broker, name: str) -> None:
    """Settings of a broker are asked of that broker. Raises KafkaError INVALID_REQUEST."""
    try:
        node = int(name)
    except ValueError:
        raise KafkaError(
            Error.INVALID_REQUEST, f"a broker's name is its number, not '{name}'"
        ) from None
    if node != broker.node_id:
        raise KafkaError(Error.INVALID_REQUEST, f"this is broker {broker.node_id}, not {name}")


def _result(request: DescribeConfigsRequest, entry: Entry) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else []
    secret = entry.key.sensitive
    return DescribeConfigsResourceResult(
        name=entry.key.name,
        value=None if secret else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=secret,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=None if secret else value, source=source)
            for name, value, source in synonyms
        ],
        config_type=entry.config_type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _logger(name: str, level: str) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name, value=level, config_source=Source.LOGGER, documentation=None
    )


def on_error(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error.error,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


API = Api(
    request=DescribeConfigsRequest,
    response=DescribeConfigsResponse,
    handle=handle,
    on_error=on_error,
)
