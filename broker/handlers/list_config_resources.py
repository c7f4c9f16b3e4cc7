"""ListConfigResources v0-1 (KIP-1142): what may have settings. v0 knows client metrics only, of
which there are none; v1 topics, brokers, their loggers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Broker, Context, Parked
from ottla.broker.metadata import ResourceType
from ottla.broker.slices import answer_in_slices
from ottla.wire.api.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

_LISTABLE = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(ctx: Context, request: ListConfigResourcesRequest) -> Message | Parked:
    wanted = set(request.resource_types or _LISTABLE)
    if ctx.header.api_version == 0:
        wanted = {ResourceType.CLIENT_METRICS}
    if not wanted.issubset(_LISTABLE):
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    found = Rows(ListConfigResourcesResponse, "config_resources", ctx.header.api_version)

    def look() -> Iterator[None]:
        for kind in sorted(wanted):
            for name in _names(ctx.broker, kind):
                found.add(ConfigResource(resource_name=name, resource_type=kind))
                yield

    def finish() -> Encoded:
        return Encoded(found.within(ListConfigResourcesResponse()))

    return answer_in_slices(ctx, look(), finish)


def _names(broker: Broker, kind: int) -> Iterable[str]:
    if kind == ResourceType.TOPIC:
        return (topic.name for topic in broker.topics)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return (str(broker.node_id),)
    return broker.topics.configured(ResourceType(kind))


def on_error(request: ListConfigResourcesRequest, error: KafkaError) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error.error)


API = Api(
    request=ListConfigResourcesRequest,
    response=ListConfigResourcesResponse,
    handle=handle,
    on_error=on_error,
)
