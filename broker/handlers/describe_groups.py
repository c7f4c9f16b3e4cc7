"""DescribeGroups v0-6: state, protocol, members and assignments of classic groups.

v3 authorized operations; v4 static members (KIP-345); v5 flexible; v6 GROUP_ID_NOT_FOUND and error
messages (KIP-1043).
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(ctx: Context, request: DescribeGroupsRequest) -> Message | Context:
    return ctx.broker.coordinator.handle(ctx, request)


def on_error(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=error.error) for group_id in request.groups
        ]
    )


API = Api(
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
    handle=handle,
    on_error=on_error,
)
