"""AlterReplicaLogDirs: move partitions to another folder of the same broker (KIP-113)."""

from ottla.wire.schema import Message, array, int16, int32, message, string, struct


@struct
class AlterReplicaLogDirTopic:
    name: str = string()
    partitions: list[int] = array(int32)


@struct
class AlterReplicaLogDir:
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Message):
    """Which partitions each folder is to hold."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse(Message):
    """Which moves were begun."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
