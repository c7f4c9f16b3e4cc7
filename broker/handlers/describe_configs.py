"""DescribeConfigs v1-4: settings of topics, the broker, its loggers, groups and client metrics.

v1 synonyms and sources; v3 types and documentation; v4 flexible. No keys, or null, mean all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from ottla.broker.answers import Encoded
from ottla.broker.config import Source
from ottla.broker.config_describe import (
    Entry,
    broker_entries,
    client_metrics_entries,
    cluster_entries,
    group_entries,
    setting_names,
    topic_entries,
)
from ottla.broker.context import Api, Broker, Context, Parked
from ottla.broker.loggers import loggers
from ottla.broker.metadata import ResourceType
from ottla.broker.slices import answer_in_slices
from ottla.broker.topic_names import check_name
from ottla.wire.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message


def handle(ctx: Context, request: DescribeConfigsRequest) -> Message | Parked:
    results = Rows(DescribeConfigsResponse, "results", ctx.header.api_version)

    def finish() -> Encoded:
        return Encoded(results.within(DescribeConfigsResponse()))

    return answer_in_slices(ctx, _describe(ctx.broker, request, results), finish)


def _describe(broker: Broker, request: DescribeConfigsRequest, into: Rows) -> Iterator[None]:
    """Steps. Apache Kafka answers what is named again, again; here it is answered once: a small
    request must not ask for the same a thousand times. Clients keep the answers by resource."""
    seen = set()
    known = setting_names() | loggers().keys()
    #: Topics without settings of their own, and others alike, are described by the same bytes.
    written: dict[object, Rows] = {}
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        asked = set()
        for key in resource.configuration_keys or ():
            if key in known:
                asked.add(key)
            yield
        names = frozenset(asked) if resource.configuration_keys else None
        yield
        if (kind, name, names) in seen:
            continue
        seen.add((kind, name, names))
        result = DescribeConfigsResult(resource_type=kind, resource_name=name)
        try:
            what, entries = _found(broker, kind, name, names)
        except KafkaError as error:
            result.error_code, result.error_message = error.error, error.message or ""
            into.add(result)
            continue
        alike = (kind, what, names, broker.topics.version)
        configs = written.get(alike)
        if configs is None:
            configs = into.inner("configs")
            for entry in entries:
                described = _described(request, entry)
                configs.add(described, 1 + len(described.synonyms))
                yield
            written[alike] = configs
        into.add_with(result, configs)


_Entries = Iterable[Entry | tuple[str, str]]
"""Settings; a logger is its name and level."""


def _found(broker: Broker, kind: int, name: str, names: Set[str] | None) -> tuple[object, _Entries]:
    """What makes this resource's settings those that they are, and the settings: those of `names`,
    None for all. Raises KafkaError."""
    if kind == ResourceType.TOPIC:
        check_name(name)
        topic = broker.topics.get(name)
        if topic is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        own = tuple(sorted(topic.configs.items()))
        return own, topic_entries(broker.config, topic.configs, names)
    if kind == ResourceType.BROKER:
        if not name:
            return name, cluster_entries(broker.config, names)
        check_node(broker, name)
        return name, broker_entries(broker.config, names)
    if kind == ResourceType.BROKER_LOGGER:
        check_node(broker, name)
        return name, [one for one in loggers().items() if names is None or one[0] in names]
    if kind in (ResourceType.GROUP, ResourceType.CLIENT_METRICS):
        if not name:
            raise KafkaError(Error.INVALID_REQUEST, "the resource needs a name")
        if kind == ResourceType.GROUP:
            return None, group_entries(broker.config, names)
        return None, client_metrics_entries(names)
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


def _described(
    request: DescribeConfigsRequest, entry: Entry | tuple[str, str]
) -> DescribeConfigsResourceResult:
    if not isinstance(entry, Entry):
        logger, level = entry
        return DescribeConfigsResourceResult(
            name=logger, value=level, config_source=Source.LOGGER, documentation=None
        )
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
