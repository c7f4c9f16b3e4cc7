"""TxnOffsetCommit, and what becomes of its offsets when the transaction ends.

Who may write into the transaction is not decided here: the transaction coordinator has done so.
Source: Kafka's OffsetMetadataManager.commitTransactionalOffset and replayEndTransactionMarker,
ClassicGroup.validateOffsetCommit.
"""

from collections.abc import Iterable

from ottla.group import pending_offsets
from ottla.group.members import ClassicGroup, PendingOffset
from ottla.group.outcome import OFFSETS, Call, Outcome
from ottla.group.registry import Registry
from ottla.group.rows import Offset, encode_offset, offset_key
from ottla.group.states import State
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.errors import Error, KafkaError


class Transactional:
    """Offsets of transactions, in the groups of one registry."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    # --------------------------------------------------------------------------- TxnOffsetCommit

    def commit(self, request: TxnOffsetCommitRequest, call: Call, now: int, out: Outcome) -> None:
        """Keep what can be kept until the transaction ends, judge the rest by partition."""
        response = TxnOffsetCommitResponse()
        accepted: list[
            tuple[int, TxnOffsetCommitRequestPartition, TxnOffsetCommitResponsePartition]
        ] = []
        for topic in request.topics:
            named = self.registry.catalog.by_name(topic.name)
            partition_ids = named[1] if named else ()
            answers = []
            for partition in topic.partitions:
                index = partition.partition_index
                answer = TxnOffsetCommitResponsePartition(partition_index=index)
                answers.append(answer)
                if 0 <= index < len(partition_ids):
                    accepted.append((partition_ids[index], partition, answer))
                else:
                    answer.error_code = Error.UNKNOWN_TOPIC_OR_PARTITION
            response.topics.append(
                TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers)
            )
        if accepted:
            try:
                group = self._committing(request, now)
            except KafkaError as refused:
                for _, _, answer in accepted:
                    answer.error_code = refused.error
            else:
                self._keep(group, request.producer_id, accepted, now, out)
        out.reply(call, response)

    def _committing(self, request: TxnOffsetCommitRequest, now: int) -> ClassicGroup:
        """The group, if the request may commit to it; it comes to be here.

        A commit without member is taken in any state: before KIP-447 (v3) producers knew nothing
        of members. Unlike OffsetCommit it is taken between JoinGroup and SyncGroup too, and renews
        no session: the producer says nothing about the consumer. Raises KafkaError as Kafka:
        ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        group = self.registry.groups.get(request.group_id)
        if group is None:
            if request.generation_id >= 0:
                raise KafkaError(Error.ILLEGAL_GENERATION)
            return self.registry.create(request.group_id, now)
        if request.generation_id < 0 and group.state is State.EMPTY:
            return group
        named = request.member_id or request.group_instance_id is not None
        if named or request.generation_id >= 0:
            group.check(request.member_id, request.group_instance_id)
            if request.generation_id != group.generation_id:
                raise KafkaError(Error.ILLEGAL_GENERATION)
        return group

    def _keep(
        self,
        group: ClassicGroup,
        producer_id: int,
        accepted: list[
            tuple[int, TxnOffsetCommitRequestPartition, TxnOffsetCommitResponsePartition]
        ],
        now: int,
        out: Outcome,
    ) -> None:
        if not group.number:
            self.registry.write(group, out)
        limit = self.registry.settings.offset_metadata_max_bytes
        commit_ms = self.registry.stamp(now)
        for partition_id, partition, answer in accepted:
            metadata = partition.committed_metadata or ""
            if len(metadata) > limit:
                answer.error_code = Error.OFFSET_METADATA_TOO_LARGE
                continue
            offset, leader_epoch = partition.committed_offset, partition.committed_leader_epoch
            row = encode_offset(Offset(offset, leader_epoch, commit_ms, -1, metadata))
            self.registry.last_order += 1
            kept = PendingOffset(self.registry.last_order, row)
            pending_offsets.put(group, producer_id, partition_id, kept, out)
        deadline = now + self.registry.settings.offsets_retention_ms
        self.registry.look_at_offsets(group, now, deadline)

    # ---------------------------------------------------------------------------------- the end

    def end(
        self, producer_id: int, group_ids: Iterable[str], committed: bool, now: int, out: Outcome
    ) -> None:
        """What the producer's transaction was going to commit is committed, or goes."""
        for group_id in group_ids:
            group = self.registry.groups.get(group_id)
            if group is None:
                continue
            for partition_id, kept in pending_offsets.take(group, producer_id, out).items():
                if committed and kept.row:
                    key = offset_key(group.number, partition_id)
                    out.records.append((OFFSETS, key, kept.row))
                    pending_offsets.overrule(group, partition_id, kept.order, out)
            # Nothing expired while it was pending, and an empty group stayed for it.
            self.registry.look_at_offsets(group, now)
