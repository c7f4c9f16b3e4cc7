"""OffsetDelete v0: forget a group's offsets of topics that it does not use (KIP-496)."""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(ctx: Context, request: OffsetDeleteRequest) -> Message | Context:
    return ctx.broker.coordinator.handle(ctx, request)


def on_error(request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.error)


API = Api(
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
    handle=handle,
    on_error=on_error,
)
