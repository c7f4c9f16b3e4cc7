"""Varints, tagged fields and the checks every length goes through before memory is taken.

The compiled decoders (see compile.py) keep their common path inline and come here for what is
rare: a varint of more than one byte, tagged fields that are really there, a length that is wrong.
"""

from collections.abc import Callable
from struct import Struct
from typing import TypeAlias

from ottla.wire.errors import FrameError, Long

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID = bytes(16)
"""The uuid of nothing: how a message says that it names no topic by id."""

MAX_STRING = 0x7FFF
"""Longest string in bytes. Compact strings could be longer, Kafka refuses them all the same."""

MAX_ELEMENTS = 1 << 15
"""Most elements that one message may hold, in all its arrays together: structs, strings, numbers
and tagged fields. (A short array of numbers at the very end may go over it.)

The smallest element takes a byte of a frame, and some five hundred in memory with what is answered
to it, so that frames of the size Produce must be allowed would be a way to fill it. There
is room for the 10,000 partitions of a large cluster three times, or once each with a topic and
two numbers of its own."""

FEW_ELEMENTS = 1 << 11
"""A message of more elements than this is read and written in steps: it takes milliseconds."""

STEP_ELEMENTS = 64
"""Elements that are read or written in one step of a long message, give or take one array of
numbers."""

MAX_TAGS = 127
"""Most tagged fields in one struct. Kafka's messages have five at most."""

ONE_BYTE = tuple(bytes((n,)) for n in range(128))
"""Every varint of one byte, ready made."""


def encode_uvarint(value: int) -> bytes:
    """An unsigned varint: 7 bits a byte, low bits first. `value` is 0 to 2**32 - 1."""
    if value < 128:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; gives the value and the position after it.

    Raises FrameError when it takes more than five bytes or 32 bits, IndexError at the end of buf.
    """
    byte = buf[pos]
    return (byte, pos + 1) if byte < 128 else more_uvarint(buf, pos + 1, byte)


def more_uvarint(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Read on after the `first` byte of a varint, which has its high bit set."""
    value = first & 127
    shift = 7
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise FrameError("varint is longer than five bytes")
    if value > 0xFFFFFFFF:
        raise FrameError("varint is larger than 32 bits")
    return value, pos


def byte_length(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Read a varint of several bytes that starts at `pos`; gives the position of its *last* byte,
    where the compiled decoders stand while they read what the varint is the length of."""
    value, pos = more_uvarint(buf, pos + 1, first)
    return value, pos - 1


def string_length(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """`byte_length` for a compact string, whose length has a limit."""
    value, pos = byte_length(buf, pos, first)
    if value > MAX_STRING + 1:
        raise FrameError(f"string of {value - 1} bytes is longer than {MAX_STRING}")
    return value, pos


def encode_string_length(value: int) -> bytes:
    """The varint of a compact string's length plus one, when that takes more than one byte."""
    if value > MAX_STRING + 1:
        raise ValueError(f"string of {value - 1} bytes is longer than {MAX_STRING}")
    return encode_uvarint(value)


def replaced(data: Buffer) -> str:
    """A string of a request that is not UTF-8, with U+FFFD for what cannot be read, as Kafka's
    broker has it (Readable.readString).

    Raises FrameError when it has become too long for a string of an answer.
    """
    text = str(data, "utf-8", "replace")
    if len(text.encode()) > MAX_STRING:
        raise FrameError(f"string of {len(data)} bytes, not UTF-8, is too long to be repeated")
    return text


def bad_length(length: int, left: int) -> FrameError:
    """The error for a string, bytes or records field that cannot be `length` bytes long."""
    if length == -1:
        return FrameError("null where none may be")
    if length < 0:
        return FrameError(f"negative length {length}")
    return FrameError(f"length {length} is more than the {left} bytes left")


def bad_count(count: int, size: int, left: int) -> FrameError:
    """The error for an array that cannot have `count` elements of at least `size` bytes."""
    if count == -1:
        return FrameError("null where none may be")
    if count < 0:
        return FrameError(f"negative count {count}")
    if count * size > left:
        return FrameError(
            f"{count} elements of at least {size} bytes are more than the {left} bytes left"
        )
    return FrameError(f"{count} more elements are over the number that a message may hold")


def bad_or_long(count: int, size: int, left: int) -> Exception:
    """`bad_count` of a decoder that reads no more than FEW_ELEMENTS."""
    if count < 0 or count * size > left:
        return bad_count(count, size, left)
    return Long()


def trailing(count: int) -> FrameError:
    """The error for a message that ends before its frame does."""
    return FrameError(f"{count} bytes are left over after the message")


def read_numbers(
    buf: Buffer,
    pos: int,
    count: int,
    letter: str,
    size: int,
    room: int,
    bad: Callable[[int, int, int], Exception],
) -> tuple[list[int], int]:
    """Read an array of `count` numbers of `size` bytes each, whose struct letter is given.

    The way of arrays too long for the tables of compile_decode.py, of wrong counts, and of more
    elements than there is `room` for; both raise what `bad` gives.
    """
    left = len(buf) - pos
    if not 0 <= count * size <= left or room < 0:
        raise bad(count, size, left)
    return list(Struct(f">{count}{letter}").unpack_from(buf, pos)), pos + count * size


def tag_count(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Number of tagged fields in a section whose first byte has been read and is not zero."""
    count = first
    if first > MAX_TAGS:
        raise FrameError(f"more than {MAX_TAGS} tagged fields in one struct")
    left = len(buf) - pos
    if count * 2 > left:
        raise bad_count(count, 2, left)
    return count, pos


def read_tag(buf: Buffer, pos: int, last: int) -> tuple[int, int, int]:
    """Read the head of one tagged field: (tag, where its value starts, where it ends).

    Tags rise strictly from the `last` one (KIP-482): one that repeats would be set twice.
    """
    tag, pos = read_uvarint(buf, pos)
    size, pos = read_uvarint(buf, pos)
    if tag <= last:
        raise FrameError(f"tag {tag} after tag {last}: tags must rise and not repeat")
    left = len(buf) - pos
    if size > left:
        raise FrameError(f"tagged field {tag} of {size} bytes is more than the {left} bytes left")
    return tag, pos, pos + size


def bad_tag_size(tag: int, expected: int, got: int) -> FrameError:
    """The error for a tagged field whose value does not end where its size says."""
    return FrameError(f"tagged field {tag} ends at byte {got}, its size says byte {expected}")


def skip_tags(buf: Buffer, pos: int, first: int) -> int:
    """Step over a section of tagged fields we know none of, as KIP-482 wants; gives its end."""
    count, pos = tag_count(buf, pos, first)
    last = -1
    for _ in range(count):
        last, _, pos = read_tag(buf, pos, last)
    return pos
