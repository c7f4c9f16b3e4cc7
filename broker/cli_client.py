"""A small blocking Kafka client over `ottla.wire`, for the command line.

It works with any Kafka cluster: versions are agreed on with ApiVersions, partitions are reached at
their leaders. One request at a time. A broken connection is opened again at the next call; whether
a call is repeated is the caller's decision (`patiently`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from struct import Struct
from types import TracebackType
from typing import Final, TypeVar

from ottla.broker.cli_errors import ClientError, Unreachable, problem, raise_for
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

__all__ = ["ClientError", "Cluster", "Connection", "Unreachable", "addresses", "patiently"]

R = TypeVar("R", bound=Message)
T = TypeVar("T")
Address = tuple[str, int]

CLIENT_ID: Final = "ottla-cli"
DEFAULT_PORT: Final = 9092
CONNECT_S: Final = 5.0
"""How long a broker may take to accept a connection and to answer the first request on it."""
TIMEOUT_S: Final = 40.0
"""How long a broker may take to answer any other request: longer than the 30 s that the requests
themselves allow it."""
COORDINATOR_S: Final = 20.0
"""How long a coordinator may take to appear: the first one of a new Kafka cluster makes a topic."""
LONGEST_ANSWER: Final = 1 << 30
_LONGEST_WAIT_S: Final = 1.0
_SIZE = Struct(">i")

RETRIABLE: Final = frozenset(
    {
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.REQUEST_TIMED_OUT,
        Error.BROKER_NOT_AVAILABLE,
        Error.REPLICA_NOT_AVAILABLE,
        Error.NETWORK_EXCEPTION,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.KAFKA_STORAGE_ERROR,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.OFFSET_NOT_AVAILABLE,
        Error.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors that pass by themselves, while a broker starts or a partition moves."""


class Connection:
    """One broker, one socket, one request at a time."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        """Raises Unreachable when no broker accepts the connection."""
        self._peer = f"{host}:{port}"
        self._timeout_s = timeout_s
        try:
            self._socket = socket.create_connection((host, port), CONNECT_S)
        except OSError as error:
            raise Unreachable(f"cannot connect to {self._peer}: {_reason(error)}") from None
        except ValueError as error:  # a host name that no name server can be asked for
            raise ClientError(f"{host!r} is not a host name: {error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        self._ranges: dict[int, tuple[int, int]] | None = None
        self.usable = True
        """False within a call and after one that did not end well: the connection may carry the
        rest of an answer."""

    def close(self) -> None:
        self.usable = False
        self._socket.close()

    def call(
        self,
        request: Message,
        response: type[R],
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send a request and wait for its answer, in the newest version that both sides know.

        Raises Unreachable when the broker hangs up or does not answer in time, ClientError when it
        lacks the API or does not speak Kafka's protocol.
        """
        if version is None:
            version = self.common_version(type(request))
        self._send(request, version, self._timeout_s if timeout_s is None else timeout_s)
        answer = self._receive()
        self.usable = True
        try:
            _, body = decode_response_header(answer, 0, response_header_version(response, version))
            return decode(response, version, answer, body, len(answer))
        except FrameError as error:
            self.close()
            raise ClientError(
                f"the answer of {self._peer} is not Kafka's protocol: {error}"
            ) from None

    def tell(self, request: Message, version: int | None = None) -> None:
        """Send a request that has no answer (Produce with acks=0). Raises as `call` does."""
        if version is None:
            version = self.common_version(type(request))
        self._send(request, version, self._timeout_s)
        self.usable = True

    def common_version(self, request: type[Message]) -> int:
        """The newest version that both sides know. Raises ClientError when there is none."""
        if self._ranges is None:
            answer = self.call(ApiVersionsRequest(), ApiVersionsResponse, 0, CONNECT_S)
            self._ranges = {
                api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
            }
        low, high = self._ranges.get(request.api_key, (0, -1))
        version = min(high, request.versions[1])
        if version < max(low, request.versions[0]):
            raise ClientError(
                f"{self._peer} does not serve {request.__name__.removesuffix('Request')} in a"
                " version that this command knows"
            )
        return version

    def _send(self, request: Message, version: int, timeout_s: float) -> None:
        self._correlation_id += 1
        header = RequestHeader(request.api_key, version, self._correlation_id, CLIENT_ID)
        try:
            body = encode(request, version)
        except EncodeError as error:
            raise ClientError(f"a value does not fit Kafka's protocol: {error}") from None
        self.usable = False
        try:
            self._socket.settimeout(timeout_s)
            for buffer in enclose(encode_request_header(header, version >= request.flexible), body):
                self._socket.sendall(buffer)
        except OSError as error:
            raise self._lost(_reason(error)) from None

    def _receive(self) -> bytes:
        (size,) = _SIZE.unpack(self._exactly(4))
        if not 4 <= size <= LONGEST_ANSWER:
            self.close()
            raise ClientError(f"the answer of {self._peer} is not Kafka's protocol")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size > 0:
            try:
                part = self._socket.recv(min(size, 1 << 20))
            except TimeoutError:
                if self._ranges is None:
                    self.close()
                    raise Unreachable(
                        f"{self._peer} accepts connections but answers nothing: is it a Kafka"
                        " broker?"
                    ) from None
                raise self._lost("no answer in time") from None
            except OSError as error:
                raise self._lost(_reason(error)) from None
            if not part:
                hint = "; is it a Kafka broker?" if self._ranges is None else ""
                raise self._lost(f"the connection was closed{hint}")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _lost(self, reason: str) -> Unreachable:
        self.close()
        return Unreachable(f"{self._peer}: {reason}")


