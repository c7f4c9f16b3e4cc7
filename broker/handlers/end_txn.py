"""EndTxn: commit or abort a transaction. Versions 0 to 5.

    2   PRODUCER_FENCED may be answered; before, INVALID_PRODUCER_EPOCH stands for it
    3   flexible
    4   TRANSACTION_ABORTABLE may be answered; nothing here does
    5   transaction version 2 (KIP-890): each end raises the epoch, and the answer tells it; an
        abort of nothing is an end too

The answer comes when everything of the transaction is visible, or gone: Kafka answers earlier.
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.broker.transaction_states import Producer, Version
from ottla.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message

_FENCED_FROM = 2
_RAISES_EPOCH = 5


def handle(ctx: Context, request: EndTxnRequest) -> Message | Context:
    named = request.transactional_id

    def decide() -> EndTxnResponse:
        producer = Producer(request.producer_id, request.producer_epoch)
        version: Version = 2 if ctx.header.api_version >= _RAISES_EPOCH else 1
        after = ctx.broker.transactions.end(named, producer, request.committed, version)
        return EndTxnResponse(producer_id=after.id, producer_epoch=after.epoch)

    return ctx.broker.transactions.answer(ctx, (named,), decide, _FENCED_FROM)


def on_error(request: EndTxnRequest, error: KafkaError) -> EndTxnResponse:
    return EndTxnResponse(error_code=error.error)


API = Api(
    request=EndTxnRequest,
    response=EndTxnResponse,
    handle=handle,
    on_error=on_error,
)
