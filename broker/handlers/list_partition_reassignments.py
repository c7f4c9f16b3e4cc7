"""ListPartitionReassignments v0 (KIP-455): none, ever: one node has nowhere to move a replica to.

kafka-topics --describe asks before it prints anything.
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.wire.errors import KafkaError


def handle(
    ctx: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


def on_error(
    request: ListPartitionReassignmentsRequest, error: KafkaError
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error.error, error_message=error.message)


API = Api(
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
    handle=handle,
    on_error=on_error,
)
