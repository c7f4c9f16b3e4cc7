"""Reading and writing messages: (message, version) becomes two Python functions, built on first
use from the message's class and kept.

The functions are plain Python source, made by compile_decode.py and compile_encode.py: no loop
over fields, no call per field, one `struct` call for each run of fixed-size fields. `source`
shows what was made; tracebacks show it too.

A message of more than FEW_ELEMENTS takes milliseconds. Who has other things to do meanwhile calls
`decoders` and `encode_few`, which raise Long for such a message, and then takes the steps of
`decode_steps` and `encode_steps`.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from ottla.wire.compile_decode import decoder, long_decoder
from ottla.wire.compile_encode import encoder, long_encoder
from ottla.wire.compile_source import Source
from ottla.wire.errors import Long
from ottla.wire.primitives import MAX_ELEMENTS, Buffer
from ottla.wire.schema import Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def decode(cls: type[M], version: int, buf: Buffer, pos: int = 0, most: int = MAX_ELEMENTS) -> M:
    """Read the message that fills `buf` from `pos` to its end.

    Strings and bytes are copied out; `records` fields are memoryviews of `buf`, which must then
    not change while they are in use. Unknown tagged fields are skipped. `most`: elements it may
    hold, in all its arrays together.
    Raises FrameError, whose text names field and byte, when the bytes are not such a message;
    ValueError when the message has no such version.
    """
    try:
        message: M = _DECODERS[cls][version](buf, pos)
    except Long:
        return _all(decode_steps(cls, version, buf, pos, most))
    return message


def decode_steps(
    cls: type[M], version: int, buf: Buffer, pos: int = 0, most: int = MAX_ELEMENTS
) -> Generator[None, None, M]:
    """`decode` as a generator: it yields after every STEP_ELEMENTS and returns the message."""
    steps: Generator[None, None, M] = _LONG_DECODERS[cls][version](buf, pos, most)
    return steps


def decoders(cls: type[M]) -> Mapping[int, Callable[[Buffer, int], M]]:
    """Functions that read a message (buffer, position) as `decode` does, by version; each is made
    when first asked for. They raise Long when it has more than FEW_ELEMENTS."""
    return _DECODERS[cls]


def encode(message: Message, version: int) -> list[Buffer]:
    """Write `message` as buffers to be sent one after another; there is at least one.

    What is given in `records` fields is passed on without a copy; all else is joined, so that a
    message without records is one bytes object.
    Raises EncodeError, whose text names the field, when the message does not fit the version;
    ValueError when it has no such version.
    """
    try:
        return encode_few(message, version)
    except Long:
        return _all(encode_steps(message, version))


def encode_few(message: Message, version: int) -> list[Buffer]:
    """`encode` for a message of at most FEW_ELEMENTS, numbers not counted; raises Long at more."""
    buffers: list[Buffer] = _ENCODERS[message.__class__][version](message)
    return buffers


def encode_steps(message: Message, version: int) -> Generator[None, None, list[Buffer]]:
    """`encode` as a generator: it yields after every STEP_ELEMENTS and returns the buffers."""
    steps: Generator[None, None, list[Buffer]]
    steps = _LONG_ENCODERS[message.__class__][version](message)
    return steps


def _all(steps: Generator[None, None, T]) -> T:
    """What a generator returns when all its steps are taken."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


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
_LONG_DECODERS = _Messages(long_decoder)
_ENCODERS = _Messages(encoder)
_LONG_ENCODERS = _Messages(long_encoder)


def _check(cls: type[Message], version: int) -> None:
    first, last = cls.versions
    if not first <= version <= last:
        raise ValueError(f"{cls.__name__} has versions {first} to {last}, not {version}")
