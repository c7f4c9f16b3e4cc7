"""DescribeConfigs: settings of topics, brokers and groups."""

from ottla.wire.schema import Message, array, boolean, int8, int16, int32, message, string, struct


@struct
class DescribeConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, null="1+")


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Message):
    """These settings of these resources; null keys mean all."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


@struct
class DescribeConfigsSynonym:
    name: str = string()
    value: str | None = string(null="1+")
    source: int = int8()


@struct
class DescribeConfigsResourceResult:
    name: str = string()
    value: str | None = string(null="1+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", null="3+", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = string(null="1+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(key=32, versions="1-4", flexible="4+")
class DescribeConfigsResponse(Message):
    """Value, source, synonyms, type and documentation of each setting."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
