"""CreatePartitions: more partitions for a topic."""

from ottla.wire.schema import Message, array, boolean, int16, int32, message, string, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = array(int32)


@struct
class CreatePartitionsTopic:
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, null="0+"
    )


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Message):
    """Raise topics to these counts, or only check whether they could be."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@struct
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse(Message):
    """Whether each topic was changed."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
