"""ListGroups: the groups this broker coordinates."""

from ottla.wire.schema import Message, array, int16, int32, message, string, struct


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Message):
    """All groups, or those in these states (v4+) and of these types (v5+)."""

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


@struct
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse(Message):
    """Each group with protocol, state and type."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
