"""Metadata v0-13: which brokers there are, which topics, and who leads their partitions.

v1 null is all topics (v0: empty is), brokers have racks and there is a controller; v2 cluster id;
v4 the request says whether topics may be made; v5 offline replicas; v7 leader epochs; v8 authorized
operations; v9 flexible; v10 topic ids; v12 topics by id; v13 a top-level error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import partial

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context, Parked
from ottla.broker.ids import new_id
from ottla.broker.internal_topics import is_kept, plan
from ottla.broker.metadata import INTERNAL, NewTopic, Topic
from ottla.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from ottla.broker.partitions import view
from ottla.broker.placement import MAX_PARTITIONS_PER_REQUEST
from ottla.broker.slices import answer_in_slices, reply_in_slices_after
from ottla.broker.topic_names import check_name
from ottla.log.tickets import Ticket
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.primitives import ZERO_UUID, Buffer
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

_logger = logging.getLogger(__name__)


def handle(ctx: Context, request: MetadataRequest) -> Message | Parked:
    answer = _Answer(ctx, request)
    if request.topics is None or (ctx.header.api_version == 0 and not request.topics):
        # Kept as bytes until a topic changes: every client asks for it, again and again.
        key = (
            "Metadata",
            ctx.header.api_version,
            ctx.listener.name,
            request.include_topic_authorized_operations,
            request.include_cluster_authorized_operations,
        )
        return ctx.broker.kept.answer(ctx, key, answer.tell_all, answer.body)
    return answer_in_slices(ctx, answer.look(request.topics), answer.finish)


class _Answer:
    """One answer, made topic by topic."""

    def __init__(self, ctx: Context, request: MetadataRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._topics = ctx.broker.topics
        self._rows = Rows(MetadataResponse, "topics", ctx.header.api_version)
        asked = request.include_topic_authorized_operations
        self._operations = TOPIC_OPERATIONS if asked else NOT_ASKED
        #: Asked for by name; each is answered once.
        self._names: dict[str, None] = {}
        self._prepared = self._topics.prepare()
        self._creates = False

    def look(self, wanted: Iterable[MetadataRequestTopic]) -> Iterator[None]:
        """Steps that look through the request, and answer it where no topic is to be made."""
        ids: dict[bytes, None] = {}
        for topic in wanted:
            self._check(topic)
            if topic.topic_id != ZERO_UUID:
                ids[topic.topic_id] = None
            elif topic.name is not None:
                self._names[topic.name] = None
            yield
        if ids:
            for topic_id in ids:
                yield from self._tell_id(topic_id)
            return
        if self._request.allow_auto_topic_creation:
            while True:
                yield from self._plan()
                if self._prepared.stands():
                    break
        if not self._creates:
            yield from self.tell_named()

    def _check(self, topic: MetadataRequestTopic) -> None:
        """A topic is asked for by name before v12, by name or id from then on (KafkaApis)."""
        version = self._ctx.header.api_version
        if version < 12 and topic.topic_id != ZERO_UUID:
            raise KafkaError(Error.INVALID_REQUEST, f"no topics by id in version {version}")
        if topic.name is None and (version < 12 or topic.topic_id == ZERO_UUID):
            raise KafkaError(Error.INVALID_REQUEST, "a topic without name or id")

    def finish(self) -> Message | Parked:
        if self._creates:
            ticket = self._create()
            return reply_in_slices_after(ticket, self._ctx, self.tell_named(), self._encoded)
        return self._encoded()

    # ------------------------------------------------------------------------------ auto-creation

    def _plan(self) -> Iterator[None]:
        """Steps that prepare the topics to be made: only where the broker allows it too."""
        config = self._ctx.broker.config
        self._creates = False
        self._prepared = self._topics.prepare()
        if not config.auto_create_topics_enable:
            return
        plans = []
        for name in self._names:
            yield
            if self._topics.get(name) is not None or (name in INTERNAL and not is_kept(name)):
                continue
            self._creates = True
            try:
                self._topics.check_new_name(name)
            except KafkaError:
                continue  # being made already, or answered with what is wrong about it
            plans.append(
                plan(self._ctx.broker, name)
                if is_kept(name)
                else NewTopic(name, new_id(), config.num_partitions, {})
            )
        if sum(new.partitions for new in plans) > MAX_PARTITIONS_PER_REQUEST:
            # As Kafka: none of them, and the topics are answered as unknown.
            _logger.warning(
                "none of %d topics was made that a client wants to be there: one request makes at"
                " most %d partitions (num.partitions=%d)",
                len(plans),
                MAX_PARTITIONS_PER_REQUEST,
                config.num_partitions,
            )
            return
        for new in plans:
            yield from self._prepared.create(new)

    def _create(self) -> Ticket:
        """Make what is missing, to answer once it is there: a client told to try again would wait
        for its back-off first."""
        made = self._prepared
        if not made.topics:
            return self._topics.settled()
        ticket = self._topics.admit(made)
        ticket.then(partial(self._made, list(made.topics)))
        return ticket

    def _made(self, names: list[str], ticket: Ticket) -> None:
        if ticket.error is None:
            self._ctx.broker.deeds.topics_made(self._ctx, names)

    # ------------------------------------------------------------------------------------ answers

    def tell_all(self) -> Iterator[None]:
        for topic in self._topics:
            now = self._topics.by_id(topic.topic_id)
            if now is not None:  # else it has been deleted meanwhile
                yield from self._tell(now)

    def tell_named(self) -> Iterator[None]:
        for name in self._names:
            topic = self._topics.get(name)
            if topic is not None:
                yield from self._tell(topic)
                continue
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
            try:
                check_name(name)
            except KafkaError as refused:
                error = refused.error
            self._rows.add(
                MetadataResponseTopic(
                    error_code=error,
                    name=name,
                    is_internal=name in INTERNAL,
                    topic_authorized_operations=self._operations,
                )
            )
            yield

    def _tell_id(self, topic_id: bytes) -> Iterator[None]:
        topic = self._topics.by_id(topic_id)
        if topic is not None:
            yield from self._tell(topic)
            return
        error = Error.UNKNOWN_TOPIC_ID
        self._rows.add(MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id))
        yield

    def _tell(self, topic: Topic) -> Iterator[None]:
        told = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            topic_authorized_operations=self._operations,
        )
        return self._rows.add_of(told, "partitions", self._partitions(topic))

    def _partitions(self, topic: Topic) -> Iterator[MetadataResponsePartition]:
        broker = self._ctx.broker
        node = [broker.node_id]
        for index, number in enumerate(topic.partitions):
            partition = view(broker, number)
            yield MetadataResponsePartition(
                partition_index=index,
                leader_id=broker.node_id,
                leader_epoch=0 if partition is None else partition.leader_epoch,
                replica_nodes=node,
                isr_nodes=node,
            )

    def body(self) -> list[Buffer]:
        broker, listener = self._ctx.broker, self._ctx.listener
        asked = self._request.include_cluster_authorized_operations
        response = MetadataResponse(
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
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
        )
        return self._rows.within(response)

    def _encoded(self) -> Encoded:
        return Encoded(self.body())


def on_error(request: MetadataRequest, error: KafkaError) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(
            error_code=error.error, name=topic.name or "", topic_id=topic.topic_id
        )
        for topic in request.topics or []
    ]
    return MetadataResponse(topics=topics, error_code=error.error)


API = Api(request=MetadataRequest, response=MetadataResponse, handle=handle, on_error=on_error)
