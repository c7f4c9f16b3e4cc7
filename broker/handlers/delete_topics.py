"""DeleteTopics v1-6: topics by name, from v6 by name or id. v4 flexible; v5 messages; v6 ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context, Parked
from ottla.broker.deadlines import check_timeout
from ottla.broker.metadata import Topic
from ottla.broker.slices import answer_in_slices, reply_in_slices_after
from ottla.wire.api.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.primitives import ZERO_UUID
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

_TWICE = KafkaError(Error.INVALID_REQUEST, "the request names this topic twice")


def handle(ctx: Context, request: DeleteTopicsRequest) -> Message | Parked:
    if not ctx.broker.config.delete_topic_enable:
        before = ctx.header.api_version < 3
        error = Error.INVALID_REQUEST if before else Error.TOPIC_DELETION_DISABLED
        raise KafkaError(error, "delete.topic.enable is false")
    results: list[DeletableTopicResult] = []
    prepared = ctx.broker.topics.prepare()
    rows = Rows(DeleteTopicsResponse, "responses", ctx.header.api_version)

    def prepare() -> Iterator[None]:
        nonlocal prepared
        repeats: dict[tuple[str | None, bytes], int] = {}
        for state in _states(request):
            named = state.name, state.topic_id
            repeats[named] = repeats.get(named, 0) + 1
            yield
        while True:
            prepared = ctx.broker.topics.prepare()
            results.clear()
            doomed: dict[bytes, DeletableTopicResult] = {}
            found: list[Topic] = []
            for (name, topic_id), times in repeats.items():
                result = DeletableTopicResult(name=name, topic_id=topic_id)
                results.append(result)
                try:
                    if times > 1:
                        raise _TWICE
                    check_timeout(request.timeout_ms)
                    topic = _find(ctx, name, topic_id)
                    result.name, result.topic_id = topic.name, topic.topic_id
                    if doomed.setdefault(topic.topic_id, result) is not result:
                        raise _TWICE
                    found.append(topic)
                except KafkaError as error:
                    result.error_code, result.error_message = error.error, error.message
                yield
            for topic in found:
                yield from prepared.delete(topic)
            if prepared.stands():
                return

    def tell() -> Iterator[None]:
        for result in results:
            rows.add(result)
            yield

    def finish() -> Parked:
        topics = ctx.broker.topics
        ticket = topics.admit(prepared) if prepared.gone else topics.settled()
        return reply_in_slices_after(
            ticket, ctx, tell(), lambda: Encoded(rows.within(DeleteTopicsResponse()))
        )

    return answer_in_slices(ctx, prepare(), finish)


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
