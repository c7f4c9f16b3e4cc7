"""ListTransactions: the transactional ids of this node, by filters that must all agree. v0 to 2.

    0   by state, by producer id
    1   open for longer than so many milliseconds (KIP-994)
    2   by a pattern that the whole id must match (KIP-1152)

Patterns are RE2's, of bounded size: what takes Java's (Kafka's own) for ever is over in
milliseconds, or refused. Backward references and looking around are refused too; a pattern that
makes no sense is refused by both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import re2  # type: ignore[import-untyped] # it has no annotations

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context
from ottla.broker.transaction_states import STATE_OF, Transaction
from ottla.wire.api.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

#: Bytes that RE2 may use for one pattern; 8 MiB by default. Matching takes the time of pattern
#: times id, so a small one is what keeps an id of 32,767 characters from holding up the loop.
PATTERN_BYTES: Final = 1 << 16

_Filter = Callable[[Transaction], bool]


def handle(ctx: Context, request: ListTransactionsRequest) -> Message | Context:
    transactions = ctx.broker.transactions
    filters = _filters(request, transactions.now_ms())
    found = Rows(ListTransactionsResponse, "transaction_states", ctx.header.api_version)
    unknown = [name for name in request.state_filters if name not in STATE_OF]

    def look() -> Iterator[None]:
        for txn in transactions.each():
            if all(lets_pass(txn) for lets_pass in filters):
                found.add(_listed(txn))
            yield

    def finish() -> Encoded:
        head = ListTransactionsResponse(unknown_state_filters=unknown)
        return Encoded(found.within(head))

    return transactions.answer_in_slices(ctx, look(), finish)


def _listed(txn: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        transaction_state=txn.state.title,
    )


def _filters(request: ListTransactionsRequest, now_ms: int) -> list[_Filter]:
    """What was asked for. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    filters: list[_Filter] = []
    if request.producer_id_filters:
        wanted = set(request.producer_id_filters)
        filters.append(lambda txn: txn.producer_id in wanted)
    if request.state_filters:
        # One that is not known lets nothing pass, and is told.
        states = set(map(STATE_OF.get, request.state_filters))
        filters.append(lambda txn: txn.state in states)
    if request.duration_filter >= 0:
        filters.append(lambda txn: now_ms - txn.start_ms > request.duration_filter)
    if request.transactional_id_pattern:
        matches = _matcher(request.transactional_id_pattern)
        filters.append(lambda txn: matches(txn.transactional_id))
    return filters


def _matcher(text: str) -> Callable[[str], bool]:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES
    options.never_capture = True  # nobody asks for the groups, and deep ones are slow
    try:
        pattern = re2.compile(text, options)
    except re2.error as error:
        raise KafkaError(
            Error.INVALID_REGULAR_EXPRESSION,
            f"Transaction ID pattern `{text}` is not a valid regular expression: {error}.",
        ) from None
    return lambda transactional_id: pattern.fullmatch(transactional_id) is not None


def on_error(request: ListTransactionsRequest, error: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.error)


API = Api(
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
    handle=handle,
    on_error=on_error,
)
