"""DeleteGroups v0-2: groups without members go, with their offsets. v2 flexible."""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(ctx: Context, request: DeleteGroupsRequest) -> Message | Context:
    return ctx.broker.coordinator.handle(ctx, request)


def on_error(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=error.error)
            for group_id in request.groups_names
        ]
    )


API = Api(
    request=DeleteGroupsRequest,
    response=DeleteGroupsResponse,
    handle=handle,
    on_error=on_error,
)
