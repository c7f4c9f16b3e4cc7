"""JoinGroup: become a member of a classic group."""

from ottla.wire.schema import (
    Message,
    array,
    boolean,
    byte_string,
    int16,
    int32,
    message,
    string,
    struct,
)


@struct
class JoinGroupRequestProtocol:
    name: str = string()
    metadata: bytes = byte_string()


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest(Message):
    """Join or rejoin, with the protocols the member can speak in order of preference."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", null="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", null="8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", null="5+", default=None, ignorable=True)
    metadata: bytes = byte_string()


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse(Message):
    """The new generation; only the leader is told the members."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", null="7+", default=None, ignorable=True)
    protocol_name: str | None = string(null="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
