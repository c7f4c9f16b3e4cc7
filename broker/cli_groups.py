"""`ottla groups`: list, describe with lag, reset, delete, watch; on any Kafka cluster.

A reset moves a group whether it has members or not: it removes them all first, so that their late
commits are refused, then commits the new offsets into the empty group, and only then can they join
again and begin from there. Should one be back before the commit arrives, the coordinator refuses
it (the group is not empty) and the same is done again.
"""

from __future__ import annotations

import argparse
import csv
import re
import time
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

from ottla.broker.cli_client import Cluster
from ottla.broker.cli_errors import ClientError, problem, raise_for
from ottla.broker.cli_offsets import EARLIEST, LATEST, check_where, offsets_of, start_offsets
from ottla.broker.cli_output import count, fail, print_json, print_rows, say
from ottla.group.subscription import partitions as assigned_partitions
from ottla.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.api.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from ottla.wire.errors import Error, KafkaError

ATTEMPTS: Final = 20
"""How often members may come back between their removal and the commit before a reset gives up."""
BY_NAME: Final = 9
"""OffsetCommit and OffsetFetch version, the last that names topics by name."""
_PATTERN: Final = re.compile(r"[*?\[]")
_BACK: Final = (Error.UNKNOWN_MEMBER_ID, Error.REBALANCE_IN_PROGRESS)
"""How a coordinator refuses a commit because members are in the group."""

Offsets = dict[tuple[str, int], int]


