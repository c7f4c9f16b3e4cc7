"""ElectLeaders: make the preferred replica, or any that is left, lead (KIP-183, KIP-460)."""

from ottla.wire.schema import Message, array, int8, int16, int32, message, string, struct


@struct
class TopicPartitions:
    topic: str = string()
    partitions: list[int] = array(int32)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Message):
    """Elections in these partitions; null means all."""

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, null="0+")
    timeout_ms: int = int32(default=60000)


@struct
class PartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")


@struct
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse(Message):
    """How each election went."""

    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
