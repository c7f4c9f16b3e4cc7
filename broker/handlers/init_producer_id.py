"""InitProducerId: an id and epoch for an idempotent or transactional producer. Versions 0 to 5.

    2   flexible
    3   a producer names the id and epoch it has, to go on after an error (KIP-360); without a
        transactional id it gets a new one
    4   PRODUCER_FENCED may be answered; before, INVALID_PRODUCER_EPOCH stands for it
    5   TRANSACTION_ABORTABLE may be answered; nothing here does

With a transactional id this ends what an earlier instance has open (CONCURRENT_TRANSACTIONS: ask
again) and fences it by the epoch.
"""

from __future__ import annotations

from functools import partial

from ottla.broker.context import Api, Context
from ottla.broker.transaction_states import NO_EPOCH, NO_ID, Producer
from ottla.log.tickets import Ticket
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.errors import Error, KafkaError
from ottla.wire.schema import Message

_FENCED_FROM = 4


def handle(ctx: Context, request: InitProducerIdRequest) -> Message | Context:
    named = request.transactional_id
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        raise KafkaError(Error.INVALID_REQUEST)
    if named is None:
        return _idempotent(ctx)
    decide = partial(_decide, ctx, request, named)
    return ctx.broker.transactions.answer(ctx, (named,), decide, _FENCED_FROM)


def _idempotent(ctx: Context) -> Context:
    producer_id, ticket = ctx.broker.producer_ids.take()

    def committed(_: Ticket) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    return ctx.after(ticket, committed)


def _decide(ctx: Context, request: InitProducerIdRequest, named: str) -> InitProducerIdResponse:
    expected = Producer(request.producer_id, request.producer_epoch)
    given = ctx.broker.transactions.init_producer_id(
        named, request.transaction_timeout_ms, None if expected.id == NO_ID else expected
    )
    return InitProducerIdResponse(producer_id=given.id, producer_epoch=given.epoch)


def on_error(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error.error, producer_id=NO_ID, producer_epoch=NO_EPOCH
    )


API = Api(
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
    handle=handle,
    on_error=on_error,
)
