"""ApiVersions: what is served. Versions 0 to 4; an unknown one is answered by dispatch.py.

    3   flexible (but for its response header), the client's software, features
    4   features may have 0 as their least version; before, such a feature is not among those
        supported, because older clients cannot read it (KAFKA-17492)

Features steer clients and tools: transaction.version 2 makes Java's producer skip
AddPartitionsToTxn and count on a new epoch at each end, and group.version, share.version and
streams.version say that those groups work. So only what works is announced. metadata.version is the
level of Kafka's metadata, one per release: tools read it to know whom they speak to, and 30 is the
level of Kafka 4.3, whose versions of every API are served here. It is neither raised nor lowered
here, hence one single level. Nor is transaction.version: a client that knows less does less.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.broker.context import Api, Context
from ottla.broker.dispatch import announced
from ottla.wire.api.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.wire.errors import Error, KafkaError

METADATA_VERSION = 30


class _Feature(NamedTuple):
    """A feature's least and greatest level; the greatest is the one in force."""

    name: str
    least: int
    level: int


_FEATURES = (
    _Feature("metadata.version", METADATA_VERSION, METADATA_VERSION),
    _Feature("transaction.version", 0, 2),
)
_LEAST_MAY_BE_0 = 4

#: ApiVersionsRequest.isValid: a client's name and version, from version 3 on.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.header.api_version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                raise KafkaError(Error.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=announced(ctx.broker.apis),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=level)
            for name, least, level in _FEATURES
            if least > 0 or ctx.header.api_version >= _LEAST_MAY_BE_0
        ],
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, _, level in _FEATURES
        ],
        finalized_features_epoch=0,
    )


def on_error(request: ApiVersionsRequest, error: KafkaError) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error.error)


API = Api(
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    handle=handle,
    on_error=on_error,
)
