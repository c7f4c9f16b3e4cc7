"""ListGroups v0-5: the groups that this node coordinates.

v3 flexible; v4 by state (KIP-518); v5 by type (KIP-848).
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(ctx: Context, request: ListGroupsRequest) -> Message | Context:
    return ctx.broker.coordinator.handle(ctx, request)


def on_error(request: ListGroupsRequest, error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.error)


API = Api(
    request=ListGroupsRequest,
    response=ListGroupsResponse,
    handle=handle,
    on_error=on_error,
)
