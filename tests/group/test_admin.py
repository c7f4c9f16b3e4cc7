"""Listing, describing and deleting groups."""

import pytest
from tests.group.simulated import Consumer, World, commit_request, form

from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.errors import Error


@pytest.fixture
def world() -> World:
    """A stable group "s", an empty one "e", a simple one "o", a rebalancing one "p"."""
    world = World()
    form(Consumer(world, group_id="s"))
    gone = Consumer(world, group_id="e")
    form(gone)
    gone.leave()
    world.send(commit_request("o", {0: 1}), 9)
    form(Consumer(world, group_id="p"))
    Consumer(world, "late", group_id="p").join()
    return world


def listed(world: World, version: int = 5, **filters: list[str]) -> list[str]:
    reply = world.send(ListGroupsRequest(**filters), version)
    assert reply.error == Error.NONE
    return sorted(group.group_id for group in reply.response.groups)


@pytest.mark.parametrize("version", range(6))
def test_list_all(world: World, version: int) -> None:
    assert listed(world, version) == ["e", "o", "p", "s"]


def test_list_tells_state_type_and_protocol(world: World) -> None:
    groups = world.send(ListGroupsRequest()).response.groups
    assert sorted((g.group_id, g.group_state, g.group_type, g.protocol_type) for g in groups) == [
        ("e", "Empty", "classic", "consumer"),
        ("o", "Empty", "classic", ""),
        ("p", "PreparingRebalance", "classic", "consumer"),
        ("s", "Stable", "classic", "consumer"),
    ]


def test_list_by_state_and_type(world: World) -> None:
    assert listed(world, states_filter=["Empty"]) == ["e", "o"]
    assert listed(world, states_filter=["empty", "STABLE"]) == ["e", "o", "s"]
    assert listed(world, states_filter=["Assigning"]) == []
    assert listed(world, types_filter=["Classic"]) == ["e", "o", "p", "s"]
    assert listed(world, types_filter=["consumer"]) == []
    assert listed(world, types_filter=["share"], states_filter=["Stable"]) == []


@pytest.mark.parametrize("version", range(7))
def test_describe(world: World, version: int) -> None:
    reply = world.send(DescribeGroupsRequest(groups=["s", "e", "p"]), version)
    stable, gone, preparing = reply.response.groups
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (member,) = stable.members
    assert (member.client_id, member.client_host) == ("a", "/127.0.0.1")
    assert member.member_assignment == b"a"
    assert member.member_metadata.startswith(b"\x00\x00")
    assert (gone.group_state, gone.members) == ("Empty", [])
    assert (preparing.group_state, preparing.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_metadata for m in preparing.members] == [b"", b""]


def test_describe_tells_what_is_allowed_when_asked(world: World) -> None:
    asked = DescribeGroupsRequest(groups=["s"], include_authorized_operations=True)
    assert world.send(asked).response.groups[0].authorized_operations == 0
    unasked = DescribeGroupsRequest(groups=["s"])
    assert world.send(unasked).response.groups[0].authorized_operations == -(1 << 31)


@pytest.mark.parametrize("version", range(3))
def test_delete(world: World, version: int) -> None:
    reply = world.send(DeleteGroupsRequest(groups_names=["s", "e", "o", "p", "x", "e"]), version)
    assert {r.group_id: r.error_code for r in reply.response.results} == {
        "s": Error.NON_EMPTY_GROUP,
        "e": Error.NONE,
        "o": Error.NONE,
        "p": Error.NON_EMPTY_GROUP,
        "x": Error.GROUP_ID_NOT_FOUND,
    }
    assert listed(world) == ["p", "s"]


def test_a_deleted_group_starts_over(world: World) -> None:
    world.send(DeleteGroupsRequest(groups_names=["e"]))
    again = Consumer(world, group_id="e")
    form(again)
    assert again.generation_id == 1
