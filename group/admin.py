"""ListGroups, DescribeGroups and DeleteGroups. Source: Kafka's GroupMetadataManager."""

from collections.abc import Iterable
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
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.errors import Error

CLASSIC: Final = "classic"
"""Group type, as ListGroups reports it."""
NOT_FOUND_FROM = 6
"""DescribeGroups version since which a missing group is an error (KIP-1043)."""


class Admin:
    """What administrators ask about the groups of one registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def list(
        self, request: ListGroupsRequest, group_ids: Iterable[str] | None = None
    ) -> ListGroupsResponse:
        """Groups in the wanted states and of the wanted types, all or those of `group_ids` that are
        there; no filter wants all. Names are compared without regard to case."""
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        if types and CLASSIC not in types:
            return ListGroupsResponse()
        groups = self.registry.groups
        if group_ids is None:
            group_ids = groups
        return ListGroupsResponse(
            groups=[
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
                for group in (groups.get(group_id) for group_id in group_ids)
                if group is not None and (not states or group.state.value.lower() in states)
            ]
        )

    def describe(self, request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
        """Each group in the order of the request."""
        response = DescribeGroupsResponse()
        for group_id in request.groups:
            group = self.registry.groups.get(group_id)
            described = self._describe(group) if group else _missing(group_id, call.version)
            if request.include_authorized_operations and not described.error_code:
                described.authorized_operations = call.group_operations
            response.groups.append(described)
        return response

    def _describe(self, group: ClassicGroup) -> DescribedGroup:
        """Protocol and subscriptions are told of a Stable group only: before, they may change."""
        stable = group.state is State.STABLE
        protocol = group.protocol_name or "" if stable else ""
        return DescribedGroup(
            group_id=group.group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=protocol,
            members=[_member(member, protocol) for member in group.members.values()],
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


def _member(member: Member, protocol: str) -> DescribedGroupMember:
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
