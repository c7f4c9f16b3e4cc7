"""TxnOffsetCommit: offsets that a transaction moves when it is committed. Versions 0 to 5.

2   leader epochs; clients of before must not be told COORDINATOR_LOAD_IN_PROGRESS
3   flexible; the member and generation that read up to them (KIP-447)
4   TRANSACTION_ABORTABLE may be answered: the group was not added to the transaction
5   adds the group by itself, in the commit that holds the offsets (KIP-890)
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ottla.broker.context import Api, Context
from ottla.broker.parts import handle_parts, is_long, parts
from ottla.broker.slices import Later
from ottla.broker.transaction_states import Producer
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.schema import Message


def handle(
    ctx: Context, request: TxnOffsetCommitRequest
) -> Message | Context | Generator[Later | None, None, Message]:
    if is_long(request.topics):
        return handle_parts(ctx, _parts(request), _commit, _whole)
    return _commit(ctx, request)


def _parts(request: TxnOffsetCommitRequest) -> Iterator[TxnOffsetCommitRequest]:
    def alike(
        topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition]
    ) -> TxnOffsetCommitRequestTopic:
        return TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions)

    for topics in parts(request.topics, alike):
        yield TxnOffsetCommitRequest(
            transactional_id=request.transactional_id,
            group_id=request.group_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            topics=topics,
        )


def _whole(answers: list[TxnOffsetCommitResponse]) -> TxnOffsetCommitResponse:
    topics: list[TxnOffsetCommitResponseTopic] = []
    for answer in answers:
        for topic in answer.topics:
            if topics and topics[-1].name == topic.name:
                topics[-1].partitions += topic.partitions
            else:
                topics.append(topic)
    return TxnOffsetCommitResponse(topics=topics)


def _commit(ctx: Context, request: TxnOffsetCommitRequest) -> Message | Context:
    broker = ctx.broker
    if not _any_exists(ctx, request):
        return on_error(request, KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION))
    if not request.group_id:
        raise KafkaError(Error.INVALID_GROUP_ID)
    broker.transactions.commit_offsets(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        request.group_id,
        ctx.header.api_version,
    )
    return broker.coordinator.handle(ctx, request)


def _any_exists(ctx: Context, request: TxnOffsetCommitRequest) -> bool:
    """Partitions that do not exist begin no transaction and add no group."""
    for topic in request.topics:
        found = ctx.broker.topics.get(topic.name)
        if found is not None:
            count = len(found.partitions)
            if any(0 <= partition.partition_index < count for partition in topic.partitions):
                return True
    return False


def on_error(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error.error
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
    handle=handle,
    on_error=on_error,
)
