"""DescribeUserScramCredentials v0 (KIP-554): there are no credentials yet, so no user has any."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context
from ottla.broker.slices import answer_in_slices
from ottla.wire.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message


def handle(ctx: Context, request: DescribeUserScramCredentialsRequest) -> Message | Context:
    times: dict[str, int] = {}
    results = Rows(DescribeUserScramCredentialsResponse, "results", ctx.header.api_version)

    def look() -> Iterator[None]:
        for user in request.users or ():
            times[user.name] = times.get(user.name, 0) + 1
            yield
        for name, count in times.items():
            twice = count > 1
            results.add(
                DescribeUserScramCredentialsResult(
                    user=name,
                    error_code=Error.DUPLICATE_RESOURCE if twice else Error.RESOURCE_NOT_FOUND,
                    error_message="the request names this user twice"
                    if twice
                    else "this user has no credentials",
                )
            )
            yield

    def finish() -> Encoded:
        head = DescribeUserScramCredentialsResponse(error_message=None)
        return Encoded(results.within(head))

    return answer_in_slices(ctx, look(), finish)


def on_error(
    request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=error.error, error_message=error.message)


API = Api(
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
    handle=handle,
    on_error=on_error,
)
