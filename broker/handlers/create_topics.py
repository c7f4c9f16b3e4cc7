"""CreateTopics v2-7: new topics, by counts or by a manual assignment, with settings of their own.

v4 -1 counts mean the broker's defaults; v5 flexible, and the answer has settings and counts; v6 may
be throttled; v7 the new topic's id. validate_only makes every check and no topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ottla.broker.config_describe import topic_entries
from ottla.broker.config_values import ConfigError
from ottla.broker.context import Api, Context, Parked
from ottla.broker.deadlines import check_timeout
from ottla.broker.ids import new_id
from ottla.broker.internal_topics import ensure, is_kept
from ottla.broker.metadata import NewTopic
from ottla.broker.placement import MAX_PARTITIONS_PER_REQUEST, check_counts, check_manual
from ottla.broker.topic_config import check_own
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.errors import Error, KafkaError


def handle(ctx: Context, request: CreateTopicsRequest) -> Parked:
    repeats = Counter(topic.name for topic in request.topics)
    plans: dict[str, NewTopic] = {}
    results: dict[str, CreatableTopicResult] = {}
    for topic in request.topics:
        try:
            check_timeout(request.timeout_ms)
            if repeats[topic.name] > 1:
                raise KafkaError(Error.INVALID_REQUEST, "the request names this topic twice")
            plan = plans[topic.name] = _plan(ctx, topic, plans)
            results[topic.name] = _made(ctx, plan)
        except KafkaError as error:
            results[topic.name] = _refused(topic.name, error)
    response = CreateTopicsResponse(topics=list(results.values()))
    topics = ctx.broker.topics
    if not request.validate_only:
        for name in filter(is_kept, repeats):
            ensure(ctx.broker, name)  # what is said to exist does, once this is answered
    make = bool(plans) and not request.validate_only
    return ctx.after(
        topics.create(list(plans.values())) if make else topics.settled(), lambda _: response
    )


def _plan(ctx: Context, topic: CreatableTopic, others: Mapping[str, NewTopic]) -> NewTopic:
    """What the topic will be. Raises KafkaError when it may not be."""
    if is_kept(topic.name):  # Kafka has made it long before anybody could
        raise KafkaError(
            Error.TOPIC_ALREADY_EXISTS, f"topic '{topic.name}' is the broker's own: it makes it"
        )
    ctx.broker.topics.check_new_name(topic.name)
    configs = _configs(ctx, topic)
    partitions = _partitions(ctx, topic)
    if partitions + sum(plan.partitions for plan in others.values()) > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            Error.POLICY_VIOLATION,
            f"one request makes at most {MAX_PARTITIONS_PER_REQUEST} partitions",
        )
    return NewTopic(topic.name, new_id(), partitions, configs)


def _partitions(ctx: Context, topic: CreatableTopic) -> int:
    if not topic.assignments:
        check_counts(topic.num_partitions, topic.replication_factor)
        if topic.num_partitions == -1:
            return ctx.broker.config.num_partitions
        return topic.num_partitions
    assignments = {item.partition_index: item.broker_ids for item in topic.assignments}
    if len(assignments) != len(topic.assignments):
        raise KafkaError(Error.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
    check_manual(ctx.broker.node_id, topic.num_partitions, topic.replication_factor, assignments)
    return len(assignments)


def _configs(ctx: Context, topic: CreatableTopic) -> dict[str, str]:
    own = {}
    for setting in topic.configs:
        if setting.value is None:
            raise KafkaError(Error.INVALID_CONFIG, f"{setting.name}: null is no value")
        own[setting.name] = setting.value
    try:
        return check_own(ctx.broker.config, own)
    except ConfigError as error:
        raise KafkaError(Error.INVALID_CONFIG, str(error)) from None


def _made(ctx: Context, plan: NewTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=plan.name,
        topic_id=plan.topic_id,
        error_message=None,
        num_partitions=plan.partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(
                name=entry.key.name,
                value=entry.value,
                config_source=entry.source,
                is_sensitive=entry.key.sensitive,
            )
            for entry in topic_entries(ctx.broker.config, plan.configs)
        ],
    )


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.error, error_message=error.message, configs=[]
    )


def on_error(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_refused(topic.name, error) for topic in request.topics])


API = Api(
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
    handle=handle,
    on_error=on_error,
)
