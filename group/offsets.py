"""Committed offsets: commit, fetch, delete.

Offsets live in rows only, not in memory: a million of them cost nothing at start. Source: Kafka's
OffsetMetadataManager and ClassicGroup.validateOffsetCommit; the checks of topics that come before
are KafkaApis'.
"""

from collections.abc import Iterator, Sequence, Set
from typing import TypeVar

from ottla.group import pending_offsets
from ottla.group.members import CONSUMER, ClassicGroup
from ottla.group.outcome import OFFSETS, Call, Outcome
from ottla.group.registry import Registry
from ottla.group.rows import (
    Offset,
    decode_offset,
    encode_offset,
    group_key,
    offset_key,
    offset_partition,
)
from ottla.group.states import TABLE, State
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.errors import Error, KafkaError

COMMIT_BY_ID_FROM = 10
FETCH_BY_ID_FROM = 10
"""OffsetCommit and OffsetFetch versions that name topics by id (KIP-848)."""
FETCH_GROUPS_FROM = 8
"""OffsetFetch version that asks for many groups at once (KIP-709)."""
NO_GROUP_FROM = 9
"""OffsetCommit version since which a group that does not exist has an error of its own."""

NOTHING = Offset(-1, -1, -1, -1, "")
"""What a partition without a committed offset is answered: no error."""
UNSTABLE = Offset(-1, -1, -1, -1, "")
"""Stands for an offset that an open transaction may still move: UNSTABLE_OFFSET_COMMIT."""

_NEVER = (1 << 63) - 1
"""The latest time that a row can say; a client may ask for the longest retention there is."""

