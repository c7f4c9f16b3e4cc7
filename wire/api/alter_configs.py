"""AlterConfigs: all settings of a resource replaced at once."""

from ottla.wire.schema import Message, array, boolean, int8, int16, int32, message, string, struct


@struct
class AlterableConfig:
    name: str = string()
    value: str | None = string(null="0+")


@struct
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Message):
    """Set these values; settings not named go back to their defaults."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse(Message):
    """Whether each resource was changed."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
