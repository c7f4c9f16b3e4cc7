"""ListConfigResources: names of resources that have settings (KIP-1142)."""

from ottla.wire.schema import Message, array, int8, int16, int32, message, string, struct


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Message):
    """Resources of these types; v0 knows client metrics only."""

    resource_types: list[int] = array(int8, "1+")


@struct
class ConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


@message(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse(Message):
    """Name and type of each resource."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
