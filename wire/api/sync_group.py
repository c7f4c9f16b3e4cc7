"""SyncGroup: the leader hands out the assignment of a generation."""

from ottla.wire.schema import Message, array, byte_string, int16, int32, message, string, struct


@struct
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = byte_string()


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest(Message):
    """The leader's assignments, or (empty) a follower's question for its own."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", null="3+", default=None)
    protocol_type: str | None = string("5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", null="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse(Message):
    """The member's assignment."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", null="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", null="5+", default=None, ignorable=True)
    assignment: bytes = byte_string()
