"""One connection to a broker, frame by frame."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from compat_tests.raw import schema
from compat_tests.raw.schema import Struct

API_VERSIONS_KEY = 18


class Closed(Exception):
    """The broker closed the connection where an answer was due."""


class Silent(Exception):
    """The broker sent nothing in the time it had."""


class Wire:
    """Sends requests and receives their answers; nothing is checked but lengths."""

    def __init__(
        self, host: str, port: int, *, client_id: str | None = "raw", timeout: float = 30
    ) -> None:
        self.client_id = client_id
        self.socket = socket.create_connection((host, port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next_correlation_id = 1
        self._received = bytearray()
        """Of a frame that has not come whole yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def header(self, key: int, version: int, correlation_id: int, flexible: bool) -> bytes:
        """Request header v1, or v2 when flexible: the client id stays an int16-length string."""
        start = struct.pack(">hhi", key, version, correlation_id) + schema.string(self.client_id)
        return start + (b"\0" if flexible else b"")

    def send_frame(self, data: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(data)) + data)

    def encode(self, api: str, version: int, correlation_id: int = 0, **fields: Any) -> bytes:
        """A frame without its length."""
        message = schema.request(api)
        header = self.header(message.key, version, correlation_id, version in message.flexible)
        return header + message.encode(version, fields)

    def send(self, api: str, version: int, **fields: Any) -> int:
        """Send a request; the correlation id."""
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self.send_frame(self.encode(api, version, correlation_id, **fields))
        return correlation_id

    def receive_frame(self, timeout: float | None = None) -> bytes:
        """Raises Closed, or Silent when nothing comes in the time (30 s unless given)."""
        before = self.socket.gettimeout()
        if timeout is not None:
            self.socket.settimeout(timeout)
        try:
            self._read_to(4)
            end = 4 + struct.unpack_from(">i", self._received)[0]
            self._read_to(end)
            frame, self._received = bytes(self._received[4:end]), bytearray()
            return frame
        finally:
            self.socket.settimeout(before)

    def _read_to(self, size: int) -> None:
        data = self._received
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except TimeoutError:
                raise Silent(f"{len(data)} of {size} bytes") from None
            except ConnectionError as error:
                raise Closed(str(error)) from None
            if not part:
                raise Closed(f"after {len(data)} of {size} bytes")
            data += part

    def receive(
        self, api: str, version: int, *, timeout: float | None = None
    ) -> tuple[int, Struct]:
        """The next answer, taken to be one of this API and version: correlation id and body."""
        frame = self.receive_frame(timeout)
        message = schema.response(api)
        (correlation_id,) = struct.unpack_from(">i", frame)
        position = 4
        if version in message.flexible and message.key != API_VERSIONS_KEY:
            assert frame[4] == 0, f"tagged fields in the header of {api} v{version}"
            position = 5
        return correlation_id, message.decode(version, frame[position:])

    def call(self, api: str, version: int, **fields: Any) -> Struct:
        """Send and receive; the answer must be for this request."""
        sent = self.send(api, version, **fields)
        received, body = self.receive(api, version)
        assert received == sent, f"{api}: answer {received} to request {sent}"
        return body

    def is_closed(self, timeout: float = 30) -> bool:
        """True when the broker closes the connection without another byte."""
        self.socket.settimeout(timeout)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False
