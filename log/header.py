"""A segment's own header: which commits it begins with, and the salt of its commits.

docs/design/log.md has the bytes. The salt is a random number that a segment's header and each of
its commits carry. Clients never see it, so no bytes of theirs can pass for a commit of the file.
"""

from __future__ import annotations

import secrets
from struct import Struct
from typing import Final, NamedTuple

from ottla.log.folder import FORMAT
from ottla.wire.codecs import Buffer

MAGIC: Final = b"OttlaSeg"
#: Flag: no LMDB environment, but commit values one after the other.
REWRITTEN: Final = 1

_COMMON: Final = Struct("<8sHHIQq")  # magic, format, flags, reserved, first commit, created
_SALT: Final = Struct("<Q")


#: Bytes of a header, by format, the newest first.
HEADER_SIZES: Final = (_COMMON.size + _SALT.size, _COMMON.size)


class BadHeader(Exception):
    """Bytes that are not a segment's header."""


class SegmentHeader(NamedTuple):
    """What a segment says of itself."""

    format: int
    flags: int
    #: Number of the first commit that may be in it.
    first: int
    #: Milliseconds since 1970.
    created_ms: int
    #: 0 in format 1, which has none.
    salt: int

    @classmethod
    def new(cls, first: int, created_ms: int, flags: int = 0) -> SegmentHeader:
        """The header of a segment that is being made."""
        return cls(FORMAT, flags, first, created_ms, secrets.randbits(64) or 1)

    @property
    def size(self) -> int:
        """Bytes."""
        return _COMMON.size + (_SALT.size if self.format > 1 else 0)

    def pack(self) -> bytes:
        """As it stands in the file."""
        head = _COMMON.pack(MAGIC, self.format, self.flags, 0, self.first, self.created_ms)
        return head + _SALT.pack(self.salt)

    @classmethod
    def read(cls, data: Buffer) -> SegmentHeader:
        """The header that `data` begins with; of a newer format without its salt. Raises
        BadHeader."""
        if len(data) < _COMMON.size:
            raise BadHeader("has no segment header")
        magic, fmt, flags, _, first, created_ms = _COMMON.unpack_from(data)
        if magic != MAGIC:
            raise BadHeader("has no segment header")
        if fmt == 1:
            return cls(fmt, flags, first, created_ms, 0)
        if len(data) < _COMMON.size + _SALT.size:
            raise BadHeader("its segment header is cut")
        return cls(fmt, flags, first, created_ms, _SALT.unpack_from(data, _COMMON.size)[0])
