"""InitProducerId: an id for an idempotent producer. Versions 0 to 5.

    2   flexible
    3   a producer names the id and epoch it has; without a transactional id it gets a new one
    4   PRODUCER_FENCED may be answered
    5   for transactions only

Idempotent producers only: there are no transactions yet. A transactional id is answered
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because that is the one code that Java's client and
librdkafka both take as final, at once and by name; on any other one or the other of them tries for
ever.
"""

from __future__ import annotations

from ottla.broker.context import Api, Context, Parked
from ottla.log.tickets import Ticket
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.errors import Error, KafkaError

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


def handle(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse | Parked:
    if request.transactional_id == "":
        raise KafkaError(Error.INVALID_REQUEST)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(Error.INVALID_REQUEST)
    if request.transactional_id is not None:
        raise KafkaError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producer_id, ticket = ctx.broker.producer_ids.take()

    def committed(_: Ticket) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    return ctx.after(ticket, committed)


def on_error(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error.error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


API = Api(
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
    handle=handle,
    on_error=on_error,
)
