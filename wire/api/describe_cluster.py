"""DescribeCluster: id, brokers and controller of the cluster (KIP-700)."""

from ottla.wire.schema import Message, array, boolean, int8, int16, int32, message, string, struct


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest(Message):
    """The cluster as brokers (endpoint type 1) or controllers (2) see it."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@struct
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(null="0+", default=None)
    is_fenced: bool = boolean("2+")


@message(key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse(Message):
    """The cluster's id, its controller and its brokers."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)
