"""InitProducerId: an id and epoch for an idempotent or transactional producer."""

from ottla.wire.schema import Message, int16, int32, int64, message, string


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest(Message):
    """A new producer id, or a new epoch for the one given (v3+)."""

    transactional_id: str | None = string(null="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@message(key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse(Message):
    """The producer id and epoch to put in batches."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