class Row(NamedTuple):
    """One partition of a group, as `describe` shows it; None: nothing committed, not known."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str
    client: str
    host: str


def groups(args: argparse.Namespace) -> int:
    """Run one action of the command."""
    actions: dict[str, Callable[[Cluster, argparse.Namespace], int]] = {
        "list": _list,
        "describe": _describe,
        "reset": _reset,
        "delete": _delete,
        "watch": _watch,
    }
    with Cluster(args.bootstrap_server) as cluster:
        return actions[args.action](cluster, args)


# ------------------------------------------------------------------------------------------ looking


def _list(cluster: Cluster, args: argparse.Namespace) -> int:
    rows = [
        (group.group_id, group.group_state, group.group_type, group.protocol_type)
        for group in _listed(cluster)
        if not args.state or group.group_state.lower() == args.state.lower()
    ]
    print_rows(args.json, ("group", "state", "type", "protocol"), rows)
    return 0


def _listed(cluster: Cluster) -> list[ListedGroup]:
    found: list[ListedGroup] = []
    for answer in cluster.call_all(ListGroupsRequest(), ListGroupsResponse):
        raise_for(answer.error_code, "the list of groups")
        found += answer.groups
    return sorted(found, key=lambda group: group.group_id)


def _named(cluster: Cluster, names: list[str]) -> list[str]:
    """Names as they are, and what matches a pattern such as orders-*; a group that is really called
    like a pattern is meant by it alone. Raises ClientError when nothing matches one."""
    if not any(map(_PATTERN.search, names)):
        return names
    there = [group.group_id for group in _listed(cluster)]
    found: dict[str, None] = {}
    for name in names:
        exact = name in there or not _PATTERN.search(name)
        matching = [name] if exact else [one for one in there if fnmatchcase(one, name)]
        if not matching:
            raise ClientError(f"no group matches {name}")
        found.update(dict.fromkeys(matching))
    return list(found)


def _describe(cluster: Cluster, args: argparse.Namespace) -> int:
    for name in _named(cluster, args.names):
        _print_group(cluster, name, args.json)
    return 0


def _watch(cluster: Cluster, args: argparse.Namespace) -> int:
    """Describe a group again and again, until interrupted; it may come and go."""
    before: object = None
    while True:
        try:
            group, rows = _looked_at(cluster, args.name)
        except KafkaError as error:
            if error.error is not Error.GROUP_ID_NOT_FOUND:
                raise
            group, rows = DescribedGroup(group_id=args.name, group_state="Dead"), []
        now = (group.group_state, [member.member_id for member in group.members], rows)
        if now != before:
            before = now
            if not args.json:
                say(time.strftime("-- %H:%M:%S"))
            _print(group, rows, args.json)
        time.sleep(args.interval)


def _print_group(cluster: Cluster, name: str, as_json: bool) -> None:
    group, rows = _looked_at(cluster, name)
    _print(group, rows, as_json)


def _looked_at(cluster: Cluster, name: str) -> tuple[DescribedGroup, list[Row]]:
    group = _described(cluster, name)
    return group, _rows(cluster, group, committed(cluster, name))


def _print(group: DescribedGroup, rows: list[Row], as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "group": group.group_id,
                "state": group.group_state,
                "protocol": group.protocol_data,
                "members": len(group.members),
                "lag": _lag(rows),
                "partitions": [row._asdict() for row in rows],
            }
        )
        return
    protocol = f"  {group.protocol_data}" if group.protocol_data else ""
    lag = _lag(rows)
    print(
        f"{group.group_id}  {group.group_state}{protocol}  {count(len(group.members), 'member')}"
        f"  lag {'-' if lag is None else lag}"
    )
    print_rows(False, Row._fields, rows, optional=("host", "member", "client"))
    unknown = sum(row.committed is None for row in rows)
    if unknown:
        print(f"nothing committed: {count(unknown, 'partition')}")
    idle = [member.client_id for member in group.members if not _assigned(member)]
    if idle:
        print(f"without partitions: {', '.join(sorted(idle))}")


def _lag(rows: list[Row]) -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [max(0, row.lag) for row in rows if row.lag is not None]
    return sum(known) if known or not rows else None


def _described(cluster: Cluster, name: str) -> DescribedGroup:
    """Raises KafkaError when there is no such group."""
    answer = cluster.call_coordinator(
        name, DescribeGroupsRequest(groups=[name]), DescribeGroupsResponse
    )
    (group,) = answer.groups
    raise_for(group.error_code, name)
    if group.group_state == "Dead":  # how brokers before 4.0 say it
        raise problem(Error.GROUP_ID_NOT_FOUND, name)
    return group


def committed(cluster: Cluster, name: str) -> Offsets:
    """What the group has committed. Raises KafkaError."""
    wanted = OffsetFetchRequestGroup(group_id=name, topics=None)
    request = OffsetFetchRequest(groups=[wanted], require_stable=True)
    answer = cluster.call_coordinator(name, request, OffsetFetchResponse, at_most=BY_NAME)
    (group,) = answer.groups
    raise_for(group.error_code, name)
    offsets = {}
    for topic in group.topics:
        for partition in topic.partitions:
            place = topic.name, partition.partition_index
            raise_for(partition.error_code, f"{name}: {place[0]} partition {place[1]}")
            if partition.committed_offset >= 0:
                offsets[place] = partition.committed_offset
    return offsets


def _assigned(member: DescribedGroupMember) -> dict[str, list[int]]:
    try:
        return assigned_partitions(member.member_assignment)
    except ValueError:
        return {}  # not a consumer: Kafka Connect and others have assignments of their own


def _rows(cluster: Cluster, group: DescribedGroup, offsets: Offsets) -> list[Row]:
    """Every partition that is committed or assigned, with its end and owner."""
    owners = {
        (topic, index): member
        for member in group.members
        for topic, indexes in _assigned(member).items()
        for index in indexes
    }
    places = sorted(owners.keys() | offsets.keys())
    ends = _offsets(cluster, places, LATEST)
    rows = []
    for place in places:
        offset, end, owner = offsets.get(place), ends.get(place), owners.get(place)
        lag = None if offset is None or end is None else end - offset
        rows.append(
            Row(
                *place,
                offset,
                end,
                lag,
                owner.member_id if owner else "",
                owner.client_id if owner else "",
                owner.client_host if owner else "",
            )
        )
    return rows


def _offsets(cluster: Cluster, places: Iterable[tuple[str, int]], where: int) -> Offsets:
    """The offset at LATEST or EARLIEST of each place; topics that are gone are left out."""
    wanted = set(places)
    there = {
        (topic.name or "", partition.partition_index)
        for topic in (cluster.topics({name for name, _ in wanted}) if wanted else [])
        for partition in topic.partitions
    }
    return offsets_of(cluster, sorted(wanted & there), where)


# ---------------------------------------------------------------------------------------- changing


def _reset(cluster: Cluster, args: argparse.Namespace) -> int:
    if args.to is not None:
        check_where(args.to, "--to")
    before = committed(cluster, args.name)
    after = _wanted(cluster, args, before)
    if not after:
        raise ClientError(
            f"{args.name} has committed nothing and no member of it owns a partition: say with"
            " --topic what to reset"
        )
    if not args.dry_run:
        removed = _move(cluster, args.name, after)
        members = f", {count(removed, 'member')} removed first" if removed else ""
        say(f"reset {args.name}: {count(len(after), 'partition')}{members}")
    rows = [(*place, before.get(place), offset) for place, offset in sorted(after.items())]
    print_rows(args.json, ("topic", "partition", "before", "after"), rows)
    return 0


def _wanted(cluster: Cluster, args: argparse.Namespace, before: Offsets) -> Offsets:
    """Where each partition is to go, within what its log holds."""
    if args.from_file is not None:
        wanted = _from_file(Path(args.from_file))
    else:
        places = _places(cluster, args.topic) if args.topic else _own(cluster, args, before)
        wanted = {}
        for topic in dict.fromkeys(name for name, _ in places):
            indexes = [index for name, index in places if name == topic]
            for index, offset in _at(cluster, args, topic, indexes, before).items():
                wanted[topic, index] = offset
    starts, ends = (_offsets(cluster, wanted, where) for where in (EARLIEST, LATEST))
    unknown = sorted(set(wanted) - set(ends))
    if unknown:
        raise ClientError(f"no such partition: {unknown[0][0]} {unknown[0][1]}")
    return {place: min(max(offset, starts[place]), ends[place]) for place, offset in wanted.items()}


def _own(cluster: Cluster, args: argparse.Namespace, before: Offsets) -> list[tuple[str, int]]:
    """What the group has committed and, unless offsets are shifted, what its members own."""
    places = set(before)
    if args.shift is None:
        try:
            members = _described(cluster, args.name).members
        except KafkaError as error:
            if error.error is not Error.GROUP_ID_NOT_FOUND:
                raise
            members = []
        for member in members:
            for topic, indexes in _assigned(member).items():
                places.update((topic, index) for index in indexes)
    return sorted(places)


def _at(
    cluster: Cluster, args: argparse.Namespace, topic: str, indexes: list[int], before: Offsets
) -> dict[int, int]:
    if args.shift is not None:
        missing = [index for index in indexes if (topic, index) not in before]
        if missing:
            raise ClientError(f"nothing is committed for {topic} {missing[0]} to shift from")
        return {index: before[topic, index] + args.shift for index in indexes}
    found = cluster.topic(topic)
    there = {partition.partition_index for partition in found.partitions}
    for index in indexes:
        if index not in there:
            raise ClientError(f"no such partition: {topic} {index}")
    return start_offsets(cluster, topic, indexes, args.to, "--to")


def _places(cluster: Cluster, wanted: list[str]) -> list[tuple[str, int]]:
    """TOPIC or TOPIC:0,3 as partitions."""
    places = []
    for text in wanted:
        name, colon, listed = text.partition(":")
        topic = cluster.topic(name)
        there = sorted(partition.partition_index for partition in topic.partitions)
        try:
            indexes = [int(index) for index in listed.split(",")] if colon else there
        except ValueError:
            raise ClientError(f"--topic {text}: not TOPIC or TOPIC:0,3") from None
        unknown = [index for index in indexes if index not in there]
        if unknown:
            raise ClientError(f"no such partition: {name} {unknown[0]}")
        places += [(name, index) for index in indexes]
    return places


def _from_file(path: Path) -> Offsets:
    """Lines of topic,partition,offset: what Kafka's tool exports."""
    try:
        with path.open(newline="") as lines:
            return {(row[0], int(row[1])): int(row[2]) for row in csv.reader(lines) if row}
    except OSError as error:
        raise ClientError(f"{path}: {error.strerror}") from None
    except (ValueError, IndexError, csv.Error):
        raise ClientError(f"{path}: not lines of topic,partition,offset") from None


