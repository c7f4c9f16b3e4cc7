"""LeaveGroup v0-5: members go, and the others need not wait for their sessions to end.

v3 several members, answered one by one, by instance id too (KIP-345); v4 flexible; v5 reason
(KIP-800).
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(ctx: Context, request: LeaveGroupRequest) -> Message | Context:
    return ctx.broker.coordinator.handle(ctx, request)


def on_error(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.error)


API = Api(
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    handle=handle,
    on_error=on_error,
)
