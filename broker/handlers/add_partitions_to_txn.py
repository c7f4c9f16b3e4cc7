"""AddPartitionsToTxn: partitions that a transaction is going to write to. Versions 0 to 5.

    2   PRODUCER_FENCED may be answered; before, INVALID_PRODUCER_EPOCH stands for it
    3   flexible
    4   for brokers (KIP-890): several transactions, each may be verified instead of added to
    5   TRANSACTION_ABORTABLE may be answered: a partition that was verified and is not in

One partition that does not exist keeps all of a transaction's from being added
(OPERATION_NOT_ATTEMPTED). Clients of Produce v12 do not ask any more: the write itself adds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeAlias, TypeVar

from ottla.broker.context import Api, Context
from ottla.broker.metadata import INTERNAL
from ottla.broker.slices import whole
from ottla.broker.transaction_states import Producer
from ottla.broker.transactions import known_as
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.schema import Message

_BATCHED = 4
_FENCED_FROM = 2
#: More than this at once takes slices.
_FEW = 200

#: Topic and index -> what is said of it.
_Judge = Callable[[str, int], Error]
T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]


def handle(ctx: Context, request: AddPartitionsToTxnRequest) -> Message | Context:
    asked = _transactions(request, ctx.header.api_version)
    results: list[list[AddPartitionsToTxnTopicResult]] = []
    steps = _decide(ctx, asked, results)
    answer = partial(_answer, ctx, asked, results)
    transactions = ctx.broker.transactions
    if ctx.is_long or len(asked) > _FEW or any(_is_long(one.topics) for one in asked):
        return transactions.answer_in_slices(ctx, steps, answer)

    def decide() -> AddPartitionsToTxnResponse:
        whole(steps)
        return answer()

    return transactions.answer(ctx, [one.transactional_id for one in asked], decide)


def _is_long(topics: list[AddPartitionsToTxnTopic]) -> bool:
    return len(topics) > _FEW or any(len(topic.partitions) > _FEW for topic in topics)


def _transactions(
    request: AddPartitionsToTxnRequest, version: int
) -> list[AddPartitionsToTxnTransaction]:
    if version >= _BATCHED:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _decide(
    ctx: Context,
    asked: list[AddPartitionsToTxnTransaction],
    results: list[list[AddPartitionsToTxnTopicResult]],
) -> Steps[None]:
    for transaction in asked:
        judge = yield from _judge(ctx, transaction)
        results.append((yield from _results(transaction.topics, judge)))


def _answer(
    ctx: Context,
    asked: list[AddPartitionsToTxnTransaction],
    results: list[list[AddPartitionsToTxnTopicResult]],
) -> AddPartitionsToTxnResponse:
    if ctx.header.api_version < _BATCHED:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0])
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=result
            )
            for transaction, result in zip(asked, results, strict=True)
        ]
    )


def _judge(ctx: Context, asked: AddPartitionsToTxnTransaction) -> Steps[_Judge]:
    """Add or verify the partitions of one transaction; gives what is said of each."""
    transactions = ctx.broker.transactions
    numbers: dict[tuple[str, int], int | None] = {}
    for topic in asked.topics:
        for index in topic.partitions:
            numbers[topic.name, index] = _number(ctx, topic.name, index)
            yield
        yield
    if None in numbers.values():
        return lambda topic, index: (
            Error.OPERATION_NOT_ATTEMPTED
            if numbers[topic, index] is not None
            else Error.TOPIC_AUTHORIZATION_FAILED
            if topic in INTERNAL
            else Error.UNKNOWN_TOPIC_OR_PARTITION
        )
    producer = Producer(asked.producer_id, asked.producer_epoch)
    wanted = {number for number in numbers.values() if number is not None}
    try:
        if not asked.verify_only:
            transactions.add(asked.transactional_id, producer, wanted)
            return lambda topic, index: Error.NONE
        present, _ = transactions.contents(asked.transactional_id, producer)
    except KafkaError as refused:
        error = known_as(refused.error, ctx, _FENCED_FROM)
        return lambda topic, index: error
    return lambda topic, index: (
        Error.NONE if numbers[topic, index] in present else Error.TRANSACTION_ABORTABLE
    )


def _number(ctx: Context, name: str, index: int) -> int | None:
    """The log's number of a partition that clients may write to."""
    topic = ctx.broker.topics.get(name)
    if topic is None or topic.is_internal or not 0 <= index < len(topic.partitions):
        return None
    return topic.partitions[index]


def _results(
    topics: list[AddPartitionsToTxnTopic], judge: _Judge
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results = []
    for topic in topics:
        partitions = []
        for index in topic.partitions:
            error = judge(topic.name, index)
            partitions.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
            )
            yield
        results.append(
            AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions)
        )
        yield
    return results


def on_error(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    """In the fields of either layout; the other is not sent."""
    if request.transactions:
        return AddPartitionsToTxnResponse(error_code=error.error)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=whole(
            _results(request.v3_and_below_topics, lambda topic, index: error.error)
        )
    )


API = Api(
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
    handle=handle,
    on_error=on_error,
)
