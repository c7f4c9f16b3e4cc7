"""DeleteTopics: topics and all that is in them go."""

from ottla.wire.schema import Message, array, int16, int32, message, string, struct, uuid


@struct
class DeleteTopicState:
    name: str | None = string("6+", null="6+", default=None)
    topic_id: bytes = uuid("6+")


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Message):
    """Delete these topics, by name, from v6 by name or id."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "1-5", ignorable=True)
    timeout_ms: int = int32()


@struct
class DeletableTopicResult:
    name: str | None = string(null="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", null="5+", default=None, ignorable=True)


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse(Message):
    """Whether each topic was deleted."""

    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
