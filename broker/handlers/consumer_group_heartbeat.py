"""ConsumerGroupHeartbeat v0-1: refused, for groups of the consumer protocol (KIP-848) are not there
yet. librdkafka asks a broker that does not announce the API for ever, without a word to its user:
so it is announced and answered UNSUPPORTED_VERSION, upon which every client stops with an error.
Kafka answers so while group.version is 0."""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.wire.errors import Error, KafkaError


def handle(ctx: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    raise KafkaError(
        Error.UNSUPPORTED_VERSION,
        "groups of the consumer protocol are not served yet: set group.protocol=classic",
    )


def on_error(
    request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.error, error_message=error.message)


API = Api(
    request=ConsumerGroupHeartbeatRequest,
    response=ConsumerGroupHeartbeatResponse,
    handle=handle,
    on_error=on_error,
)
