"""ShareGroupHeartbeat v1: refused, for share groups (KIP-932) are not served yet. librdkafka asks a
broker that does not announce the API for ever, without a word to its user: so it is announced and
answered UNSUPPORTED_VERSION, upon which every client stops with an error. Kafka answers so while
share.version is 0."""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.wire.errors import Error, KafkaError


def handle(ctx: Context, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    raise KafkaError(Error.UNSUPPORTED_VERSION, "share groups are not served yet: use a consumer")


def on_error(request: ShareGroupHeartbeatRequest, error: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.error, error_message=error.message)


API = Api(
    request=ShareGroupHeartbeatRequest,
    response=ShareGroupHeartbeatResponse,
    handle=handle,
    on_error=on_error,
)
