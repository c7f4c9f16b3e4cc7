"""DescribeClientQuotas v0-1 (KIP-546): there are no quotas, so no entity has one. v1 flexible. A
filter that makes no sense is refused, as by Kafka's ClientQuotasImage."""

from __future__ import annotations

from typing import Final

from ottla.broker.context import Api, Context
from ottla.wire.api.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from ottla.wire.errors import Error, KafkaError

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2
_ENTITIES: Final = (USER, CLIENT_ID, IP)


def handle(ctx: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    seen: set[str] = set()
    for component in request.components:  # the fourth, at the latest, is one too many
        _check(component, seen)
        seen.add(component.entity_type)
    if IP in seen and len(seen) > 1:
        raise KafkaError(
            Error.INVALID_REQUEST, "quotas of addresses have no user or client id: ask for one kind"
        )
    return DescribeClientQuotasResponse(error_message=None)


def _check(component: ComponentData, seen: set[str]) -> None:
    """Raises KafkaError."""
    kind = component.entity_type
    if not kind:
        raise KafkaError(Error.INVALID_REQUEST, "an entity type is empty")
    if kind in seen:
        raise KafkaError(Error.INVALID_REQUEST, f"entity type {kind} is named twice")
    if kind not in _ENTITIES:
        raise KafkaError(
            Error.UNSUPPORTED_VERSION,
            f"entity type {kind} is unknown: ask for {', '.join(_ENTITIES)}",
        )
    if component.match_type not in (EXACT, DEFAULT, ANY):
        raise KafkaError(Error.INVALID_REQUEST, f"match type {component.match_type} is unknown")
    if (component.match_type == EXACT) != (component.match is not None):
        raise KafkaError(
            Error.INVALID_REQUEST, f"{kind}: an exact match, and no other, needs a name to match"
        )


def on_error(
    request: DescribeClientQuotasRequest, error: KafkaError
) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(
        error_code=error.error, error_message=error.message, entries=None
    )


API = Api(
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
    handle=handle,
    on_error=on_error,
)
