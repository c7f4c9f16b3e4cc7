"""Frames: a size of four bytes, then that many bytes of header and message."""

from collections.abc import Iterator
from struct import Struct

from ottla.wire.errors import FrameError
from ottla.wire.primitives import Buffer

PREFIX = 4
"""Bytes of size in front of every frame."""

_SIZE = Struct(">i")


def frame_size(buf: Buffer, pos: int, limit: int) -> int:
    """The size of the frame whose four bytes of size are at `pos`, without them.

    Raises FrameError when it is negative or above `limit` (socket.request.max.bytes). A size of
    1,195,725,856 and the like is text: somebody speaks HTTP or TLS to this port.
    """
    (size,) = _SIZE.unpack_from(buf, pos)
    if not 0 <= size <= limit:
        begin = bytes(buf[pos : pos + PREFIX])
        raise FrameError(f"a frame of {size} bytes (it begins {begin!r}); the limit is {limit}")
    return int(size)


def split(buf: Buffer, limit: int) -> Iterator[memoryview]:
    """The frames in `buf`, as views without their sizes; a part of a frame at its end is left.

    Raises FrameError as `frame_size` does.
    """
    view = memoryview(buf)
    pos = 0
    while len(view) - pos >= PREFIX:
        end = pos + PREFIX + frame_size(view, pos, limit)
        if end > len(view):
            return
        yield view[pos + PREFIX : end]
        pos = end


def enclose(header: bytes, body: list[Buffer]) -> list[Buffer]:
    """One frame of a header and what `compile.encode` gave; buffers after the first stay as they
    are."""
    size = len(header) + sum(map(len, body))
    return [b"".join((_SIZE.pack(size), header, body[0])), *body[1:]]
