"""JoinGroup v0-9: become a member, or come back for the next generation.

v1 rebalance timeout; v4 the member id comes before membership (KIP-394); v5 static (KIP-345);
v6 flexible; v7 protocol type in the answer (KIP-559); v8 reason (KIP-800); v9 skip_assignment
(KIP-814).
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(ctx: Context, request: JoinGroupRequest) -> Message | Context:
    return ctx.broker.coordinator.handle(ctx, request)


def on_error(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.error, member_id=request.member_id)


API = Api(
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    handle=handle,
    on_error=on_error,
)
