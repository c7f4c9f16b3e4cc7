"""DescribeTransactions v0: what the coordinator knows of transactional ids (KIP-664).

Partitions of deleted topics are not listed. A group whose offsets are to be moved is told as Kafka
tells it, by the partition of __consumer_offsets that would hold them there: there is no other field
for it, and without one a transaction that only holds offsets would look empty.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.context import Api, Context
from ottla.wire.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.schema import Message

OFFSETS = "__consumer_offsets"


def handle(ctx: Context, request: DescribeTransactionsRequest) -> Message | Context:
    # An id named again is answered once: a small request must not ask for the same thousand times.
    ids = list(dict.fromkeys(request.transactional_ids))
    return ctx.broker.transactions.answer(ctx, ids, partial(_decide, ctx, ids))


def _decide(ctx: Context, ids: list[str]) -> DescribeTransactionsResponse:
    ctx.broker.transactions.check_loaded()
    return DescribeTransactionsResponse(
        transaction_states=[_describe(ctx, transactional_id) for transactional_id in ids]
    )


def _describe(ctx: Context, transactional_id: str) -> TransactionState:
    transactions = ctx.broker.transactions
    txn = transactions.get(transactional_id)
    if txn is None:
        missing = Error.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Error.INVALID_REQUEST
        return TransactionState(error_code=missing, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    places = set(filter(None, map(transactions.place, txn.partitions)))
    count = ctx.broker.config.offsets_topic_num_partitions
    places |= {(OFFSETS, java_hash(group_id) % count) for group_id in txn.groups}
    for topic, index in sorted(places):
        topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=txn.state.title,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def java_hash(text: str) -> int:
    """String.hashCode, without its sign (Kafka's Utils.abs)."""
    value = 0
    units = text.encode("utf-16-le")
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    if value >= 1 << 31:
        value = (1 << 32) - value
    return value & 0x7FFFFFFF


def on_error(
    request: DescribeTransactionsRequest, error: KafkaError
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=error.error, transactional_id=transactional_id)
            for transactional_id in request.transactional_ids
        ]
    )


API = Api(
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
    handle=handle,
    on_error=on_error,
)
