"""ApiVersions: what is served. Versions 0 to 4; an unknown one is answered by dispatch.py.

3   flexible (but for its response header), the client's software, features
4   features may have 0 as their least version; before, such a feature is not among those
    supported, because older clients cannot read it (KAFKA-17492)
"""

from __future__ import annotations

import re

from ottla.broker.context import Api, Context
from ottla.broker.dispatch import announced
from ottla.wire.api.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.wire.errors import Error, KafkaError

_LEAST_MAY_BE_0 = 4

#: ApiVersionsRequest.isValid: a client's name and version, from version 3 on.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(ctx: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.header.api_version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                raise KafkaError(Error.INVALID_REQUEST)
    features = ctx.broker.features
    return ApiVersionsResponse(
        api_keys=announced(ctx.broker.apis),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=greatest)
            for (name, least, greatest), _ in features
            if least > 0 or ctx.header.api_version >= _LEAST_MAY_BE_0
        ],
        finalized_features=[
            FinalizedFeatureKey(name=feature.name, min_version_level=level, max_version_level=level)
            for feature, level in features
            if level > 0
        ],
        finalized_features_epoch=features.epoch,
    )


def on_error(request: ApiVersionsRequest, error: KafkaError) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error.error)


API = Api(
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    handle=handle,
    on_error=on_error,
)
