"""OffsetFetch v1-10: where groups have got to, everything admitted before included.

v2 null asks for all topics; v5 leader epoch; v6 flexible; v7 require_stable; v8 many groups
(KIP-709); v9 member epochs (KIP-848); v10 topic ids.
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message


def handle(ctx: Context, request: OffsetFetchRequest) -> Message | Context:
    return ctx.broker.coordinator.handle(ctx, request)


def on_error(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    if request.groups:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.error)
                for group in request.groups
            ]
        )
    # Before v2 there is no place for it but the partitions.
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=-1,
                    metadata="",
                    error_code=error.error,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or []
    ]
    return OffsetFetchResponse(error_code=error.error, topics=topics)


API = Api(
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    handle=handle,
    on_error=on_error,
)
