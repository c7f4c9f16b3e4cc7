"""LeaveGroup v0-5: members go, and the others need not wait for their sessions to end.

v3 several members, answered one by one, by instance id too (KIP-345); v4 flexible; v5 reason
(KIP-800).
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.context import Api, Context
from ottla.broker.parts import PART, handle_parts
from ottla.broker.slices import Later
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(
    ctx: Context, request: LeaveGroupRequest
) -> Message | Context | Generator[Later | None, None, Message]:
    leave = ctx.broker.coordinator.handle
    if len(request.members) <= PART:
        return leave(ctx, request)
    requests = (
        LeaveGroupRequest(group_id=request.group_id, members=request.members[start : start + PART])
        for start in range(0, len(request.members), PART)
    )
    return handle_parts(ctx, requests, leave, _whole)


def _whole(answers: list[LeaveGroupResponse]) -> LeaveGroupResponse:
    """An error of the whole request is the same in all parts."""
    first = answers[0]
    for answer in answers[1:]:
        first.members += answer.members
    return first


def on_error(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.error)


API = Api(
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    handle=handle,
    on_error=on_error,
)
