"""FindCoordinator v0-6: which node coordinates a group or a transactional id.

There is one node, so the answer is this node. The first question of a kind makes the topic in which
Kafka would keep what that coordinator knows (internal_topics.py). Share groups have no coordinator
here yet, and the answer says so with an error that a client does not repeat.

v1 key types and messages; v3 flexible; v4 several keys; v5 TRANSACTION_ABORTABLE; v6 shares.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.context import Api, Context
from ottla.broker.internal_topics import ensure
from ottla.broker.metadata import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.wire.api.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.wire.errors import Error, KafkaError

GROUP, TRANSACTION, SHARE = 0, 1, 2
_SEVERAL = 4


def handle(
    ctx: Context, request: FindCoordinatorRequest
) -> Generator[None, None, FindCoordinatorResponse]:
    if ctx.header.api_version >= _SEVERAL and not request.coordinator_keys:
        return FindCoordinatorResponse()  # nothing was asked: there is no place for an error either
    kind = request.key_type
    if kind == SHARE:
        raise KafkaError(Error.INVALID_REQUEST, "share groups are not served yet")
    if kind not in (GROUP, TRANSACTION):
        raise KafkaError(Error.INVALID_REQUEST, f"coordinator type {kind} is unknown")
    ensure(ctx.broker, OFFSETS_TOPIC if kind == GROUP else TRANSACTIONS_TOPIC)
    node, host, port = (
        ctx.broker.node_id,
        ctx.listener.advertised_host,
        ctx.listener.advertised_port,
    )
    if ctx.header.api_version < _SEVERAL:
        return FindCoordinatorResponse(node_id=node, host=host, port=port, error_message="NONE")
    found = []
    for key in request.coordinator_keys:
        found.append(Coordinator(key=key, node_id=node, host=host, port=port))
        yield
    return FindCoordinatorResponse(coordinators=found)


def on_error(request: FindCoordinatorRequest, error: KafkaError) -> FindCoordinatorResponse:
    """Nowhere is node -1 at port -1, in the fields of either layout; the other is not sent."""
    if request.coordinator_keys:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=-1,
                    port=-1,
                    error_code=error.error,
                    error_message=error.message,
                )
                for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(
        node_id=-1, port=-1, error_code=error.error, error_message=error.message
    )


API = Api(
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
    handle=handle,
    on_error=on_error,
)