P = TypeVar("P", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


class Offsets:
    """Offsets of the groups of one registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.rows = registry.rows
        self.catalog = registry.catalog
        self.settings = registry.settings

    # --------------------------------------------------------------------------------- OffsetCommit

    def commit(
        self, request: OffsetCommitRequest, version: int, now: int, out: Outcome
    ) -> OffsetCommitResponse:
        """Store what can be stored, judge the rest partition by partition."""
        topics = []
        accepted: list[tuple[int, OffsetCommitRequestPartition, OffsetCommitResponsePartition]] = []
        for topic in request.topics:
            partition_ids, error = self._partitions(topic, version)
            answers = []
            for partition in topic.partitions:
                index = partition.partition_index
                answer = OffsetCommitResponsePartition(partition_index=index, error_code=error)
                answers.append(answer)
                if not error:
                    if 0 <= index < len(partition_ids):
                        accepted.append((partition_ids[index], partition, answer))
                    else:
                        answer.error_code = Error.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(
                OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=answers
                )
            )
        if accepted:
            try:
                group = self._committing(request, version, now)
            except KafkaError as refused:
                for _, _, answer in accepted:
                    answer.error_code = refused.error
            else:
                self._store(group, request, accepted, now, out)
        return OffsetCommitResponse(topics=topics)

    def _partitions(
        self, topic: OffsetCommitRequestTopic, version: int
    ) -> tuple[Sequence[int], Error]:
        if version >= COMMIT_BY_ID_FROM:
            found = self.catalog.by_id(topic.topic_id)
            return (found[1], Error.NONE) if found else ((), Error.UNKNOWN_TOPIC_ID)
        named = self.catalog.by_name(topic.name)
        return (named[1], Error.NONE) if named else ((), Error.UNKNOWN_TOPIC_OR_PARTITION)

    def _committing(self, request: OffsetCommitRequest, version: int, now: int) -> ClassicGroup:
        """The group, if the request may commit to it; a standalone consumer's comes to be here.

        Raises KafkaError as Kafka: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID,
        REBALANCE_IN_PROGRESS, GROUP_ID_NOT_FOUND.
        """
        group = self.registry.groups.get(request.group_id)
        generation_id = request.generation_id_or_member_epoch
        if group is None:
            if generation_id < 0:
                return self.registry.create(request.group_id, now)
            raise KafkaError(
                Error.GROUP_ID_NOT_FOUND if version >= NO_GROUP_FROM else Error.ILLEGAL_GENERATION
            )
        if generation_id < 0 and group.state is State.EMPTY:
            return group
        if generation_id < 0 and not request.member_id and request.group_instance_id is None:
            raise KafkaError(Error.UNKNOWN_MEMBER_ID)  # a standalone consumer in a group in use
        member = group.check(request.member_id, request.group_instance_id)
        if generation_id != group.generation_id:
            raise KafkaError(Error.ILLEGAL_GENERATION)
        error = TABLE[group.state].commit
        if error:
            raise KafkaError(error)
        self.registry.renew(group, member, now)
        return group

    def _store(
        self,
        group: ClassicGroup,
        request: OffsetCommitRequest,
        accepted: list[tuple[int, OffsetCommitRequestPartition, OffsetCommitResponsePartition]],
        now: int,
        out: Outcome,
    ) -> None:
        if not group.number:
            self.registry.write(group, out)
        retention = request.retention_time_ms
        commit_ms = self.registry.stamp(now)
        expire_ms = min(commit_ms + retention, _NEVER) if retention >= 0 else -1
        limit = self.settings.offset_metadata_max_bytes
        for partition_id, partition, answer in accepted:
            metadata = partition.committed_metadata or ""
            if len(metadata) > limit:
                answer.error_code = Error.OFFSET_METADATA_TOO_LARGE
                continue
            row = (
                partition.committed_offset,
                partition.committed_leader_epoch,
                commit_ms,
                expire_ms,
                metadata,
            )
            key = offset_key(group.number, partition_id)
            out.records.append((OFFSETS, key, encode_offset(row)))
            if group.transactions:
                pending_offsets.overrule(group, partition_id, self.registry.last_order + 1, out)
        deadline = now + self.settings.offsets_retention_ms if expire_ms < 0 else expire_ms
        self.registry.look_at_offsets(group, now, deadline)

    # ---------------------------------------------------------------------------------- OffsetFetch

    def fetch(self, request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
        """What is committed of a few named partitions; long_reads.py has the rest. The caller has
        waited for what was admitted before this request, so `require_stable` only asks for
        partitions that have an open transaction to be named."""
        stable, version = request.require_stable, call.version
        if version < FETCH_GROUPS_FROM:
            unstable = self.unstable(request.group_id, stable)
            return OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        name=topic.name,
                        partitions=[
                            told(index, offset)
                            for index, offset, _ in self.each(
                                request.group_id, topic, version, unstable
                            )
                        ],
                    )
                    for topic in request.topics or ()
                ]
            )
        groups = []
        for group in request.groups:
            unstable = self.unstable(group.group_id, stable)
            topics = [
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        told_in_group(*found)
                        for found in self.each(group.group_id, topic, version, unstable)
                    ],
                )
                for topic in group.topics or ()
            ]
            groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))
        return OffsetFetchResponse(groups=groups)

    def each(
        self,
        group_id: str,
        topic: OffsetFetchRequestTopic | OffsetFetchRequestTopics,
        version: int,
        unstable: Set[int],
        seen: set[int] | None = None,
    ) -> Iterator[tuple[int, Offset, Error]]:
        """Index, offset and error of each partition of a topic that is named.

        `unstable`: what the method of this name gives. `seen`: ids of partitions to pass over; the
        others are added to it.
        """
        number = self._number(group_id)
        error = Error.NONE
        if isinstance(topic, OffsetFetchRequestTopics) and version >= FETCH_BY_ID_FROM:
            by_id = self.catalog.by_id(topic.topic_id)
            error = Error.NONE if by_id else Error.UNKNOWN_TOPIC_ID
            partition_ids: Sequence[int] = by_id[1] if by_id else ()
        else:
            by_name = self.catalog.by_name(topic.name)
            partition_ids = by_name[1] if by_name else ()
        for index in topic.partition_indexes:
            if not 0 <= index < len(partition_ids):
                yield index, NOTHING, error
                continue
            partition_id = partition_ids[index]
            if seen is not None:
                if partition_id in seen:
                    continue
                seen.add(partition_id)
            if partition_id in unstable:
                yield index, UNSTABLE, error
                continue
            value = self.rows.get(OFFSETS, offset_key(number, partition_id))
            yield index, NOTHING if value is None else decode_offset(value), error

    def _number(self, group_id: str) -> int:
        """0 for a group that does not exist or has nothing committed: no key starts with it."""
        group = self.registry.groups.get(group_id)
        return group.number if group is not None else 0

    def unstable(self, group_id: str, require_stable: bool) -> Set[int]:
        """Ids of the partitions that open transactions may still move, if that matters (KIP-447).

        An end that is admitted and not committed has not moved anything yet for this reader, and
        must not look as if it had: a consumer would start from the old offset and do again what
        the transaction has done.
        """
        group = self.registry.groups.get(group_id)
        if not require_stable or group is None:
            return frozenset()
        unstable = pending_offsets.partitions(group)
        if not self.rows.settled(group_id):
            unstable |= pending_offsets.committed_partitions(group, self.rows)
        return unstable

    def page(
        self, group_id: str, require_stable: bool, after: bytes, limit: int
    ) -> tuple[list[tuple[str, bytes, int, Offset]], bytes | None]:
        """About `limit` committed offsets of a group behind `after`: topic name, topic id, index,
        offset; and what to go on after, None at the end."""
        number = self._number(group_id)
        if not number:
            return [], None
        unstable = self.unstable(group_id, require_stable)
        rows, last = self.rows.page(OFFSETS, group_key(number), after, limit)
        found = []
        for key, value in rows:
            partition_id = offset_partition(key)
            place = self.catalog.place(partition_id)
            if place is not None:
                offset = UNSTABLE if partition_id in unstable else decode_offset(value)
                found.append((place.topic, place.topic_id, place.index, offset))
        return found, last

    # --------------------------------------------------------------------------------- OffsetDelete

    def delete(self, request: OffsetDeleteRequest, call: Call, out: Outcome) -> None:
        """Forget offsets of topics that the group does not use (KIP-496)."""
        try:
            group = self._deleting(request.group_id)
        except KafkaError as refused:
            out.reply(call, OffsetDeleteResponse(error_code=refused.error))
            return
        topics = []
        for topic in request.topics:
            named = self.catalog.by_name(topic.name)
            partition_ids = named[1] if named else ()
            in_use = group.subscribes(topic.name)
            partitions = []
            for partition in topic.partitions:
                index = partition.partition_index
                answer = OffsetDeleteResponsePartition(partition_index=index)
                partitions.append(answer)
                if not 0 <= index < len(partition_ids):
                    answer.error_code = Error.UNKNOWN_TOPIC_OR_PARTITION
                elif in_use:
                    answer.error_code = Error.GROUP_SUBSCRIBED_TO_TOPIC
                elif group.number:
                    # Written even where nothing is committed yet: a commit may be on its way.
                    key = offset_key(group.number, partition_ids[index])
                    out.records.append((OFFSETS, key, None))
                    pending_offsets.drop(group, (partition_ids[index],), out)
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        out.reply(call, OffsetDeleteResponse(topics=topics))

    def _deleting(self, group_id: str) -> ClassicGroup:
        """Raises KafkaError INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        if not group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        group = self.registry.groups.get(group_id)
        if group is None:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND)
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            raise KafkaError(Error.NON_EMPTY_GROUP)
        return group


def told(index: int, offset: Offset) -> OffsetFetchResponsePartition:
    """A partition's offset before v8."""
    return _answer(OffsetFetchResponsePartition(), index, offset)


def told_in_group(
    index: int, offset: Offset, error: Error = Error.NONE
) -> OffsetFetchResponsePartitions:
    """A partition's offset from v8 on."""
    answer = _answer(OffsetFetchResponsePartitions(), index, offset)
    if error:
        answer.error_code = error
    return answer


def _answer(answer: P, index: int, offset: Offset) -> P:
    answer.partition_index = index
    answer.committed_offset = offset.offset
    answer.committed_leader_epoch = offset.leader_epoch
    answer.metadata = offset.metadata
    if offset is UNSTABLE:
        answer.error_code = Error.UNSTABLE_OFFSET_COMMIT
    return answer
