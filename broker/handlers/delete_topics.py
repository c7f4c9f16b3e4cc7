"""DeleteTopics v1-6: topics by name, from v6 by name or id. v4 flexible; v5 messages; v6 ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ottla.broker.context import Api, Context, Parked
from ottla.broker.deadlines import check_timeout
from ottla.broker.metadata import Topic
from ottla.wire.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.primitives import ZERO_UUID


def handle(ctx: Context, request: DeleteTopicsRequest) -> Parked:
    if not ctx.broker.config.delete_topic_enable:
        before = ctx.header.api_version < 3
        error = Error.INVALID_REQUEST if before else Error.TOPIC_DELETION_DISABLED
        raise KafkaError(error, "delete.topic.enable is false")
    repeats = Counter((state.name, state.topic_id) for state in _states(request))
    doomed: dict[bytes, DeletableTopicResult] = {}
    results = []
    for name, topic_id in repeats:
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        results.append(result)
        try:
            if repeats[name, topic_id] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "the request names this topic twice")
            check_timeout(request.timeout_ms)
            topic = _find(ctx, name, topic_id)
            result.name, result.topic_id = topic.name, topic.topic_id
            other = doomed.setdefault(topic.topic_id, result)
            if other is not result:
                raise KafkaError(Error.INVALID_REQUEST, "the request names this topic twice")
        except KafkaError as error:
            result.error_code, result.error_message = error.error, error.message
    topics = ctx.broker.topics
    names = [result.name for result in doomed.values() if result.name is not None]
    ticket = topics.delete(names) if names else topics.settled()
    return ctx.after(ticket, lambda _: DeleteTopicsResponse(responses=results))


def _states(request: DeleteTopicsRequest) -> Iterable[DeleteTopicState]:
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


def _find(ctx: Context, name: str | None, topic_id: bytes) -> Topic:
    topics = ctx.broker.topics
    if name is not None:
        if topic_id != ZERO_UUID:
            raise KafkaError(Error.INVALID_REQUEST, "a topic is named by name or by id, not both")
        topic = topics.admitted(name)
        if topic is None:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        return topic
    if topic_id == ZERO_UUID:
        raise KafkaError(Error.INVALID_REQUEST, "a topic without name or id")
    visible = topics.by_id(topic_id)
    topic = topics.admitted(visible.name) if visible else None
    if topic is None or topic.topic_id != topic_id:
        raise KafkaError(Error.UNKNOWN_TOPIC_ID)
    return topic


def on_error(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=state.name,
                topic_id=state.topic_id,
                error_code=error.error,
                error_message=error.message,
            )
            for state in _states(request)
        ]
    )


API = Api(
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    handle=handle,
    on_error=on_error,
)
