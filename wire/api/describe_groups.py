"""DescribeGroups: state and members of classic groups."""

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


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest(Message):
    """Describe these groups."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


@struct
class DescribedGroupMember:
    member_id: str = string()
    group_instance_id: str | None = string("4+", null="4+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = byte_string()
    member_assignment: bytes = byte_string()


@struct
class DescribedGroup:
    error_code: int = int16()
    error_message: str | None = string("6+", null="6+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse(Message):
    """State, protocol and members of each group."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
