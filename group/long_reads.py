"""Large questions about groups, answered step by step so that others get a turn in between.

Each generator yields after a part of the work and returns the response. What it looks at may change
between two steps: each part is as true as an answer of its own would be. Kafka has no such steps:
there another thread answers.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar, cast

from ottla.group.admin import Admin
from ottla.group.offsets import FETCH_GROUPS_FROM, Offsets, told, told_in_group
from ottla.group.outcome import Call
from ottla.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

LONG: Final = 200
"""Groups, partitions or rows of one step; a question about no more is answered without any."""

T = TypeVar("T")
_Named: TypeAlias = OffsetFetchRequestTopic | OffsetFetchRequestTopics
Fetching: TypeAlias = Generator[None, None, OffsetFetchResponse]


def whole(steps: Generator[None, None, T]) -> T:
    """All steps in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(T, end.value)


def is_long(request: OffsetFetchRequest, version: int) -> bool:
    """Whether the answer may be a long one. All offsets of a group may be any number."""
    topics: list[Sequence[_Named] | None] = [request.topics]
    if version >= FETCH_GROUPS_FROM:
        topics = [group.topics for group in request.groups]
    count = len(topics)
    for named in topics:
        if named is None:
            return True
        count += sum(len(topic.partition_indexes) for topic in named)
    return count > LONG


def fetch(offsets: Offsets, request: OffsetFetchRequest, call: Call) -> Fetching:
    """OffsetFetch, some partitions at a time."""
    if call.version < FETCH_GROUPS_FROM:
        return _fetch_one(offsets, request, call)
    return _fetch_groups(offsets, request, call)


def _fetch_one(offsets: Offsets, request: OffsetFetchRequest, call: Call) -> Fetching:
    response = OffsetFetchResponse()
    found: dict[str, OffsetFetchResponseTopic] = {}
    if request.topics is None:
        after: bytes | None = b""
        while after is not None:
            part, after = offsets.page(request.group_id, request.require_stable, after, LONG)
            for name, _, index, offset in part:
                topic = found.setdefault(name, OffsetFetchResponseTopic(name=name))
                topic.partitions.append(told(index, offset))
            yield
        response.topics = list(found.values())
        return response
    for wanted in request.topics:
        topic = OffsetFetchResponseTopic(name=wanted.name)
        response.topics.append(topic)
        for indexes in _parts(wanted.partition_indexes):
            named = OffsetFetchRequestTopic(name=wanted.name, partition_indexes=indexes)
            part_request = OffsetFetchRequest(
                group_id=request.group_id, topics=[named], require_stable=request.require_stable
            )
            (found_topic,) = offsets.fetch(part_request, call).topics
            topic.partitions += found_topic.partitions
            yield
    return response


def _fetch_groups(offsets: Offsets, request: OffsetFetchRequest, call: Call) -> Fetching:
    response = OffsetFetchResponse()
    for number, wanted in enumerate(request.groups, 1):
        group = OffsetFetchResponseGroup(group_id=wanted.group_id)
        response.groups.append(group)
        if wanted.topics is None:
            yield from _fetch_all(offsets, wanted, request.require_stable, group)
        else:
            yield from _fetch_named(offsets, wanted, wanted.topics, request, call, group)
        if number % LONG == 0:
            yield
    return response


def _fetch_all(
    offsets: Offsets,
    wanted: OffsetFetchRequestGroup,
    require_stable: bool,
    group: OffsetFetchResponseGroup,
) -> Iterator[None]:
    found: dict[str, OffsetFetchResponseTopics] = {}
    after: bytes | None = b""
    while after is not None:
        if after:
            yield
        part, after = offsets.page(wanted.group_id, require_stable, after, LONG)
        for name, topic_id, index, offset in part:
            if name not in found:
                found[name] = OffsetFetchResponseTopics(name=name, topic_id=topic_id)
            found[name].partitions.append(told_in_group(index, offset))
    group.topics = list(found.values())


def _fetch_named(
    offsets: Offsets,
    wanted: OffsetFetchRequestGroup,
    topics: Iterable[OffsetFetchRequestTopics],
    request: OffsetFetchRequest,
    call: Call,
    group: OffsetFetchResponseGroup,
) -> Iterator[None]:
    for topic in topics:
        answer = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id)
        group.topics.append(answer)
        for indexes in _parts(topic.partition_indexes):
            named = OffsetFetchRequestTopics(
                name=topic.name, topic_id=topic.topic_id, partition_indexes=indexes
            )
            part = OffsetFetchRequestGroup(group_id=wanted.group_id, topics=[named])
            one = OffsetFetchRequest(groups=[part], require_stable=request.require_stable)
            ((found_topic,),) = (found.topics for found in offsets.fetch(one, call).groups)
            answer.partitions += found_topic.partitions
            yield


def describe(
    admin: Admin, request: DescribeGroupsRequest, call: Call
) -> Generator[None, None, DescribeGroupsResponse]:
    """DescribeGroups, some groups at a time: a few, because each may have many members."""
    response = DescribeGroupsResponse()
    for group_ids in _parts(request.groups, LONG // 10):
        part = DescribeGroupsRequest(
            groups=group_ids,
            include_authorized_operations=request.include_authorized_operations,
        )
        response.groups += admin.describe(part, call).groups
        yield
    return response


def list_groups(
    admin: Admin, request: ListGroupsRequest
) -> Generator[None, None, ListGroupsResponse]:
    """ListGroups, some groups at a time: those there were when it began and still are."""
    response = ListGroupsResponse()
    for group_ids in _parts(list(admin.registry.groups)):
        response.groups += admin.list(request, group_ids).groups
        yield
    return response


def _parts(items: Sequence[T], size: int = LONG) -> Iterator[list[T]]:
    for begin in range(0, len(items), size):
        yield list(items[begin : begin + size])
