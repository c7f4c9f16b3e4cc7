"""DeleteGroups: groups without members go."""

from ottla.wire.schema import Message, array, int16, int32, message, string, struct


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest(Message):
    """Delete these groups and their offsets."""

    groups_names: list[str] = array(string)


@struct
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse(Message):
    """Whether each group was deleted."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
