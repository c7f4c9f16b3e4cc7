"""Reading and writing messages: (message, version) becomes two Python functions, built on first
use from the message's class and kept.

The functions are plain Python source, made by compile_decode.py and compile_encode.py: no loop
over fields, no call per field, one `struct` call for each run of fixed-size fields. `source`
shows what was made; tracebacks show it too.
"""

from typing import TypeVar, cast

from ottla.wire.compile_decode import Decode, decoder
from ottla.wire.compile_encode import Encode, encoder
from ottla.wire.primitives import Buffer
from ottla.wire.schema import Message

M = TypeVar("M", bound=Message)

_DECODERS: dict[tuple[type[Message], int], Decode] = {}
_ENCODERS: dict[tuple[type[Message], int], Encode] = {}


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0) -> M:
    """Read the message that fills `buf` from `pos` to its end.

    Strings and bytes are copied out; `records` fields are memoryviews of `buf`, which must then
    not change while they are in use. Unknown tagged fields are skipped.
    Raises FrameError, whose text names field and byte, when the bytes are not such a message;
    ValueError when the message has no such version.
    """
    key = cls, version
    function = _DECODERS.get(key)
    if function is None:
        _check(cls, version)
        function = _DECODERS[key] = decoder(cls, version).build()
    return cast(M, function(buf, pos))


def encode(message: Message, version: int) -> list[Buffer]:
    """Write `message` as buffers to be sent one after another.

    What is given in `records` fields is passed on without a copy; all else is joined, so that a
    message without records is one bytes object.
    Raises EncodeError, whose text names the field, when the message does not fit the version;
    ValueError when it has no such version.
    """
    key = message.__class__, version
    function = _ENCODERS.get(key)
    if function is None:
        _check(key[0], version)
        function = _ENCODERS[key] = encoder(key[0], version).build()
    return function(message)


def source(cls: type[Message], version: int) -> str:
    """The functions made for a message and version, to read while debugging."""
    _check(cls, version)
    return decoder(cls, version).text() + "\n" + encoder(cls, version).text()


def _check(cls: type[Message], version: int) -> None:
    first, last = cls.versions
    if not first <= version <= last:
        raise ValueError(f"{cls.__name__} has versions {first} to {last}, not {version}")
