"""LeaveGroup: members leave a classic group."""

from ottla.wire.schema import Message, array, int16, int32, message, string, struct


@struct
class MemberIdentity:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", null="3+", default=None)
    reason: str | None = string("5+", null="5+", default=None, ignorable=True)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest(Message):
    """Remove this member, from v3 on these."""

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@struct
class MemberResponse:
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", null="3+")
    error_code: int = int16("3+")


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse(Message):
    """Whether each member was removed (v3+: member by member)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
