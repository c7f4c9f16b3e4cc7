"""OffsetCommit v2-10: where a group has got to, durable when answered.

v2-4 retention time of its own; v6 leader epoch; v7 static members (KIP-345); v8 flexible; v9
GROUP_ID_NOT_FOUND and member epochs (KIP-848); v10 topic ids.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ottla.broker.context import Api, Context
from ottla.broker.parts import handle_parts, is_long, parts
from ottla.broker.slices import Later
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(
    ctx: Context, request: OffsetCommitRequest
) -> Message | Context | Generator[Later | None, None, Message]:
    commit = ctx.broker.coordinator.commit_offsets
    if is_long(request.topics):
        return handle_parts(ctx, _parts(request), commit, _whole)
    return commit(ctx, request)


def _parts(request: OffsetCommitRequest) -> Iterator[OffsetCommitRequest]:
    def alike(
        topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition]
    ) -> OffsetCommitRequestTopic:
        return OffsetCommitRequestTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=partitions
        )

    for topics in parts(request.topics, alike):
        yield OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=topics,
        )


def _whole(answers: list[OffsetCommitResponse]) -> OffsetCommitResponse:
    topics: list[OffsetCommitResponseTopic] = []
    for answer in answers:
        for topic in answer.topics:
            last = topics[-1] if topics else None
            if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
                last.partitions += topic.partitions
            else:
                topics.append(topic)
    return OffsetCommitResponse(topics=topics)


def on_error(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=error.error
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    handle=handle,
    on_error=on_error,
    ahead=True,
)
