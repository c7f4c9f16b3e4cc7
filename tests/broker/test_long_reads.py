"""Long questions about groups: answered in slices, with others in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Client, Harness, VirtualClock
from tests.group.simulated import commit_request, subscription

from ottla.broker.slices import SLICE_MS
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.errors import Error
from ottla.wire.schema import Message

LONG = 200
PARTITIONS = 5 * LONG + 1


class SlowClock(VirtualClock):
    """Each look at it takes a while, so that a slice has ten steps."""

    slow = False

    def monotonic_ms(self) -> float:
        if self.slow:
            self.passed_ms += SLICE_MS / 10
        return super().monotonic_ms()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    clock = SlowClock()
    harness = Harness(tmp_path, clock=clock)
    harness.topic("t", PARTITIONS)
    client = harness.client()
    offsets = {n: n + 7 for n in range(PARTITIONS)}
    assert client.call(commit_request("g", offsets, topic="t"), 9)
    for n in range(2 * LONG):
        assert client.call(commit_request(f"g{n:04}", {0: n}, topic="t"), 9)
    clock.slow = True
    yield harness
    clock.slow = False
    harness.store.close()


def in_slices(harness: Harness, request: Message, version: int) -> tuple[Any, int]:
    """The answer, and how many turns it took; somebody else is answered in each of them."""
    client, other = harness.client(), harness.client()
    client.send(request, version)
    turns = 0
    while (answer := client.receive()) is None:
        turns += 1
        assert turns < 1000
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody")
        assert other.call(beat, 4).error_code == Error.UNKNOWN_MEMBER_ID
        harness.pass_time(SLICE_MS)
    return answer, turns


def named(version: int) -> OffsetFetchRequest:
    indexes = list(range(PARTITIONS))
    if version < 8:
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=indexes)
        return OffsetFetchRequest(group_id="g", topics=[topic])
    wanted = OffsetFetchRequestTopics(
        name="t", topic_id=b"t".rjust(16, b"\1"), partition_indexes=indexes
    )
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[wanted])])


def everything(version: int) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(group_id="g", topics=None)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize("make", [named, everything])
def test_offsets_of_many_partitions(harness: Harness, version: int, make: Any) -> None:
    if make is everything and version < 2:
        return
    answer, turns = in_slices(harness, make(version), version)
    assert turns >= PARTITIONS // LONG
    (topic,) = answer.topics if version < 8 else answer.groups[0].topics
    assert topic.name == "t" or version >= 10
    assert [(p.partition_index, p.committed_offset, p.error_code) for p in topic.partitions] == [
        (n, n + 7, 0) for n in range(PARTITIONS)
    ]


def test_offsets_of_many_groups(harness: Harness) -> None:
    ids = [f"g{n:04}" for n in range(2 * LONG)] + ["nobody"]
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ids]
    answer, turns = in_slices(harness, OffsetFetchRequest(groups=groups), 9)
    assert turns >= 2
    told = [
        (g.group_id, [p.committed_offset for t in g.topics for p in t.partitions])
        for g in answer.groups
    ]
    assert told == [*((f"g{n:04}", [n]) for n in range(2 * LONG)), ("nobody", [])]


def test_lists_of_many_groups(harness: Harness) -> None:
    answer, turns = in_slices(harness, ListGroupsRequest(), 5)
    assert turns >= 2
    assert len({group.group_id for group in answer.groups}) == len(answer.groups) == 2 * LONG + 1
    answer, _ = in_slices(harness, ListGroupsRequest(states_filter=["Stable"]), 5)
    assert answer.groups == []


def test_descriptions_of_many_groups(harness: Harness) -> None:
    ids = [f"g{n:04}" for n in range(0, 2 * LONG, 3)] + ["nobody"]
    answer, turns = in_slices(harness, DescribeGroupsRequest(groups=ids), 6)
    assert turns >= 5
    assert [group.group_id for group in answer.groups] == ids
    assert {group.group_state for group in answer.groups[:-1]} == {"Empty"}
    assert answer.groups[-1].error_code == Error.GROUP_ID_NOT_FOUND


def test_a_group_that_goes_meanwhile_is_not_listed(harness: Harness) -> None:
    client = harness.client()
    client.send(ListGroupsRequest(), 5)
    registry = harness.broker.coordinator._machine.registry
    last = list(registry.groups)[-1]
    del registry.groups[last]
    while (answer := client.receive()) is None:
        harness.pass_time(SLICE_MS)
    assert last not in {group.group_id for group in answer.groups}
    assert len(answer.groups) == 2 * LONG


def test_what_is_decided_meanwhile_is_on_disk_before_it_is_told(harness: Harness) -> None:
    client, member = harness.client(), harness.client()
    ids = [f"g{n:04}" for n in range(100)]
    client.send(DescribeGroupsRequest(groups=ids), 6)
    join = JoinGroupRequest(
        group_id=ids[-1],
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
    )
    member.send(join, 3)
    while (answer := client.receive()) is None:
        harness.pass_time(SLICE_MS)
    assert answer.groups[-1].group_state == "CompletingRebalance"
    assert member.receive() is not None


def test_a_commit_that_fails_ends_it(harness: Harness) -> None:
    client = harness.client()
    client.send(named(9), 9)
    harness.pass_time(SLICE_MS)
    assert client.receive() is None
    harness.broker.coordinator._reset(None)
    harness.pass_time(SLICE_MS)
    assert client.receive().groups[0].error_code == Error.NOT_COORDINATOR


def test_a_client_that_goes_costs_nothing_more(harness: Harness) -> None:
    client: Client = harness.client()
    before = len(harness.broker.timers)
    client.send(named(9), 9)
    assert len(harness.broker.timers) == before + 1
    client.connection.close("gone")
    harness.pass_time(SLICE_MS)
    assert len(harness.broker.timers) == before
