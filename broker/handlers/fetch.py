"""Fetch: record batches from an offset on, with a long poll and incremental sessions.

Versions 4 to 18; the first that Kafka 4 serves is 4.

    4   isolation level, last stable offset, aborted transactions
    5   log start offset
    7   incremental sessions (KIP-227), see sessions.py
    9   the client's leader epoch is checked (KIP-320)
    11  rack, preferred read replica: -1, there is one replica (0 would send clients to broker 0)
    12  flexible; last fetched epoch and where logs diverge (KIP-595)
    13  topics by id, names no more
    15+ fields of replicas, which a broker alone has none of
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.context import Api, Context, Parked
from ottla.broker.fetching import Reading
from ottla.broker.partitions import committed_only
from ottla.broker.slices import whole
from ottla.wire.api.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.errors import Error, KafkaError

#: These say that nothing is known of the session, so there are no partitions to answer for.
_SESSION_ERRORS = frozenset(
    (
        Error.FETCH_SESSION_ID_NOT_FOUND,
        Error.INVALID_FETCH_SESSION_EPOCH,
        Error.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)


def handle(
    ctx: Context, request: FetchRequest
) -> FetchResponse | Parked | Generator[None, None, FetchResponse | Parked]:
    if ctx.is_long:
        return _steps(ctx, request)
    return whole(_steps(ctx, request))


def _steps(ctx: Context, request: FetchRequest) -> Generator[None, None, FetchResponse | Parked]:
    committed_only(request.isolation_level)  # refused before it touches a session
    begin = ctx.broker.sessions.begin_steps
    now_ms = ctx.broker.clock.monotonic_ms()
    fetch = yield from begin(request, ctx.header.api_version, now_ms)
    return Reading(ctx, request, fetch).start()


def on_error(request: FetchRequest, error: KafkaError) -> FetchResponse:
    """Before version 7 there is no error field on top: the partitions carry it too. Kafka leaves
    them out where topics have no names."""
    code = error.error
    if code in _SESSION_ERRORS:
        return FetchResponse(error_code=code)
    return FetchResponse(
        error_code=code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition, error_code=code, high_watermark=-1
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.topic
        ],
    )


API = Api(request=FetchRequest, response=FetchResponse, handle=handle, on_error=on_error)
