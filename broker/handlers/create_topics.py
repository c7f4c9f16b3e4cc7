"""CreateTopics v2-7: new topics, by counts or by a manual assignment, with settings of their own.

v4 -1 counts mean the broker's defaults; v5 flexible, and the answer has settings and counts; v6 may
be throttled; v7 the new topic's id. validate_only makes every check and no topic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ottla.broker.answers import Encoded
from ottla.broker.config_describe import topic_entries
from ottla.broker.config_values import ConfigError
from ottla.broker.context import Api, Context, Parked
from ottla.broker.deadlines import check_timeout
from ottla.broker.ids import new_id
from ottla.broker.metadata import NewTopic
from ottla.broker.placement import MAX_PARTITIONS_PER_REQUEST, check_counts, check_manual
from ottla.broker.slices import answer_in_slices, reply_in_slices_after
from ottla.broker.topic_config import check_own
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

_SETTINGS_FROM: Final = 5
"""The version that tells a new topic's settings."""


def handle(ctx: Context, request: CreateTopicsRequest) -> Message | Parked:
    work = _Creation(ctx, request)
    return answer_in_slices(ctx, work.plan(), work.create)


class _Creation:
    """The topics of one request, made in one commit."""

    def __init__(self, ctx: Context, request: CreateTopicsRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._topics = ctx.broker.topics
        self._results: dict[str, NewTopic | KafkaError] = {}
        self._rows = Rows(CreateTopicsResponse, "topics", ctx.header.api_version)

    def plan(self) -> Iterator[None]:
        """Steps that check and prepare all of them."""
        repeats: dict[str, int] = {}
        for topic in self._request.topics:
            repeats[topic.name] = repeats.get(topic.name, 0) + 1
            yield
        while True:
            self._prepared = self._topics.prepare()
            yield from self._judge(repeats)
            plans = [plan for plan in self._results.values() if isinstance(plan, NewTopic)]
            if sum(plan.partitions for plan in plans) > MAX_PARTITIONS_PER_REQUEST:
                refused = KafkaError(
                    Error.POLICY_VIOLATION,
                    f"one request makes at most {MAX_PARTITIONS_PER_REQUEST} partitions",
                )
                self._results.update((plan.name, refused) for plan in plans)
            elif not self._request.validate_only:
                for plan in plans:
                    yield from self._prepared.create(plan)
            if self._prepared.stands():
                return

    def _judge(self, repeats: Mapping[str, int]) -> Iterator[None]:
        for topic in self._request.topics:
            try:
                check_timeout(self._request.timeout_ms)
                if repeats[topic.name] > 1:
                    raise KafkaError(Error.INVALID_REQUEST, "the request names this topic twice")
                self._topics.check_new_name(topic.name)
                configs, partitions = _configs(self._ctx, topic), _partitions(self._ctx, topic)
                plan = NewTopic(topic.name, new_id(), partitions, configs)
            except KafkaError as error:
                self._results[topic.name] = error
            else:
                self._results[topic.name] = plan
            yield

    def create(self) -> Parked:
        made, topics = self._prepared, self._topics
        ticket = topics.admit(made) if made.topics else topics.settled()
        return reply_in_slices_after(ticket, self._ctx, self._tell(), self._told)

    def _tell(self) -> Iterator[None]:
        """Topics with the same settings are told them by the same bytes."""
        told: dict[object, Rows] = {}
        for name, result in self._results.items():
            yield
            if isinstance(result, KafkaError):
                self._rows.add(_refused(name, result))
                continue
            if self._ctx.header.api_version < _SETTINGS_FROM:
                self._rows.add(_made(result))
                continue
            own = tuple(sorted(result.configs.items()))
            configs = told.get(own)
            if configs is None:
                configs = told[own] = self._rows.inner("configs")
                for entry in topic_entries(self._ctx.broker.config, result.configs):
                    configs.add(
                        CreatableTopicConfigs(
                            name=entry.key.name,
                            value=entry.value,
                            config_source=entry.source,
                            is_sensitive=entry.key.sensitive,
                        )
                    )
            self._rows.add_with(_made(result), configs)

    def _told(self) -> Encoded:
        return Encoded(self._rows.within(CreateTopicsResponse()))


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


def _made(plan: NewTopic) -> CreatableTopicResult:
    """What is told of a topic but for its settings."""
    return CreatableTopicResult(
        name=plan.name,
        topic_id=plan.topic_id,
        error_message=None,
        num_partitions=plan.partitions,
        replication_factor=1,
        configs=[],
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
