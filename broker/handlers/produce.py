"""Produce: one record batch for each partition, answered when it is in the log.

Versions 3 to 13; announced from 0, because librdkafka takes a first version of 3 for "this broker
knows no gzip, snappy or lz4" and silently sends uncompressed (KAFKA-18659). Versions 0 to 2 are
refused like any other that is not served: the connection is closed, as Kafka does.

    5   log_start_offset in the answer
    7   batches may be compressed with zstd
    8   record_errors and error_message: which records of a batch were refused, and why
    9   flexible
    10  the answer may name the new leader; a broker alone is always the leader
    11  TRANSACTION_ABORTABLE may be answered (KIP-890)
    12  a transactional batch adds its partition to the transaction by itself
    13  topics by id, names no more

acks 1 and all mean the same where there is one replica: the answer comes when the commit that holds
the batch is (durability=fsync: on disk). acks 0 gets no answer; an error closes the connection,
which is all that such a client can be told. timeout_ms is about other replicas and has nothing to
bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from functools import partial
from struct import Struct
from typing import TypeAlias

from ottla.broker.context import Api, CloseConnection, Context, Parked
from ottla.broker.dispatch import as_kafka_error
from ottla.broker.metadata import Topic
from ottla.broker.slices import Later, whole
from ottla.log.partition import Partition
from ottla.log.tickets import Ticket
from ottla.log.validate import MAX_RECORD_ERRORS, Large, RefusedBatch, Validated, validate
from ottla.wire.api.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.codecs import Buffer
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import HEADER_SIZE, MAGIC, TRANSACTIONAL, BatchHeader

ALL_REPLICAS = -1
NO_ACKS = 0
_ADDS_PARTITIONS = 12
_BY_ID = 13

# Where a batch's header has its format, its flags, its producer's id and epoch.
_MAGIC_AT = 16
_FLAGS_AT = 22
_PRODUCER = slice(43, 53)
_PRODUCER_AS = Struct(">qh")

#: Partitions from which on a transactional request looks at all of them in slices.
_LONG = 0x1FF

Steps: TypeAlias = Generator[Later | None, None, ProduceResponse | Parked]


def handle(ctx: Context, request: ProduceRequest) -> ProduceResponse | Parked | Steps:
    steps = _steps(ctx, request)
    try:
        first = next(steps)
    except StopIteration as end:  # nearly always: few partitions, and nothing to wait for
        answer: ProduceResponse | Parked = end.value
        return answer
    return _go_on(first, steps)


def _go_on(first: Later | None, steps: Steps) -> Steps:
    yield first
    return (yield from steps)


def _steps(ctx: Context, request: ProduceRequest) -> Steps:
    """Admit one batch after the other. What takes long to check is checked on a thread meanwhile,
    and those behind it wait: they may be of the same partition."""
    producers: set[bytes] = set()
    count = 0
    asked = request.topic_data
    if len(asked) > 1:
        asked = yield from _last_of_each_topic(asked, ctx.header.api_version >= _BY_ID)
    for topic in asked:
        for partition in topic.partition_data:
            data = partition.records
            if data is not None and _is_transactional(data) and data[_MAGIC_AT] == MAGIC:
                producers.add(bytes(data[_PRODUCER]))
            count += 1
            if not count & 0x1FF:
                yield None
    if producers:
        _check_producers(producers, request.transactional_id)
    production = _Production(ctx, request, asked)
    if producers and count > _LONG and ctx.header.api_version >= _ADDS_PARTITIONS:
        yield from production.find_others(*_PRODUCER_AS.unpack(producers.pop()))
    responses = []
    for topic in asked:
        partitions = topic.partition_data
        if len(partitions) > 1:
            partitions = _last_of_each(partitions)
        answers = []
        for partition in partitions:
            try:
                answers.append(production.append(topic, partition))
            except Large:
                validated: list[Validated | Exception] = []
                yield Later(partial(production.validate_aside, topic, partition, validated))
                answers.append(production.append(topic, partition, *validated))
            count += 1
            if not count & 0xF:
                yield None
        responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    return production.answer(ProduceResponse(responses=responses))


def _is_transactional(data: Buffer | None) -> bool:
    """By its flags, whatever else is wrong with the batch."""
    return data is not None and len(data) >= HEADER_SIZE and data[_FLAGS_AT] & TRANSACTIONAL != 0


def _check_producers(producers: set[bytes], transactional_id: str | None) -> None:
    """What makes the whole request wrong before anything of it is admitted.

    Raises KafkaError TRANSACTIONAL_ID_AUTHORIZATION_FAILED for transactional batches that name no
    transactional id, INVALID_PRODUCER_ID_MAPPING for those of more than one producer. Source:
    KafkaApis.handleProduceRequest, ReplicaManager.handleProduceAppend.
    """
    if transactional_id is None:
        raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if len(producers) > 1:
        raise KafkaError(
            Error.INVALID_PRODUCER_ID_MAPPING,
            "Transactional records contained more than one producer ID",
        )


def _find(ctx: Context, data: TopicProduceData) -> tuple[Topic | None, Error]:
    """The topic, and what to say where there is none."""
    if ctx.header.api_version >= _BY_ID:
        return ctx.broker.topics.by_id(data.topic_id), Error.UNKNOWN_TOPIC_ID
    return ctx.broker.topics.get(data.name), Error.UNKNOWN_TOPIC_OR_PARTITION


def _last_of_each_topic(
    topics: list[TopicProduceData], by_id: bool
) -> Generator[None, None, list[TopicProduceData]]:
    """Steps, and each topic once, with the partitions of all its mentions in their order."""
    mentions: dict[str | bytes, list[TopicProduceData]] = {}
    for count, topic in enumerate(topics, 1):
        mentions.setdefault(topic.topic_id if by_id else topic.name, []).append(topic)
        if not count & 0x1FF:
            yield
    if len(mentions) == len(topics):
        return topics
    once = []
    for mine in mentions.values():
        topic = mine[0]
        if len(mine) > 1:
            partitions = []
            for mention in mine:
                partitions += mention.partition_data
                yield
            topic = TopicProduceData(
                name=topic.name, topic_id=topic.topic_id, partition_data=partitions
            )
        once.append(topic)
    return once


def _last_of_each(partitions: list[PartitionProduceData]) -> list[PartitionProduceData]:
    """A partition named twice counts once, as it was named last; Kafka keeps them in a map."""
    return list({partition.index: partition for partition in partitions}.values())


class _Production:
    """The batches of one request, until all of them are committed."""

    __slots__ = (
        "_acks",
        "_admitted",
        "_asked",
        "_ctx",
        "_failed",
        "_found",
        "_nameable",
        "_now_ms",
        "_response",
        "_transactional_id",
        "_version",
    )

    def __init__(
        self, ctx: Context, request: ProduceRequest, asked: list[TopicProduceData]
    ) -> None:
        self._ctx = ctx
        #: Where the rest of a transaction's partitions is; None once they have been named.
        self._asked: list[TopicProduceData] | None = asked
        self._found: set[int] = set()
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        self._version = ctx.header.api_version
        self._now_ms = ctx.now_ms
        self._failed: KafkaError | None = None
        #: Records that may still be named as refused.
        self._nameable = MAX_RECORD_ERRORS
        #: What was admitted, in order, and the commit it waits for: nearly always the same.
        self._admitted: list[tuple[Ticket, PartitionProduceResponse]] = []

    def append(
        self,
        named: TopicProduceData,
        data: PartitionProduceData,
        validated: Validated | Exception | None = None,
    ) -> PartitionProduceResponse:
        """Check and admit one batch. The answer given is true once its ticket is done. Raises Large
        where the batch is to be checked on a thread first, and then given with what came of it."""
        broker = self._ctx.broker
        try:
            topic = self._topic(named, data)
            if validated is None:
                rules, now_ms, version = topic.rules, self._now_ms, self._version
                validated = validate(data.records, rules, now_ms, version, open_large=False)
            elif isinstance(validated, Exception):
                raise validated
            batch, header = validated
            partition = broker.store.partition(topic.partitions[data.index])
            if header.attributes & TRANSACTIONAL:
                self._enter(partition, header)
            appended = broker.store.append(partition, batch, header, self._now_ms)
        except Large:
            raise
        except Exception as error:
            return self._refused(data.index, as_kafka_error(self._ctx, error))
        answer = PartitionProduceResponse(
            index=data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time,
            log_start_offset=partition.log_start_offset,
        )
        self._admitted.append((appended.ticket, answer))
        return answer

    def _enter(self, partition: Partition, header: BatchHeader) -> None:
        """Whether the partition belongs to the producer's transaction; asked once, by the first
        batch of a transaction in a partition."""
        if not header.has_producer:
            return
        broker = self._ctx.broker
        producer_id, epoch, version = header.producer_id, header.producer_epoch, self._version
        if broker.store.open_transaction(partition, producer_id, epoch) is not None:
            return
        broker.store.producers.check_epoch(partition.number, producer_id, epoch)
        broker.transactions.produce(
            self._transactional_id,
            producer_id,
            epoch,
            partition.number,
            version,
            self._others(producer_id, epoch) if version >= _ADDS_PARTITIONS else (),
        )
        # Sequences begin anew with each transaction there, so one that does not lacks its start.
        new = not broker.store.producers.knows(partition.number, producer_id)
        if new and header.base_sequence and version >= _ADDS_PARTITIONS:
            raise KafkaError(
                Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins with sequence {header.base_sequence}",
            )

    def _others(self, producer_id: int, epoch: int) -> Collection[int]:
        """What `find_others` finds, the first time: added one by one, each would write all those
        before it once more."""
        asked, self._asked = self._asked, None
        if asked is None:
            return ()
        return self._found or whole(self._find(asked, producer_id, epoch))

    def find_others(self, producer_id: int, epoch: int) -> Generator[None, None, None]:
        """Steps that find what a long request adds to a transaction."""
        if self._asked is not None:
            self._found = yield from self._find(self._asked, producer_id, epoch)

    def _find(
        self, asked: list[TopicProduceData], producer_id: int, epoch: int
    ) -> Generator[None, None, set[int]]:
        """Steps, and all partitions with a transactional batch. As with Kafka they are added
        whether their batch is then taken or not, but for those that know the producer's epoch is
        old."""
        is_fenced = self._ctx.broker.store.producers.is_fenced
        numbers: set[int] = set()
        for data in asked:
            topic, _ = _find(self._ctx, data)
            partitions = () if topic is None else topic.partitions
            for one in data.partition_data:
                if 0 <= one.index < len(partitions) and _is_transactional(one.records):
                    number = partitions[one.index]
                    if not is_fenced(number, producer_id, epoch):
                        numbers.add(number)
                yield
        return numbers

    def validate_aside(
        self,
        named: TopicProduceData,
        data: PartitionProduceData,
        validated: list[Validated | Exception],
        go_on: Callable[[], None],
    ) -> None:
        """Check a large batch on a thread; calls `go_on` when `validated` holds what came of it."""
        rules, now_ms, version = self._topic(named, data).rules, self._now_ms, self._version

        def done(found: Validated | Exception) -> None:
            validated.append(found)
            go_on()

        self._ctx.broker.store.aside(lambda: validate(data.records, rules, now_ms, version), done)

    def _topic(self, named: TopicProduceData, data: PartitionProduceData) -> Topic:
        topic, missing = _find(self._ctx, named)
        if topic is None:
            raise KafkaError(missing)
        if not 0 <= data.index < len(topic.partitions):
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
        self._check(topic)
        return topic

    def _check(self, topic: Topic) -> None:
        if self._acks != 1:
            if self._acks not in (ALL_REPLICAS, NO_ACKS):
                raise KafkaError(Error.INVALID_REQUIRED_ACKS)
            if self._acks == ALL_REPLICAS and topic.config.min_insync_replicas > 1:
                raise KafkaError(Error.NOT_ENOUGH_REPLICAS)
        if topic.is_internal:
            raise KafkaError(Error.INVALID_TOPIC_EXCEPTION)

    def _refused(self, index: int, error: KafkaError) -> PartitionProduceResponse:
        if self._failed is None:  # the first one stands for all of the request
            self._ctx.broker.complaints.refused(self._ctx, error)
        self._failed = error
        answer = PartitionProduceResponse(index=index)
        self._refuse(answer, error)
        return answer

    def _refuse(self, answer: PartitionProduceResponse, error: KafkaError) -> None:
        answer.error_code = error.error
        answer.error_message = error.message
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
        if isinstance(error, RefusedBatch) and self._nameable:
            named = error.record_errors[: self._nameable]
            self._nameable -= len(named)
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in named
            ]

    def answer(self, response: ProduceResponse) -> ProduceResponse | Parked:
        """When all that was admitted is committed, or has failed."""
        ctx = self._ctx
        if self._admitted:
            self._response = response
            ctx.park()
            # Commits end in the order in which they were admitted: when the last is done, all are.
            self._admitted[-1][0].then(self._committed)
            return ctx
        if self._acks != NO_ACKS:
            return response
        if self._failed is not None:
            raise CloseConnection(self._reason())
        ctx.park()
        ctx.no_reply()  # nothing was asked, and nothing is answered
        return ctx

    def _committed(self, last: Ticket) -> None:
        for ticket, answer in self._admitted:
            if ticket.error is not None:
                self._failed = as_kafka_error(self._ctx, ticket.error)
                self._refuse(answer, self._failed)
        if self._acks != NO_ACKS:
            self._ctx.reply(self._response)
        elif self._failed is None:
            self._ctx.no_reply()
        else:
            self._ctx.close(self._reason())

    def _reason(self) -> str:
        assert self._failed is not None
        return f"{self._failed.error.name} with acks=0, which can be told no other way"


def on_error(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    if request.acks == NO_ACKS:
        raise CloseConnection(f"{error.error.name} with acks=0, which can be told no other way")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=partition.index,
                        error_code=error.error,
                        error_message=error.message,
                        base_offset=-1,
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


API = Api(
    request=ProduceRequest,
    response=ProduceResponse,
    handle=handle,
    on_error=on_error,
    announced_from=0,
    ahead=True,
)
