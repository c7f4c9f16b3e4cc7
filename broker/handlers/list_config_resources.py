"""ListConfigResources v0-1 (KIP-1142): what may have settings. v0 knows client metrics only, of
which there are none; v1 topics, brokers, their loggers and groups."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.context import Api, Broker, Context
from ottla.broker.metadata import ResourceType
from ottla.wire.api.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.wire.errors import Error, KafkaError

_LISTABLE = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(ctx: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    wanted: Iterable[int] = request.resource_types or _LISTABLE
    if ctx.header.api_version == 0:
        wanted = (ResourceType.CLIENT_METRICS,)
    for kind in wanted:
        if kind not in _LISTABLE:
            raise KafkaError(Error.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(set(wanted))
            for name in _names(ctx.broker, kind)
        ]
    )


def _names(broker: Broker, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return [topic.name for topic in broker.topics]
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker.node_id)]
    return [name for of, name in broker.topics.configured() if of == kind]


def on_error(request: ListConfigResourcesRequest, error: KafkaError) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error.error)


API = Api(
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
    handle=handle,
    on_error=on_error,
)
