"""OffsetForLeaderEpoch: where a leader epoch ended, so that a consumer finds out about truncation.

Versions 2 to 4; 0 and 1, without the client's own epoch, are gone from Kafka 4.

    3   replica_id: -2 for a consumer that debugs, -1 for others; all are answered alike
    4   flexible
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.context import Api, Broker, Context
from ottla.broker.dispatch import as_kafka_error
from ottla.broker.partitions import check_leader_epoch, find
from ottla.wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.wire.errors import KafkaError


def handle(
    ctx: Context, request: OffsetForLeaderEpochRequest
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            try:
                answer = _end(ctx.broker, topic.topic, asked)
            except Exception as error:
                code = as_kafka_error(ctx, error).error
                answer = EpochEndOffset(partition=asked.partition, error_code=code)
            answers.append(answer)
            yield
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def _end(broker: Broker, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = find(broker, name, asked.partition)
    check_leader_epoch(partition, asked.current_leader_epoch)
    epoch, end = broker.store.epoch_end(partition, asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)


def on_error(
    request: OffsetForLeaderEpochRequest, error: KafkaError
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=partition.partition, error_code=error.error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
    handle=handle,
    on_error=on_error,
)
