"""DescribeQuorum: who leads and who votes in the metadata quorum (KIP-595, KIP-836, KIP-853)."""

from ottla.wire.schema import (
    Message,
    array,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uint16,
    uuid,
)


@struct
class RequestPartitionData:
    partition_index: int = int32()


@struct
class RequestTopicData:
    topic_name: str = string()
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Message):
    """The quorum's log, named as a topic and a partition."""

    topics: list[RequestTopicData] = array(RequestTopicData)


@struct
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


@struct
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", null="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@struct
class TopicData:
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@struct
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class Node:
    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse(Message):
    """Leader, epoch and how far each replica is; v2 has the nodes' addresses."""

    error_code: int = int16()
    error_message: str | None = string("2+", null="2+", ignorable=True)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")
