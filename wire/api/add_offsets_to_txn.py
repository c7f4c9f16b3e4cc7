"""AddOffsetsToTxn: the group whose offsets a transaction is going to move."""

from ottla.wire.schema import Message, int16, int32, int64, message, string


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Message):
    """Comes before TxnOffsetCommit, up to its v4; v5 adds the group by itself (KIP-890)."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@message(key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Message):
    """Whether the group is in the transaction now."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