def _move(cluster: Cluster, name: str, offsets: Offsets) -> int:
    """Fence all members, commit, and how many members that were. Raises KafkaError."""
    removed = 0
    for attempt in range(ATTEMPTS):
        removed = max(removed, _fence(cluster, name))
        refused = _commit(cluster, name, offsets)
        if refused is None:
            return removed
        if refused not in _BACK:
            raise problem(refused, name)
        time.sleep(0.02 * attempt)
    raise ClientError(
        f"members of {name} came back {ATTEMPTS} times before the offsets could be written:"
        " nothing has been changed"
    )


def _fence(cluster: Cluster, name: str) -> int:
    """Remove every member of the group, if it is there; how many."""
    try:
        members = _described(cluster, name).members
    except KafkaError as error:
        if error.error is Error.GROUP_ID_NOT_FOUND:
            return 0
        raise
    if members:
        leaving = LeaveGroupRequest(
            group_id=name,
            members=[
                MemberIdentity(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    reason="offsets are reset by an administrator",
                )
                for member in members
            ],
        )
        answer = cluster.call_coordinator(name, leaving, LeaveGroupResponse)
        raise_for(answer.error_code, name)
    return len(members)


def _commit(cluster: Cluster, name: str, offsets: Offsets) -> int | None:
    """Commit as a consumer without a group does; the error code, if it was refused."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (topic, index), offset in offsets.items():
        part = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(part)
    request = OffsetCommitRequest(group_id=name, topics=list(topics.values()))
    answer = cluster.call_coordinator(name, request, OffsetCommitResponse, at_most=BY_NAME)
    codes = {p.error_code for topic in answer.topics for p in topic.partitions}
    return max(codes) or None


def _delete(cluster: Cluster, args: argparse.Namespace) -> int:
    status = 0
    for name in _named(cluster, args.names):
        request = DeleteGroupsRequest(groups_names=[name])
        answer = cluster.call_coordinator(name, request, DeleteGroupsResponse)
        code = answer.results[0].error_code
        if code:
            status = fail(problem(code, name).message)
        elif args.json:
            print_json({"deleted": name})
        else:
            say(f"deleted {name}")
    return status
