"""DescribeCluster v0-2: the cluster's id, controller and brokers. v1 endpoint type (KIP-919); v2
fenced brokers, of which there are none (KIP-1073)."""

from __future__ import annotations

from ottla.broker.context import Api, Context
from ottla.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.wire.api.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.wire.errors import Error, KafkaError

BROKERS, CONTROLLERS = 1, 2


def handle(ctx: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(
            Error.MISMATCHED_ENDPOINT_TYPE, "this is a broker, not a controller: ask for brokers"
        )
    if request.endpoint_type != BROKERS:
        raise KafkaError(
            Error.UNSUPPORTED_ENDPOINT_TYPE, f"endpoint type {request.endpoint_type} is unknown"
        )
    broker, listener = ctx.broker, ctx.listener
    return DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=listener.advertised_host,
                port=listener.advertised_port,
                rack=broker.config.broker_rack,
            )
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def on_error(request: DescribeClusterRequest, error: KafkaError) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=error.error, error_message=error.message)


API = Api(
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
    handle=handle,
    on_error=on_error,
)
