"""IncrementalAlterConfigs v0-1 (KIP-339): set, delete, append to, subtract from single settings of
topics, the broker (by number, or "" for all) and its loggers. v1 flexible."""

from __future__ import annotations

from ottla.broker.altering import alter
from ottla.broker.config_alter import Op, Step, altered, check_steps, checked
from ottla.broker.config_running import check_min_insync
from ottla.broker.context import Api, Broker, Context, Parked
from ottla.broker.handlers.describe_configs import check_node
from ottla.broker.loggers import LEVELS, ROOT, loggers, set_level, unset_level
from ottla.broker.metadata import ResourceType
from ottla.wire.api.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.schema import Message


def handle(ctx: Context, request: IncrementalAlterConfigsRequest) -> Message | Parked:
    return alter(
        ctx,
        request.resources,
        lambda resource: _altered(ctx.broker, resource, request.validate_only),
        validate_only=request.validate_only,
        row=AlterConfigsResourceResponse,
        response=IncrementalAlterConfigsResponse,
    )


def _altered(
    broker: Broker, resource: AlterConfigsResource, validate_only: bool
) -> dict[str, str] | None:
    """What the resource is to have from now on; None where nothing is kept. Raises KafkaError."""
    name = resource.resource_name
    steps = [Step(c.name, c.config_operation, c.value) for c in resource.configs]
    check_steps(steps)
    kind = _kind(resource.resource_type)
    if kind is ResourceType.BROKER_LOGGER:
        _alter_loggers(broker, name, steps, validate_only)
        return None
    if kind is ResourceType.BROKER and name:
        check_node(broker, name)
    own = altered(broker.topics, broker.config, kind, name, steps)
    own = checked(broker.topics, broker.config, kind, name, own)
    if kind is ResourceType.BROKER:
        check_min_insync(name, [step.name for step in steps], own)
    return own


def _kind(number: int) -> ResourceType:
    try:
        kind = ResourceType(number)
    except ValueError:
        kind = ResourceType.UNKNOWN
    if kind is ResourceType.UNKNOWN:
        raise KafkaError(Error.INVALID_REQUEST, f"resource type {number} has no settings")
    return kind


def _alter_loggers(broker: Broker, name: str, steps: list[Step], validate_only: bool) -> None:
    check_node(broker, name)
    known = loggers()
    for step in steps:
        if step.name not in known:
            raise KafkaError(Error.INVALID_CONFIG, f"there is no logger {step.name}")
        if step.op not in (Op.SET, Op.DELETE):
            raise KafkaError(Error.INVALID_REQUEST, f"{step.name}: a log level is no list")
        if step.op == Op.SET and step.value not in LEVELS:
            raise KafkaError(
                Error.INVALID_CONFIG,
                f"{step.name}={step.value}: must be one of {', '.join(LEVELS)}",
            )
        if step.op == Op.DELETE and step.name == ROOT:
            raise KafkaError(Error.INVALID_REQUEST, "the root logger always has a level")
    if validate_only:
        return
    for step in steps:
        if step.op == Op.SET and step.value is not None:
            set_level(step.name, step.value)
        else:
            unset_level(step.name)


def on_error(
    request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
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
    request=IncrementalAlterConfigsRequest,
    response=IncrementalAlterConfigsResponse,
    handle=handle,
    on_error=on_error,
)
