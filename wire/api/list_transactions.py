"""ListTransactions: the transactional ids of a coordinator."""

from ottla.wire.schema import Message, array, int16, int32, int64, message, string, struct


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest(Message):
    """All, or those in a state, of a producer id, open for longer than `duration_filter`
    milliseconds (v1+, KIP-994), or whose id matches a pattern (v2+, KIP-1152)."""

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", null="2+", default=None)


@struct
class TransactionState:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse(Message):
    """Those that all filters let pass, and the states asked for that there are not."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
