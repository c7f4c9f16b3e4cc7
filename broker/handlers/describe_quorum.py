"""DescribeQuorum v0-2: the metadata quorum, which is this node alone. v1 times of the replicas
(KIP-836); v2 messages and the nodes' addresses (KIP-853).

The log of topics and settings is the commit log, so its end is the number of the last commit. It
has had one leader in all its life, hence one epoch. As in Kafka a request that names anything but
that one log is answered UNKNOWN_TOPIC_OR_PARTITION for all it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context
from ottla.broker.metadata import RESERVED
from ottla.broker.slices import answer_in_slices
from ottla.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

EPOCH: Final = 1
_NODES_SINCE: Final = 2


def handle(ctx: Context, request: DescribeQuorumRequest) -> Message | Context:
    asked = [(topic.topic_name, len(topic.partitions)) for topic in request.topics[:2]]
    if asked == [(RESERVED, 1)] and request.topics[0].partitions[0].partition_index == 0:
        return _quorum(ctx)
    return _unknown(ctx, request)


def _quorum(ctx: Context) -> DescribeQuorumResponse:
    node, end, listener = ctx.broker.node_id, ctx.broker.store.committed, ctx.listener
    voter = ReplicaState(
        replica_id=node,
        log_end_offset=end,
        last_fetch_timestamp=ctx.now_ms,
        last_caught_up_timestamp=ctx.now_ms,
    )
    partition = PartitionData(
        leader_id=node, leader_epoch=EPOCH, high_watermark=end, current_voters=[voter]
    )
    address = Listener(
        name=listener.name, host=listener.advertised_host, port=listener.advertised_port
    )
    nodes = [Node(node_id=node, listeners=[address])]
    return DescribeQuorumResponse(
        topics=[TopicData(topic_name=RESERVED, partitions=[partition])],
        nodes=nodes if ctx.header.api_version >= _NODES_SINCE else [],
    )


def _unknown(ctx: Context, request: DescribeQuorumRequest) -> Message | Context:
    topics = Rows(DescribeQuorumResponse, "topics", ctx.header.api_version)

    def refuse() -> Iterator[None]:
        for topic in request.topics:
            partitions = topics.inner("partitions")
            for asked in topic.partitions:
                partitions.add(
                    PartitionData(
                        partition_index=asked.partition_index,
                        error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                )
                yield
            topics.add_with(TopicData(topic_name=topic.topic_name), partitions)
            yield

    def finish() -> Encoded:
        return Encoded(topics.within(DescribeQuorumResponse()))

    return answer_in_slices(ctx, refuse(), finish)


def on_error(request: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.error, error_message=error.message)


API = Api(
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
    handle=handle,
    on_error=on_error,
)
