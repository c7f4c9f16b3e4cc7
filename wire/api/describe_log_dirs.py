"""DescribeLogDirs: disk space by folder and partition."""

from ottla.wire.schema import Message, array, boolean, int16, int32, int64, message, string, struct


@struct
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest(Message):
    """The sizes of these partitions; null means all."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, null="1+")


@struct
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@struct
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@struct
class DescribeLogDirsResult:
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


@message(key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse(Message):
    """Each log folder, its room, and the bytes of the partitions in it."""

    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
