"""DescribeAcls v1-3: there are no access rules, and no authorizer that would keep any. v2 flexible;
v3 user as a resource type. A filter that says "unknown" (0) closes the connection, as in Kafka."""

from __future__ import annotations

from ottla.broker.context import Api, CloseConnection, Context
from ottla.wire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.wire.errors import Error, KafkaError

UNKNOWN = 0


def handle(ctx: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    numbers = (
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    )
    if UNKNOWN in numbers:
        raise CloseConnection("DescribeAcls: a filter is 0, which is unknown; 1 matches any")
    raise KafkaError(Error.SECURITY_DISABLED, "no authorizer is configured: all may do everything")


def on_error(request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.error, error_message=error.message)


API = Api(
    request=DescribeAclsRequest, response=DescribeAclsResponse, handle=handle, on_error=on_error
)
