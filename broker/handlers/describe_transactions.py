"""DescribeTransactions v0: what the coordinator knows of transactional ids (KIP-664).

Partitions of deleted topics are not listed, and neither is anything for groups, which in Kafka
are partitions of __consumer_offsets.
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


def handle(ctx: Context, request: DescribeTransactionsRequest) -> Message | Context:
    ids = request.transactional_ids
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
    for topic, index in sorted(filter(None, map(transactions.place, txn.partitions))):
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
