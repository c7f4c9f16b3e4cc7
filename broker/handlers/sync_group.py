"""SyncGroup v0-5: the leader's assignment in, each member's part of it out.

v3 static members (KIP-345); v4 flexible; v5 protocol type and name are checked (KIP-559).
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(ctx: Context, request: SyncGroupRequest) -> Message | Context:
    return ctx.broker.coordinator.handle(ctx, request)


def on_error(request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.error)


API = Api(
    request=SyncGroupRequest,
    response=SyncGroupResponse,
    handle=handle,
    on_error=on_error,
)
