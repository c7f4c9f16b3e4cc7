"""AlterPartitionReassignments: move partitions to other brokers, or stop a move (KIP-455)."""

from ottla.wire.schema import Message, array, boolean, int16, int32, message, string, struct


@struct
class ReassignablePartition:
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, null="0+", default=None)


@struct
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Message):
    """The replicas each partition is to have; null stops the move that is under way."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@struct
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")


@struct
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse(Message):
    """Which moves were begun or stopped."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
