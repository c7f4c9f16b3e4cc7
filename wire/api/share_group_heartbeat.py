"""ShareGroupHeartbeat: membership of a share group (KIP-932)."""

from ottla.wire.schema import Message, array, int16, int32, message, nested, string, struct, uuid


@struct
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32)


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatRequest(Message):
    """Join (epoch 0), stay in, change or leave (-1) a group; null is as before."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(null="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, null="0+", default=None)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(key=76, versions="1", flexible="0+")
class ShareGroupHeartbeatResponse(Message):
    """The member's epoch, and its partitions where they changed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    member_id: str | None = string(null="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, null="0+")
