"""AlterReplicaLogDirs v1-2: there is one folder, so a partition is where it can be, or is asked to
go where there is none. v2 flexible. A partition named twice counts once, as it was named last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context
from ottla.broker.slices import answer_in_slices
from ottla.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

#: Of a name and an index: Kafka puts `name-index.` and 39 characters in front of a file system that
#: takes 255 (ReplicaManager.alterReplicaLogDirs).
_LONGEST: Final = 255 - 39 - 2


def handle(ctx: Context, request: AlterReplicaLogDirsRequest) -> Message | Context:
    folder = str(ctx.broker.config.data_dir.absolute())
    wanted: dict[str, dict[int, bool]] = {}  # by topic and index: is it asked to our folder
    results = Rows(AlterReplicaLogDirsResponse, "results", ctx.header.api_version)

    def judge() -> Iterator[None]:
        for asked in request.dirs:
            here = asked.path == folder
            for topic in asked.topics:
                for index in topic.partitions:
                    wanted.setdefault(topic.name, {})[index] = here
                    yield
                yield
            yield
        for name, indexes in wanted.items():
            found = ctx.broker.topics.get(name)
            count = 0 if found is None else len(found.partitions)
            partitions = results.inner("partitions")
            for index, here in indexes.items():
                if len(name) + len(str(index)) > _LONGEST:
                    error = Error.INVALID_TOPIC_EXCEPTION
                elif not here:
                    error = Error.LOG_DIR_NOT_FOUND
                elif not 0 <= index < count:
                    error = Error.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    error = Error.NONE
                partitions.add(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                )
                yield
            results.add_with(AlterReplicaLogDirTopicResult(topic_name=name), partitions)
            yield

    def finish() -> Encoded:
        return Encoded(results.within(AlterReplicaLogDirsResponse()))

    return answer_in_slices(ctx, judge(), finish)


def on_error(request: AlterReplicaLogDirsRequest, error: KafkaError) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.error)
                    for index in topic.partitions
                ],
            )
            for asked in request.dirs
            for topic in asked.topics
        ]
    )


API = Api(
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
    handle=handle,
    on_error=on_error,
)
