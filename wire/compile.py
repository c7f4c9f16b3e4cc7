"""Reading and writing messages: (message, version) becomes two Python functions, built on first
use from the message's class and kept.

The functions are plain Python source, made by compile_decode.py and compile_encode.py: no loop
over fields, no call per field, one `struct` call for each run of fixed-size fields. `source`
shows what was made; tracebacks show it too.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ottla.wire.compile_decode import decoder
from ottla.wire.compile_encode import encoder
from ottla.wire.compile_source import Source
from ottla.wire.primitives import Buffer
from ottla.wire.schema import Message

M = TypeVar("M", bound=Message)


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> M:
    """Read the message that fills `buf` from `pos` to its end.

    Strings and bytes are copied out; `records` fields are memoryviews of `buf`, which must then
    not change while they are in use. Unknown tagged fields are skipped.
    Raises FrameError, whose text names field and byte, when the bytes are not such a message;
    ValueError when the message has no such version.
    """
    message: M = _DECODERS[cls][version](buf, pos)
    return message


def decoders(cls: type[M]) -> Mapping[int, Callable[[Buffer, int], M]]:
    """What `decode` calls, by version, for who keeps it; each is made when first asked for."""
    return _DECODERS[cls]


def encode(message: Message, version: int) -> list[Buffer]:
    """Write `message` as buffers to be sent one after another; there is at least one.

    What is given in `records` fields is passed on without a copy; all else is joined, so that a
    message without records is one bytes object.
    Raises EncodeError, whose text names the field, when the message does not fit the version;
    ValueError when it has no such version.
    """
    buffers: list[Buffer] = _ENCODERS[message.__class__][version](message)
    return buffers


def source(cls: type[Message], version: int) -> str:
    """The functions made for a message and version, to read while debugging."""
    _check(cls, version)
    return decoder(cls, version).text() + "\n" + encoder(cls, version).text()


Make = Callable[[type[Message], int], Source]


class _Versions(dict[int, Any]):
    """The functions of one message by version, made when first asked for."""

    def __init__(self, make: Make, cls: type[Message]) -> None:
        super().__init__()
        self.make = make
        self.cls = cls

    def __missing__(self, version: int) -> Any:
        _check(self.cls, version)
        function = self[version] = self.make(self.cls, version).build()
        return function


class _Messages(dict[type[Message], _Versions]):
    """The functions of every message. Two look-ups by identity and by a small number take half
    the time of one by a pair."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, cls: type[Message]) -> _Versions:
        versions = self[cls] = _Versions(self.make, cls)
        return versions


_DECODERS = _Messages(decoder)
_ENCODERS = _Messages(encoder)


def _check(cls: type[Message], version: int) -> None:
    first, last = cls.versions
    if not first <= version <= last:
        raise ValueError(f"{cls.__name__} has versions {first} to {last}, not {version}")
