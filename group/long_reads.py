"""Questions about groups, answered step by step so that others get a turn in between.

Each generator yields after a part of the work and returns the response, written as it comes: the
buffers of its body. What it looks at may change between two steps: each part is as true as an
answer of its own would be. Kafka has no such steps: there another thread answers.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Final, TypeAlias

from ottla.group.admin import Admin, member_of
from ottla.group.offsets import FETCH_GROUPS_FROM, Offsets, told, told_in_group
from ottla.group.outcome import Call
from ottla.group.rows import Offset
from ottla.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.primitives import Buffer
from ottla.wire.rows import Rows

PAGE: Final = 100
"""Offsets read in one step where all of a group are asked for."""
FEW: Final = 20
"""Groups, topics and partitions that OffsetFetch may name to be answered without any steps."""
AT_ONCE: Final = 500
"""Members of a group that are described in one step, as they are at one moment."""

Reading: TypeAlias = Generator[None, None, Sequence[Buffer]]


def is_long(request: OffsetFetchRequest, version: int) -> bool:
    """Whether the answer may be a long one. All offsets of a group may be any number."""
    wanted: Sequence[Sequence[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None]
    if version < FETCH_GROUPS_FROM:
        wanted = [request.topics]
    elif len(request.groups) > FEW:
        return True
    else:
        wanted = [group.topics for group in request.groups]
    count = 0
    for topics in wanted:
        if topics is None or len(topics) > FEW:
            return True
        count += 1 + len(topics) + sum(len(topic.partition_indexes) for topic in topics)
    return count > FEW


def fetch(offsets: Offsets, request: OffsetFetchRequest, call: Call) -> Reading:
    """OffsetFetch. What is named again is answered once: an offset's metadata may be 4 KiB, its
    name in the request four bytes."""
    if call.version < FETCH_GROUPS_FROM:
        return _fetch_one(offsets, request, call.version)
    return _fetch_groups(offsets, request, call.version)


def _fetch_one(offsets: Offsets, request: OffsetFetchRequest, version: int) -> Reading:
    rows = Rows(OffsetFetchResponse, "topics", version)
    group_id, stable = request.group_id, request.require_stable
    if request.topics is None:
        for (name, _), found in (yield from _all(offsets, group_id, stable)).items():
            partitions = (told(index, offset) for index, offset in found)
            yield from rows.add_of(OffsetFetchResponseTopic(name=name), "partitions", partitions)
    else:
        unstable, seen = offsets.unstable(group_id, stable), set[int]()
        for wanted in request.topics:
            named = offsets.each(group_id, wanted, version, unstable, seen)
            partitions = (told(index, offset) for index, offset, _ in named)
            answer = OffsetFetchResponseTopic(name=wanted.name)
            yield from rows.add_of(answer, "partitions", partitions)
    return rows.within(OffsetFetchResponse())


def _fetch_groups(offsets: Offsets, request: OffsetFetchRequest, version: int) -> Reading:
    rows = Rows(OffsetFetchResponse, "groups", version)
    stable = request.require_stable
    whole = set[str]()
    named: dict[str, set[int]] = {}
    for wanted in request.groups:
        group_id = wanted.group_id
        topics = rows.inner("topics")
        if wanted.topics is None:
            if group_id in whole:
                yield
                continue
            whole.add(group_id)
            yield from _tell_all(offsets, group_id, stable, topics)
        else:
            unstable = offsets.unstable(group_id, stable)
            seen = named.setdefault(group_id, set())
            for topic in wanted.topics:
                answer = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
                found = offsets.each(group_id, topic, version, unstable, seen)
                partitions = (told_in_group(*one) for one in found)
                yield from topics.add_of(answer, "partitions", partitions)
        rows.add_with(OffsetFetchResponseGroup(group_id=group_id), topics)
        yield
    return rows.within(OffsetFetchResponse())


def _tell_all(offsets: Offsets, group_id: str, stable: bool, into: Rows) -> Iterator[None]:
    for (name, topic_id), found in (yield from _all(offsets, group_id, stable)).items():
        answer = OffsetFetchResponseTopics(name=name, topic_id=topic_id)
        partitions = (told_in_group(index, offset) for index, offset in found)
        yield from into.add_of(answer, "partitions", partitions)


def _all(
    offsets: Offsets, group_id: str, stable: bool
) -> Generator[None, None, dict[tuple[str, bytes], list[tuple[int, Offset]]]]:
    """Steps, and all offsets of a group by topic: its partitions need not be neighbours."""
    found: dict[tuple[str, bytes], list[tuple[int, Offset]]] = {}
    after: bytes | None = b""
    while after is not None:
        part, after = offsets.page(group_id, stable, after, PAGE)
        for name, topic_id, index, offset in part:
            found.setdefault((name, topic_id), []).append((index, offset))
        yield
    return found


def describe(admin: Admin, request: DescribeGroupsRequest, call: Call) -> Reading:
    """DescribeGroups, in the order of the request. What is named again is answered once, unlike in
    Kafka: a group may have thousands of members."""
    rows = Rows(DescribeGroupsResponse, "groups", call.version)
    seen = set[str]()
    for group_id in request.groups:
        yield
        if group_id in seen:
            continue
        seen.add(group_id)
        answer = admin.describe(group_id, call)
        if request.include_authorized_operations and not answer.error_code:
            answer.authorized_operations = call.group_operations
        group = admin.registry.groups.get(group_id)
        members = list(group.members.values()) if group is not None else []
        protocol = answer.protocol_data
        if len(members) <= AT_ONCE:
            answer.members = [member_of(member, protocol) for member in members]
            rows.add(answer, 1 + len(members))
        else:
            described = (member_of(member, protocol) for member in members)
            yield from rows.add_of(answer, "members", described)
    return rows.within(DescribeGroupsResponse())


def list_groups(admin: Admin, request: ListGroupsRequest, call: Call) -> Reading:
    """ListGroups: those there were when it began and still are, in the wanted states and of the
    wanted types; no filter wants all. Names are compared without regard to case."""
    rows = Rows(ListGroupsResponse, "groups", call.version)
    wanted = admin.filter(request)
    for group_id in list(admin.registry.groups):
        group = admin.registry.groups.get(group_id)
        if group is not None and wanted(group):
            rows.add(admin.listed(group))
        yield
    return rows.within(ListGroupsResponse())
