"""Metadata v0-13: which brokers there are, which topics, and who leads their partitions.

v1 null is all topics (v0: empty is), brokers have racks and there is a controller; v2 cluster id;
v4 the request says whether topics may be made; v5 offline replicas; v7 leader epochs; v8 authorized
operations; v9 flexible; v10 topic ids; v12 topics by id; v13 a top-level error.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.context import Api, Context, Encoded, Parked
from ottla.broker.ids import new_id
from ottla.broker.internal_topics import is_kept, plan
from ottla.broker.metadata import INTERNAL, NewTopic, Topic, check_name
from ottla.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.compile import encode
from ottla.wire.errors import Error, KafkaError
from ottla.wire.primitives import ZERO_UUID


def handle(ctx: Context, request: MetadataRequest) -> MetadataResponse | Encoded | Parked:
    if _wants_all(ctx, request):
        return _all_topics(ctx, request)
    wanted = request.topics or []
    _refuse_mixed(ctx, wanted)
    if any(topic.topic_id != ZERO_UUID for topic in wanted):
        return _response(ctx, request, [_by_id(ctx, request, topic.topic_id) for topic in wanted])
    names = list(dict.fromkeys(topic.name for topic in wanted if topic.name is not None))
    missing = _creatable(ctx, request, names)
    if not missing:
        return _response(ctx, request, [_by_name(ctx, request, name) for name in names])
    return _create_and_answer(ctx, request, names, missing)


def _wants_all(ctx: Context, request: MetadataRequest) -> bool:
    return request.topics is None or (ctx.header.api_version == 0 and not request.topics)


def _all_topics(ctx: Context, request: MetadataRequest) -> Encoded:
    """Kept as bytes until a topic changes: every client asks for it, again and again."""
    version = ctx.header.api_version
    key = (
        version,
        ctx.listener.name,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
    )
    answers = ctx.broker.topics.answers
    body = answers.get(key)
    if body is None:
        topics = [_described(ctx, request, topic) for topic in ctx.broker.topics]
        body = answers[key] = b"".join(encode(_response(ctx, request, topics), version))
    return Encoded(body)


def _refuse_mixed(ctx: Context, wanted: Iterable[MetadataRequestTopic]) -> None:
    """A topic is asked for by name before v12, by name or id from then on (KafkaApis)."""
    version = ctx.header.api_version
    for topic in wanted:
        if version < 12 and topic.topic_id != ZERO_UUID:
            raise KafkaError(Error.INVALID_REQUEST, f"no topics by id in version {version}")
        if topic.name is None and (version < 12 or topic.topic_id == ZERO_UUID):
            raise KafkaError(Error.INVALID_REQUEST, "a topic without name or id")


# ------------------------------------------------------------------------------------ auto-creation


def _creatable(ctx: Context, request: MetadataRequest, names: Iterable[str]) -> list[str]:
    """Names to make topics of: only where both the request and the broker allow it."""
    if not (request.allow_auto_topic_creation and ctx.broker.config.auto_create_topics_enable):
        return []
    return [
        name
        for name in names
        if ctx.broker.topics.get(name) is None and (is_kept(name) or name not in INTERNAL)
    ]


def _create_and_answer(
    ctx: Context, request: MetadataRequest, names: list[str], missing: Iterable[str]
) -> Parked:
    """Make what is missing and answer once it is there: a client told to try again would wait for
    its back-off first."""
    topics = ctx.broker.topics
    new = []
    for name in missing:
        try:
            topics.check_new_name(name)
        except KafkaError:
            continue  # being made already, or answered below with what is wrong about it
        new.append(
            plan(ctx.broker, name)
            if is_kept(name)
            else NewTopic(name, new_id(), ctx.broker.config.num_partitions, {})
        )
    ticket = topics.create(new) if new else topics.settled()
    return ctx.after(
        ticket,
        lambda _: _response(ctx, request, [_by_name(ctx, request, name) for name in names]),
    )


# ----------------------------------------------------------------------------------------- answers


def _by_name(ctx: Context, request: MetadataRequest, name: str) -> MetadataResponseTopic:
    topic = ctx.broker.topics.get(name)
    if topic is not None:
        return _described(ctx, request, topic)
    error = Error.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except KafkaError as refused:
        error = refused.error
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        is_internal=name in INTERNAL,
        topic_authorized_operations=_operations(request),
    )


def _by_id(ctx: Context, request: MetadataRequest, topic_id: bytes) -> MetadataResponseTopic:
    topic = ctx.broker.topics.by_id(topic_id)
    if topic is not None:
        return _described(ctx, request, topic)
    return MetadataResponseTopic(error_code=Error.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)


def _described(ctx: Context, request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    node = ctx.broker.node_id
    partition = ctx.broker.store.partition
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=node,
                leader_epoch=partition(number).leader_epoch,
                replica_nodes=[node],
                isr_nodes=[node],
            )
            for index, number in enumerate(topic.partitions)
        ],
        topic_authorized_operations=_operations(request),
    )


def _operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED


def _response(
    ctx: Context, request: MetadataRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    broker, listener = ctx.broker, ctx.listener
    asked = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id,
                host=listener.advertised_host,
                port=listener.advertised_port,
                rack=broker.config.broker_rack,
            )
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )


def on_error(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(
            error_code=error.error, name=topic.name or "", topic_id=topic.topic_id
        )
        for topic in request.topics or []
    ]
    return MetadataResponse(topics=topics, error_code=error.error)


API = Api(request=MetadataRequest, response=MetadataResponse, handle=handle, on_error=on_error)
