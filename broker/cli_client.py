"""A small blocking Kafka client over `ottla.wire`, for the command line.

It speaks to any Kafka broker: versions are agreed on with ApiVersions, partitions are reached at
their leaders. One request at a time and no retries: a person is watching.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable
from struct import Struct
from types import TracebackType
from typing import TypeVar, cast

from ottla.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.wire.compile import decode, encode
from ottla.wire.errors import EncodeError, Error, FrameError, KafkaError
from ottla.wire.frame import enclose
from ottla.wire.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    response_header_version,
)
from ottla.wire.schema import Message

R = TypeVar("R", bound=Message)
Address = tuple[str, int]

CLIENT_ID = "ottla-cli"
TIMEOUT_S = 30.0
_SIZE = Struct(">i")


class ClientError(Exception):
    """The cluster cannot be spoken to; the text says whom we asked and what came of it."""


class Connection:
    """One broker, one socket, one request at a time."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        """Raises ClientError when nobody answers."""
        self._peer = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise ClientError(f"no broker at {self._peer}: {error.strerror or error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._ranges: dict[int, tuple[int, int]] | None = None

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Message, response: type[R], version: int | None = None) -> R:
        """Send a request and wait for its answer, in the newest version that both sides know.

        Raises ClientError when the broker hangs up, does not answer in time or lacks the API.
        """
        if version is None:
            version = self.common_version(type(request))
        self._correlation_id += 1
        flexible = version >= request.flexible
        header = RequestHeader(request.api_key, version, self._correlation_id, CLIENT_ID)
        try:
            for buffer in enclose(
                encode_request_header(header, flexible), encode(request, version)
            ):
                self._socket.sendall(buffer)
            answer = self._receive()
        except OSError as error:
            raise ClientError(f"{self._peer}: {error}") from None
        except EncodeError as error:
            raise ClientError(f"Kafka's protocol cannot say it: {error}") from None
        _, body = decode_response_header(answer, 0, response_header_version(response, version))
        try:
            return decode(response, version, answer, body, len(answer))
        except FrameError as error:
            raise ClientError(
                f"{self._peer} answers what is not Kafka's protocol: {error}"
            ) from None

    def tell(self, request: Message, version: int | None = None) -> int:
        """Send a request and do not wait (Produce with acks=0 has no answer); gives its version."""
        if version is None:
            version = self.common_version(type(request))
        self._correlation_id += 1
        flexible = version >= request.flexible
        header = RequestHeader(request.api_key, version, self._correlation_id, CLIENT_ID)
        body = encode(request, version)
        try:
            for buffer in enclose(encode_request_header(header, flexible), body):
                self._socket.sendall(buffer)
        except OSError as error:
            raise ClientError(f"{self._peer}: {error}") from None
        return version

    def _receive(self) -> bytes:
        (size,) = _SIZE.unpack(self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size > 0:
            try:
                part = self._socket.recv(min(size, 1 << 20))
            except OSError as error:
                raise ClientError(f"{self._peer}: {error}") from None
            if not part:
                raise ClientError(f"{self._peer} closed the connection; is it a Kafka broker?")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def common_version(self, request: type[Message]) -> int:
        """The newest version that both sides know. Raises ClientError when there is none."""
        if self._ranges is None:
            answer = self.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
            self._ranges = {
                api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
            }
        low, high = self._ranges.get(request.api_key, (0, -1))
        version = min(high, request.versions[1])
        if version < max(low, request.versions[0]):
            raise ClientError(
                f"{self._peer} does not serve {request.__name__} in a version we speak"
            )
        return version


class Cluster:
    """A cluster known by one address; connections to its brokers are made when needed."""

    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S) -> None:
        """`bootstrap`: host:port, the first that answers of several with commas. Raises
        ClientError."""
        self._timeout_s = timeout_s
        self._connections: dict[Address, Connection] = {}
        self._bootstrap = self._first(addresses(bootstrap))
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[tuple[str, int], int] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    def call(self, request: Message, response: type[R]) -> R:
        """Ask any broker."""
        return self._connections[self._bootstrap].call(request, response)

    def call_leader(self, topic: str, partition: int, request: Message, response: type[R]) -> R:
        """Ask the broker that leads a partition; `topics` has been called for the topic."""
        address = self._brokers[self._leaders[topic, partition]]
        return self._connection(address).call(request, response)

    def call_all(self, request: Message, response: type[R]) -> list[R]:
        """Ask every broker of the cluster: each knows its own groups only."""
        self.topics([])
        return [self._connection(at).call(request, response) for at in self._brokers.values()]

    def call_coordinator(
        self,
        key: str,
        request: Message,
        response: type[R],
        at_most: int | None = None,
        *,
        key_type: int = 0,
    ) -> R:
        """Ask the broker that coordinates a group (key_type 1: a transactional id), in version
        `at_most` or below. Raises KafkaError when there is none."""
        asking = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
        (found,) = self.call(asking, FindCoordinatorResponse).coordinators
        raise_for(found.error_code, found.error_message)
        connection = self._connection((found.host, found.port))
        if at_most is None:
            return connection.call(request, response)
        version = min(at_most, connection.common_version(type(request)))
        return connection.call(request, response, version)

    def tell_leader(self, topic: str, partition: int, request: Message) -> None:
        """Send to the broker that leads a partition, without an answer."""
        self._connection(self._brokers[self._leaders[topic, partition]]).tell(request)

    def leader(self, topic: str, partition: int) -> int:
        """The number of the broker that leads a partition of a topic that `topics` told of."""
        return self._leaders[topic, partition]

    def topics(self, names: Iterable[str] | None = None) -> list[MetadataResponseTopic]:
        """What the cluster says of these topics (None: all), with an error in each that is not
        there. Never makes a topic."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer = self.call(request, MetadataResponse)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            for partition in topic.partitions:
                if topic.name is not None:
                    place = topic.name, partition.partition_index
                    self._leaders[place] = partition.leader_id
        return answer.topics

    def _connection(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(*address, self._timeout_s)
        return self._connections[address]

    def _first(self, candidates: list[Address]) -> Address:
        problem: ClientError | None = None
        for address in candidates:
            try:
                self._connection(address)
                return address
            except ClientError as error:
                problem = error
        raise ClientError(f"{problem}; --bootstrap-server says where one is")


def addresses(bootstrap: str) -> list[Address]:
    """The addresses of a bootstrap text. Raises ClientError for one that is not host:port."""
    found = []
    for part in bootstrap.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdigit():
            raise ClientError(f"--bootstrap-server: {part!r} is not host:port")
        found.append((host.strip("[]"), int(port)))
    return found


def response_of(request: type[Message]) -> type[Message]:
    """The response class beside a request class."""
    module = sys.modules[request.__module__]
    return cast("type[Message]", getattr(module, request.__name__.replace("Request", "Response")))


def raise_for(code: int, message: str | None = None) -> None:
    """Raises KafkaError when an answer's error code is one."""
    if code:
        raise KafkaError(Error(code), message)
