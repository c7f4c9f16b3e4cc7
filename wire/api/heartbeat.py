"""Heartbeat: a member of a classic group is alive."""

from ottla.wire.schema import Message, int16, int32, message, string


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest(Message):
    """Renew the member's session."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", null="3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse(Message):
    """Whether the member may go on or must rejoin."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
