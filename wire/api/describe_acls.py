"""DescribeAcls: access rules that match a filter (KIP-140, KIP-290)."""

from ottla.wire.schema import Message, array, int8, int16, int32, message, string, struct

LITERAL = 3


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest(Message):
    """Rules with all of these; null, and 1 of the numbers, match any."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(null="0+")
    pattern_type_filter: int = int8("1+", default=LITERAL)
    principal_filter: str | None = string(null="0+")
    host_filter: str | None = string(null="0+")
    operation: int = int8()
    permission_type: int = int8()


@struct
class AclDescription:
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct
class DescribeAclsResource:
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=LITERAL)
    acls: list[AclDescription] = array(AclDescription)


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse(Message):
    """The rules, by resource."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
