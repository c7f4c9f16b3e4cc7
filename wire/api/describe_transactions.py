"""DescribeTransactions: what the coordinator knows of transactional ids."""

from ottla.wire.schema import Message, array, int16, int32, int64, message, string, struct


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Message):
    """The state of these transactional ids (KIP-664)."""

    transactional_ids: list[str] = array(string)


@struct
class TopicData:
    topic: str = string()
    partitions: list[int] = array(int32)


@struct
class TransactionState:
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


@message(key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse(Message):
    """State, producer and partitions of each. The start time is that of the last transaction when
    none is open, -1 where there was none since InitProducerId."""

    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
