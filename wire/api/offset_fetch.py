"""OffsetFetch: the offsets groups have committed."""

from ottla.wire.schema import (
    Message,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)


@struct
class OffsetFetchRequestTopic:
    name: str = string("1-7")
    partition_indexes: list[int] = array(int32, "1-7")


@struct
class OffsetFetchRequestTopics:
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(int32, "8+")


@struct
class OffsetFetchRequestGroup:
    group_id: str = string("8+")
    member_id: str | None = string("9+", null="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", null="8+")


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest(Message):
    """Committed offsets of one group, from v8 of several; topics null means all."""

    group_id: str = string("1-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "1-7", null="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


@struct
class OffsetFetchResponsePartition:
    partition_index: int = int32("1-7")
    committed_offset: int = int64("1-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("1-7", null="1-7")
    error_code: int = int16("1-7")


@struct
class OffsetFetchResponseTopic:
    name: str = string("1-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "1-7")


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", null="8+")
    error_code: int = int16("8+")


@struct
class OffsetFetchResponseTopics:
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


@struct
class OffsetFetchResponseGroup:
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse(Message):
    """The committed offsets; -1 where there is none."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "1-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
