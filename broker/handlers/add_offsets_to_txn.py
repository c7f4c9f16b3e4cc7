"""AddOffsetsToTxn: a group whose offsets a transaction is going to move. Versions 0 to 4.

    2   PRODUCER_FENCED may be answered; before, INVALID_PRODUCER_EPOCH stands for it
    3   flexible
    4   TRANSACTION_ABORTABLE may be answered; nothing here does

Clients of TxnOffsetCommit v5 do not ask any more: that adds the group by itself (KIP-890).
"""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.broker.transaction_states import Producer
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.errors import KafkaError
from ottla.wire.schema import Message

_FENCED_FROM = 2


def handle(ctx: Context, request: AddOffsetsToTxnRequest) -> Message | Context:
    named = request.transactional_id

    def decide() -> AddOffsetsToTxnResponse:
        producer = Producer(request.producer_id, request.producer_epoch)
        ctx.broker.transactions.add(named, producer, groups=(request.group_id,))
        return AddOffsetsToTxnResponse()

    return ctx.broker.transactions.answer(ctx, (named,), decide, _FENCED_FROM)


def on_error(request: AddOffsetsToTxnRequest, error: KafkaError) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error.error)


API = Api(
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
    handle=handle,
    on_error=on_error,
)
