"""AlterConfigs v0-2: all settings of a topic or the broker at once; what is not named goes back to
its default. Superseded by IncrementalAlterConfigs, still sent by older tools. v2 flexible."""

from __future__ import annotations

from ottla.broker.altering import alter
from ottla.broker.config import MIN_INSYNC
from ottla.broker.config_alter import Op, Step, check_steps, checked
from ottla.broker.config_running import check_min_insync
from ottla.broker.context import Api, Broker, Context, Parked
from ottla.broker.handlers.describe_configs import check_node
from ottla.broker.metadata import ResourceType
from ottla.wire.api.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.schema import Message

_ALTERABLE = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.GROUP,
    ResourceType.CLIENT_METRICS,
)


def handle(ctx: Context, request: AlterConfigsRequest) -> Message | Parked:
    return alter(
        ctx,
        request.resources,
        lambda resource: _replaced(ctx.broker, resource),
        validate_only=request.validate_only,
        row=AlterConfigsResourceResponse,
        response=AlterConfigsResponse,
    )


def _replaced(broker: Broker, resource: AlterConfigsResource) -> dict[str, str]:
    """What the resource is to have from now on. Raises KafkaError."""
    kind, name = resource.resource_type, resource.resource_name
    check_steps([Step(config.name, Op.SET, config.value) for config in resource.configs])
    if kind not in _ALTERABLE:
        raise KafkaError(Error.INVALID_REQUEST, f"settings of type {kind} cannot be altered here")
    if kind == ResourceType.BROKER and name:
        check_node(broker, name)
    own = {config.name: config.value or "" for config in resource.configs}
    own = checked(broker.topics, broker.config, ResourceType(kind), name, own)
    if kind == ResourceType.BROKER:
        check_min_insync(name, own if name else (MIN_INSYNC,), own)
    return own


def on_error(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=error.error,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


API = Api(
    request=AlterConfigsRequest,
    response=AlterConfigsResponse,
    handle=handle,
    on_error=on_error,
)
