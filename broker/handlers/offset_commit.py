"""OffsetCommit v2-10: where a group has got to, durable when answered.

v2-4 retention time of its own; v6 leader epoch; v7 static members (KIP-345); v8 flexible; v9
GROUP_ID_NOT_FOUND and member epochs (KIP-848); v10 topic ids.
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(ctx: Context, request: OffsetCommitRequest) -> Message | Context:
    return ctx.broker.coordinator.commit_offsets(ctx, request)


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