class Cluster:
    """A cluster known by one address; connections to its brokers are made when needed, and made
    again when they broke."""

    def __init__(self, bootstrap: str, timeout_s: float = TIMEOUT_S) -> None:
        """`bootstrap`: host:port, the first that answers of several with commas. Raises
        ClientError."""
        self._timeout_s = timeout_s
        self._connections: dict[Address, Connection] = {}
        self._bootstrap = addresses(bootstrap)
        self._brokers: dict[int, Address] = {}
        self._controller = -1
        self._leaders: dict[tuple[str, int], int] = {}
        self._any()

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
        return self._any().call(request, response)

    def call_controller(self, request: Message, response: type[R]) -> R:
        """Ask the broker that Metadata names as the controller: only it changes topics in clusters
        before Kafka 4."""
        self.topics([])
        address = self._brokers.get(self._controller)
        connection = self._any() if address is None else self._connection(address)
        return connection.call(request, response)

    def call_node(self, node: int, request: Message, response: type[R]) -> R:
        """Ask one broker. Raises ClientError when the cluster has none of this number."""
        self.topics([])
        if node not in self._brokers:
            known = ", ".join(map(str, sorted(self._brokers)))
            raise ClientError(f"the cluster has no broker {node}; it has {known}")
        return self._connection(self._brokers[node]).call(request, response)

    def call_leader(self, topic: str, partition: int, request: Message, response: type[R]) -> R:
        """Ask the broker that leads a partition; `topics` has been called for the topic. Raises
        KafkaError LEADER_NOT_AVAILABLE when it has none."""
        return self._leader(topic, partition).call(request, response)

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
        timeout_s: float | None = None,
    ) -> R:
        """Ask the broker that coordinates a group (key_type 1: a transactional id), in version
        `at_most` or below. Raises KafkaError when there is none."""

        def find() -> Address:
            asking = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
            (found,) = self.call(asking, FindCoordinatorResponse).coordinators
            raise_for(found.error_code, key, found.error_message)
            return found.host, found.port

        connection = self._connection(patiently(find, COORDINATOR_S))
        version = connection.common_version(type(request))
        if at_most is not None:
            version = min(at_most, version)
        return connection.call(request, response, version, timeout_s)

    def tell_leader(self, topic: str, partition: int, request: Message) -> None:
        """Send to the broker that leads a partition, without an answer."""
        self._leader(topic, partition).tell(request)

    def any_node(self) -> int:
        """The number of a broker of the cluster."""
        if not self._brokers:
            self.topics([])
        return min(self._brokers)

    def leader(self, topic: str, partition: int) -> int:
        """The number of the broker that leads a partition of a topic that `topics` returned; -1
        when it has none."""
        return self._leaders[topic, partition]

    def topics(
        self, names: Iterable[str] | None = None, *, create: bool = False
    ) -> list[MetadataResponseTopic]:
        """What the cluster says of these topics (None: all), with an error in each that is missing.
        Asks for the creation of missing topics only with `create`."""
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer = self.call(request, MetadataResponse)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._controller = answer.controller_id
        for topic in answer.topics:
            for partition in topic.partitions:
                if topic.name is not None:
                    place = topic.name, partition.partition_index
                    self._leaders[place] = partition.leader_id
        return answer.topics

    def topic(self, name: str) -> MetadataResponseTopic:
        """One topic. Raises KafkaError when it is missing."""
        (found,) = self.topics([name])
        raise_for(found.error_code, name)
        return found

    def _leader(self, topic: str, partition: int) -> Connection:
        address = self._brokers.get(self._leaders.get((topic, partition), -1))
        if address is None:
            raise problem(Error.LEADER_NOT_AVAILABLE, f"{topic} partition {partition}")
        return self._connection(address)

    def _connection(self, address: Address) -> Connection:
        known = self._connections.get(address)
        if known is None or not known.usable:
            if known is not None:
                known.close()
            known = self._connections[address] = Connection(*address, self._timeout_s)
        return known

    def _any(self) -> Connection:
        """A connection to a broker that speaks Kafka's protocol."""
        problems: list[ClientError] = []
        for address in dict.fromkeys((*self._bootstrap, *self._brokers.values())):
            try:
                connection = self._connection(address)
                connection.common_version(MetadataRequest)
                return connection
            except ClientError as error:
                problems.append(error)
        text = "; ".join(dict.fromkeys(map(str, problems)))
        passing = any(isinstance(problem, Unreachable) for problem in problems)
        hint = "" if self._brokers else " (set --bootstrap-server)"
        raise (Unreachable if passing else ClientError)(f"{text}{hint}")


