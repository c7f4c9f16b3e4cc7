"""What stands before a message in its frame.

Requests: version 1 (key, version, correlation id, client id), or version 2 with tagged fields
after it for flexible messages. The client id keeps its old, non-compact form in version 2, so that
a broker can read who it is even of a request it does not know. (Version 0, without client id, went
away with ControlledShutdown.)

Responses: the correlation id, in version 1 followed by tagged fields. A response to ApiVersions
always has version 0, also where its body is flexible: a client that sends it does not know yet
what the broker speaks (KIP-511).
"""

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from ottla.wire.errors import FrameError
from ottla.wire.primitives import Buffer, replaced, skip_tags
from ottla.wire.schema import Message

API_VERSIONS = 18

_FIXED = Struct(">hhih")
_CORRELATION_ID = Struct(">i")


@dataclass(slots=True)
class RequestHeader:
    """The header of a request, whatever its version. Made in half the time of a tuple with names:
    every request has one."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(cls: type[Message], version: int) -> int:
    """Version of the header in front of this request: 1 or 2."""
    return 2 if version >= cls.flexible else 1


def response_header_version(cls: type[Message], version: int) -> int:
    """Version of the header in front of this response: 0 or 1."""
    return 1 if version >= cls.flexible and cls.api_key != API_VERSIONS else 0


def decode_request_header(
    buf: Buffer, pos: int = 0, flexible: bool = False
) -> tuple[RequestHeader, int]:
    """Read the header at `pos`, of version 2 if `flexible`; also gives where the message begins.

    In a client id, bytes that are not UTF-8 become U+FFFD. Raises FrameError.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(buf, pos)
        pos += _FIXED.size
        client_id = None
        if length >= 0:
            end = pos + length
            if end > len(buf):
                raise FrameError(f"client id of {length} bytes, {len(buf) - pos} are left")
            try:
                client_id = str(buf[pos:end], "utf-8")
            except UnicodeDecodeError:
                client_id = replaced(buf[pos:end])
            pos = end
        elif length != -1:
            raise FrameError(f"client id of negative length {length}")
        if flexible:
            tags = buf[pos]
            pos = pos + 1 if tags == 0 else skip_tags(buf, pos + 1, tags)
    except FrameError as error:
        raise FrameError(f"request header: {error}") from None
    except (StructError, IndexError):
        raise FrameError(f"request header: the frame of {len(buf)} bytes ends in it") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id), pos


def encode_request_header(header: RequestHeader, flexible: bool) -> bytes:
    """What a client sends; the counterpart of `decode_request_header`."""
    client_id = None if header.client_id is None else header.client_id.encode()
    length = -1 if client_id is None else len(client_id)
    fixed = _FIXED.pack(header.api_key, header.api_version, header.correlation_id, length)
    return fixed + (client_id or b"") + (b"\0" if flexible else b"")


def decode_response_header(buf: Buffer, pos: int = 0, version: int = 0) -> tuple[int, int]:
    """Read a response's header: its correlation id, and where the message begins.

    Raises FrameError.
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buf, pos)
        pos += _CORRELATION_ID.size
        if version >= 1:
            tags = buf[pos]
            pos = pos + 1 if tags == 0 else skip_tags(buf, pos + 1, tags)
    except (StructError, IndexError):
        raise FrameError(f"response header: the frame of {len(buf)} bytes ends in it") from None
    return correlation_id, pos


def encode_response_header(correlation_id: int, version: int) -> bytes:
    """The header of a response, `version` by `response_header_version`."""
    return _CORRELATION_ID.pack(correlation_id) + (b"\0" if version >= 1 else b"")
