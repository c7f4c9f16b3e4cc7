"""Heartbeat v0-4: a member is there, and hears whether to rejoin.

v3 static members (KIP-345); v4 flexible.
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.errors import Error, KafkaError


def handle(ctx: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    return ctx.broker.coordinator.heartbeat(request)


def on_error(request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    if error.error is Error.COORDINATOR_LOAD_IN_PROGRESS:
        # As Kafka: sessions start anew once the groups are loaded, so nothing is wrong yet.
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error.error)


API = Api(
    request=HeartbeatRequest,
    response=HeartbeatResponse,
    handle=handle,
    on_error=on_error,
)