def patiently(
    action: Callable[[], T],
    timeout_s: float,
    on_trouble: Callable[[Exception], None] = lambda _: None,
) -> T:
    """Run `action` until it succeeds, again after each error that passes by itself: no broker
    answers, or one of RETRIABLE. `on_trouble` gets the first error that is not over in a second,
    at once when no broker answers. Raises the last error after `timeout_s` without a success."""
    deadline: float | None = None
    wait_s = 0.05
    told = False
    while True:
        try:
            return action()
        except (Unreachable, KafkaError) as error:
            if isinstance(error, KafkaError) and error.error not in RETRIABLE:
                raise
            now = time.monotonic()
            if deadline is None:
                deadline = now + timeout_s
            if not told and (isinstance(error, Unreachable) or now >= deadline - timeout_s + 1):
                told = True
                on_trouble(error)
            if now >= deadline:
                raise
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def addresses(bootstrap: str) -> list[Address]:
    """The addresses of a bootstrap text: HOST or HOST:PORT, with commas between several. Raises
    ClientError for anything else."""
    found = []
    for part in bootstrap.split(","):
        text = part.strip()
        host, colon, port = text.rpartition(":")
        bare_ipv6 = text.count(":") > 1 and not text.startswith("[")
        if not colon or text.endswith("]") or bare_ipv6:
            host, port = text, str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or "/" in host or not (port.isascii() and port.isdigit()):
            raise ClientError(f"--bootstrap-server: {part!r} is not HOST or HOST:PORT")
        if not 0 < int(port[:6]) < 1 << 16:
            raise ClientError(f"--bootstrap-server: {part!r}: a port is a number from 1 to 65535")
        found.append((host, int(port)))
    return found


def _reason(error: OSError) -> str:
    """The system's words, as part of a sentence."""
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
