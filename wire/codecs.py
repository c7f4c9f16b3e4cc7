"""The five codecs of record batches: gzip, snappy, lz4, zstd and none, through zlib and cramjam.

Sizes that the data claims about itself are never believed: every decompression has a bound in
bytes and fails with CodecError at it, before more memory than that is taken.

What clients write, and what each of them can read, decides what is written here:

- gzip: one or several members.
- snappy: Java, kafka-python and aiokafka write the framing of the `snappy-java` library (blocks
  of 32 KiB); librdkafka writes one raw block. All read both; we write Java's.
- lz4: the frame format. Java refuses blocks that refer to earlier ones, so independent blocks are
  written.
- zstd: a frame, usually without its size, as streaming writers make it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

Buffer = bytes | bytearray | memoryview

#: Most that one batch may hold when decompressed, in bytes, where the caller has no better bound.
#: A producer's batch.size counts compressed bytes, so a batch of well packed text may be large
#: and honest.
DECOMPRESSED_LIMIT: Final = 128 * 1024 * 1024


class Codec(IntEnum):
    """The low three bits of a batch's attributes; names are the values of compression.type."""

    none = 0
    gzip = 1
    snappy = 2
    lz4 = 3
    zstd = 4


class CodecError(Exception):
    """Data that is not what its codec says, is cut short, or is larger than the bound."""


#: Level when none is asked for (-1 for gzip is zlib's own choice), and the range allowed, as
#: Kafka's topic settings compression.gzip.level, compression.lz4.level and compression.zstd.level
#: have them (KIP-390).
LEVELS: Final[dict[Codec, tuple[int, int, int]]] = {
    Codec.gzip: (-1, 1, 9),
    Codec.lz4: (9, 1, 17),
    Codec.zstd: (3, -131072, 22),
}


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` in `codec`, at `level` or the codec's default (LEVELS; snappy and none have no
    levels).
    """
    return _COMPRESS[codec](data, level if level is not None else LEVELS.get(codec, (0,))[0])


def decompress(codec: Codec | int, data: Buffer, limit: int = DECOMPRESSED_LIMIT) -> Buffer:
    """What `data` holds; `data` itself when it is not compressed.

    Raises CodecError for an unknown codec, for damaged data and for more than `limit` bytes.
    """
    try:
        return _DECOMPRESS[codec](data, limit)
    except KeyError:
        raise CodecError(f"unknown compression codec {int(codec)}") from None


# --------------------------------------------------------------------------------------- none, gzip


def _keep(data: Buffer, level: int) -> bytes:
    return bytes(data)


def _plain(data: Buffer, limit: int) -> Buffer:
    if len(data) > limit:
        raise CodecError(f"{len(data)} bytes where at most {limit} are allowed")
    return data


def _gzip(data: Buffer, level: int) -> bytes:
    return zlib.compress(data, level, wbits=31)


def _gunzip(data: Buffer, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(rest, left + 1)
        except zlib.error as error:
            raise CodecError(f"gzip: {error}") from None
        left -= len(part)
        if left < 0:
            raise CodecError(f"gzip: more than {limit} bytes when decompressed")
        if not member.eof:
            raise CodecError("gzip: cut short")
        parts.append(part)
        rest = member.unused_data
        if rest[:2] != b"\x1f\x8b":  # Java ignores what follows the last member when it is not one
            return parts[0] if len(parts) == 1 else b"".join(parts)


# ------------------------------------------------------------------------------------------- snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
# version, oldest that can read it
_XERIAL_HEADER: Final = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK: Final = 32 * 1024
_INT32: Final = Struct(">i")


def _snappy(data: Buffer, level: int) -> bytes:
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _raw_unsnappy(view, limit)
    parts: list[bytes] = []
    pos = len(_XERIAL_HEADER)
    while pos < len(view):
        if bytes(view[pos : pos + 8]) == _XERIAL_MAGIC:  # two streams joined: snappy-java reads on
            pos += len(_XERIAL_HEADER)
            continue
        if len(view) - pos < 4:
            raise CodecError("snappy: cut short")
        (size,) = _INT32.unpack_from(view, pos)
        pos += 4
        if not 0 <= size <= len(view) - pos:
            raise CodecError(f"snappy: a block of {size} bytes where {len(view) - pos} are left")
        part = _raw_unsnappy(view[pos : pos + size], limit)
        limit -= len(part)
        parts.append(part)
        pos += size
    return b"".join(parts)


def _raw_unsnappy(view: memoryview, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(view)
        if size > limit:  # a claim, but also exactly what the decoder would reserve
            raise CodecError(f"snappy: more than {limit} bytes when decompressed")
        return bytes(cramjam.snappy.decompress_raw(view))
    except cramjam.DecompressionError as error:
        raise CodecError(f"snappy: {error}") from None


# ---------------------------------------------------------------------------------------- lz4, zstd


def _lz4(data: Buffer, level: int) -> bytes:
    frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    frame.compress(bytes(data))  # it takes nothing else
    return bytes(frame.finish())


def _zstd(data: Buffer, level: int) -> bytes:
    return bytes(cramjam.zstd.compress(data, level))


_Into = Callable[[Buffer, bytearray], int]

#: What cramjam says (in Rust's words) when its output is full; anything else means damaged data.
_FULL: Final = "failed to write whole buffer"


def _growing(name: str, into: _Into) -> Callable[[Buffer, int], memoryview]:
    """Decompress into a buffer of ours that grows fourfold up to the limit.

    The size in the frame is not asked: streaming writers leave it out, and others may lie.
    """

    def decode(data: Buffer, limit: int) -> memoryview:
        size = min(limit, max(1 << 16, 4 * len(data)))
        while True:
            out = bytearray(size)
            try:
                return memoryview(out)[: into(data, out)]
            except cramjam.DecompressionError as error:
                if str(error) != _FULL:
                    raise CodecError(f"{name}: {error}") from None
            if size >= limit:
                raise CodecError(f"{name}: more than {limit} bytes when decompressed")
            size = min(limit, size * 4)

    return decode


_COMPRESS: Final[dict[Codec, Callable[[Buffer, int], bytes]]] = {
    Codec.none: _keep,
    Codec.gzip: _gzip,
    Codec.snappy: _snappy,
    Codec.lz4: _lz4,
    Codec.zstd: _zstd,
}

_DECOMPRESS: Final[dict[int, Callable[[Buffer, int], Buffer]]] = {
    Codec.none: _plain,
    Codec.gzip: _gunzip,
    Codec.snappy: _unsnappy,
    Codec.lz4: _growing("lz4", cramjam.lz4.decompress_into),
    Codec.zstd: _growing("zstd", cramjam.zstd.decompress_into),
}
