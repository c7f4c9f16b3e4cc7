"""ListGroups, DescribeGroups and DeleteGroups. Source: Kafka's GroupMetadataManager."""

from collections.abc import Callable
from typing import Final

from ottla.group.members import ClassicGroup, Member
from ottla.group.outcome import Call, Outcome
from ottla.group.registry import Registry
from ottla.group.states import State
from ottla.wire.api.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from ottla.wire.api.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
)
from ottla.wire.api.list_groups import ListedGroup, ListGroupsRequest
from ottla.wire.errors import Error

CLASSIC: Final = "classic"
"""Group type, as ListGroups reports it."""
NOT_FOUND_FROM = 6
"""DescribeGroups version since which a missing group is an error (KIP-1043)."""


class Admin:
    """What administrators ask about the groups of one registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def filter(self, request: ListGroupsRequest) -> Callable[[ClassicGroup], bool]:
        """Which groups a request wants to be listed."""
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        if types and CLASSIC not in types:
            return lambda _: False
        return lambda group: not states or group.state.value.lower() in states

    def listed(self, group: ClassicGroup) -> ListedGroup:
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC,
        )

    def describe(self, group_id: str, call: Call) -> DescribedGroup:
        """A group but for its members. Protocol and subscriptions are told of a Stable group only:
        before, they may change."""
        group = self.registry.groups.get(group_id)
        if group is None:
            return _missing(group_id, call.version)
        stable = group.state is State.STABLE
        return DescribedGroup(
            group_id=group.group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=group.protocol_name or "" if stable else "",
        )

    def delete(self, request: DeleteGroupsRequest, call: Call, now: int, out: Outcome) -> None:
        """Delete groups without members, with all their offsets."""
        results = []
        for group_id in dict.fromkeys(request.groups_names):
            group = self.registry.groups.get(group_id)
            result = DeletableGroupResult(group_id=group_id)
            results.append(result)
            if group is None:
                result.error_code = Error.GROUP_ID_NOT_FOUND
            elif group.state is not State.EMPTY:
                result.error_code = Error.NON_EMPTY_GROUP
            else:
                self.registry.delete(group, now, out)
        out.reply(call, DeleteGroupsResponse(results=results))


def member_of(member: Member, protocol: str) -> DescribedGroupMember:
    """A member as DescribeGroups shows it; with its subscription where there is a protocol."""
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol) if protocol else b"",
        member_assignment=member.assignment,
    )


def _missing(group_id: str, version: int) -> DescribedGroup:
    group = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
    if version >= NOT_FOUND_FROM:
        group.error_code = Error.GROUP_ID_NOT_FOUND
        group.error_message = f"Group {group_id} not found."
    return group
