"""DescribeLogDirs v1-5: the data folder, its room, and the bytes of each partition in it.

v2 flexible; v3 a top-level error; v4 total and usable bytes (KIP-827); v5 whether it is cordoned,
which it never is. A broker without this API counts as offline in several user interfaces.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Broker, Context, Parked
from ottla.broker.metadata import Topic
from ottla.broker.partitions import view
from ottla.broker.slices import answer_in_slices
from ottla.wire.api.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.wire.errors import KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message


def handle(ctx: Context, request: DescribeLogDirsRequest) -> Message | Parked:
    version = ctx.header.api_version
    results = Rows(DescribeLogDirsResponse, "results", version)
    topics = results.inner("topics")

    def finish() -> Encoded:
        folder = ctx.broker.config.data_dir.absolute()
        room = os.statvfs(folder)
        result = DescribeLogDirsResult(
            log_dir=str(folder),
            total_bytes=room.f_blocks * room.f_frsize,
            usable_bytes=room.f_bavail * room.f_frsize,
        )
        results.add_with(result, topics)
        return Encoded(results.within(DescribeLogDirsResponse()))

    return answer_in_slices(ctx, _look(ctx.broker, request, topics), finish)


def _look(broker: Broker, request: DescribeLogDirsRequest, into: Rows) -> Iterator[None]:
    """Steps. What does not exist is left out, and what is named again is answered once, as in
    Kafka."""
    if request.topics is None:
        for topic in broker.topics:
            yield from _describe(broker, topic, range(len(topic.partitions)), into)
        return
    wanted: dict[str, set[int]] = {}
    for asked in request.topics:
        found = broker.topics.get(asked.topic)
        count = len(found.partitions) if found is not None else 0
        mine = wanted.setdefault(asked.topic, set()) if found is not None else set()
        for index in asked.partitions:
            if 0 <= index < count:
                mine.add(index)
            yield
        yield
    for name, indexes in wanted.items():
        found = broker.topics.get(name)
        if found is not None and indexes:
            yield from _describe(broker, found, sorted(indexes), into)


def _describe(broker: Broker, topic: Topic, indexes: Iterable[int], into: Rows) -> Iterator[None]:
    views = ((index, view(broker, topic.partitions[index])) for index in indexes)
    sizes = (
        DescribeLogDirsPartition(partition_index=index, partition_size=partition.size_bytes)
        for index, partition in views
        if partition is not None
    )
    return into.add_of(DescribeLogDirsTopic(name=topic.name), "partitions", sizes)


def on_error(request: DescribeLogDirsRequest, error: KafkaError) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=error.error)


API = Api(
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
    handle=handle,
    on_error=on_error,
)
