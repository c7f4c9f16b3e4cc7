"""DescribeClientQuotas: which users, clients and addresses have quotas (KIP-546)."""

from ottla.wire.schema import (
    Message,
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    message,
    string,
    struct,
)


@struct
class ComponentData:
    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(null="0+")


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Message):
    """Quotas of entities that match all of these; strict leaves out what has other parts too."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@struct
class EntityData:
    entity_type: str = string()
    entity_name: str | None = string(null="0+")


@struct
class ValueData:
    key: str = string()
    value: float = float64()


@struct
class EntryData:
    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Message):
    """Entities and their quotas; null with an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    entries: list[EntryData] | None = array(EntryData, null="0+")
