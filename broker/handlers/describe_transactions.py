"""DescribeTransactions v0: what the coordinator knows of transactional ids (KIP-664).

Partitions of deleted topics are not listed. A group whose offsets are to be moved is told as Kafka
tells it, by the partition of __consumer_offsets that would hold them there: there is no other field
for it, and without one a transaction that only holds offsets would look empty.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context
from ottla.broker.metadata import OFFSETS_TOPIC
from ottla.broker.transaction_states import Transaction
from ottla.wire.api.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message


def handle(ctx: Context, request: DescribeTransactionsRequest) -> Message | Context:
    states = Rows(DescribeTransactionsResponse, "transaction_states", ctx.header.api_version)

    def look() -> Iterator[None]:
        seen = set()
        for transactional_id in request.transactional_ids:
            yield
            # An id named again is answered once: a small request must not ask for the same a
            # thousand times.
            if transactional_id in seen:
                continue
            seen.add(transactional_id)
            state = _describe(ctx, transactional_id)
            txn = ctx.broker.transactions.get(transactional_id)
            topics = [] if txn is None else (yield from _topics(ctx, txn))
            yield from states.add_of(state, "topics", topics)

    def finish() -> Encoded:
        return Encoded(states.within(DescribeTransactionsResponse()))

    return ctx.broker.transactions.answer_in_slices(ctx, look(), finish)


def _describe(ctx: Context, transactional_id: str) -> TransactionState:
    """All but where it has written."""
    txn = ctx.broker.transactions.get(transactional_id)
    if txn is None:
        missing = Error.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Error.INVALID_REQUEST
        return TransactionState(error_code=missing, transactional_id=transactional_id)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=txn.state.title,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
    )


def _topics(ctx: Context, txn: Transaction) -> Generator[None, None, list[TopicData]]:
    """Steps, and at their end the partitions and groups of a transaction."""
    transactions = ctx.broker.transactions
    indexes: dict[str, set[int]] = {}
    for number in txn.partitions:
        place = transactions.place(number)
        if place is not None:
            indexes.setdefault(place[0], set()).add(place[1])
        yield
    offsets = ctx.broker.topics.get(OFFSETS_TOPIC)
    count = len(offsets.partitions) if offsets else ctx.broker.config.offsets_topic_num_partitions
    for group_id in txn.groups:
        indexes.setdefault(OFFSETS_TOPIC, set()).add(java_hash(group_id) % count)
        yield
    return [TopicData(topic=name, partitions=sorted(indexes[name])) for name in sorted(indexes)]


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
