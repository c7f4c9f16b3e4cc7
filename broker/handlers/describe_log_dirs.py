"""DescribeLogDirs v1-5: the data folder, its room, and the bytes of each partition in it.

v2 flexible; v3 a top-level error; v4 total and usable bytes (KIP-827); v5 whether it is cordoned,
which it never is. A broker without this API counts as offline in several user interfaces.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ottla.broker.context import Api, Broker, Context
from ottla.broker.metadata import Topic
from ottla.wire.api.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.wire.errors import KafkaError


def handle(ctx: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    broker = ctx.broker
    folder = broker.config.data_dir.absolute()
    room = os.statvfs(folder)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(folder),
                topics=[
                    _sizes(broker, topic, indexes) for topic, indexes in _wanted(broker, request)
                ],
                total_bytes=room.f_blocks * room.f_frsize,
                usable_bytes=room.f_bavail * room.f_frsize,
            )
        ]
    )


def _wanted(
    broker: Broker, request: DescribeLogDirsRequest
) -> Iterator[tuple[Topic, Iterable[int]]]:
    """Topics and their partitions; what does not exist is left out, as Kafka does."""
    if request.topics is None:
        for topic in broker.topics:
            yield topic, range(len(topic.partitions))
        return
    named: dict[str, set[int]] = {}
    for asked in request.topics:
        named.setdefault(asked.topic, set()).update(asked.partitions)
    for name, indexes in named.items():
        found = broker.topics.get(name)
        if found is not None:
            known = sorted(i for i in indexes if 0 <= i < len(found.partitions))
            if known:
                yield found, known


def _sizes(broker: Broker, topic: Topic, indexes: Iterable[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=broker.store.partition(topic.partitions[index]).size_bytes,
            )
            for index in indexes
        ],
    )


def on_error(request: DescribeLogDirsRequest, error: KafkaError) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=error.error)


API = Api(
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
    handle=handle,
    on_error=on_error,
)
