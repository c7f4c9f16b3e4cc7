"""Codecs: what each client writes is read, and nothing grows past its bound."""

from __future__ import annotations

import contextlib
import gzip
import random
import tracemalloc

import cramjam
import pytest
from aiokafka.codec import snappy_decode, snappy_encode
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.codecs import LEVELS, Codec, CodecError, compress, decompress

TEXT = b"".join(b"record %d of a text that packs well; " % i for i in range(5000))
NOISE = random.Random(1).randbytes(200_000)
PACKING = [codec for codec in Codec if codec is not Codec.none]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, TEXT + NOISE], ids=len)
def test_round_trip(codec: Codec, data: bytes) -> None:
    for form in (data, bytearray(data), memoryview(b"." + data)[1:]):
        packed = compress(codec, form)
        assert decompress(codec, packed) == data
        assert decompress(codec, memoryview(bytearray(b"." + packed))[1:]) == data
    assert codec is Codec.none or len(data) < 1000 or data == NOISE or len(packed) < len(data)


@pytest.mark.parametrize("codec", LEVELS)
def test_levels(codec: Codec) -> None:
    default, low, high = LEVELS[codec]
    sizes = {}
    for level in (low, default, high):
        packed = compress(codec, TEXT, level)
        assert decompress(codec, packed) == TEXT
        sizes[level] = len(packed)
    assert sizes[high] < sizes[low]
    assert len(compress(codec, TEXT)) == sizes[default]


@pytest.mark.parametrize("codec", Codec)
def test_the_bound_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    for limit in (len(TEXT) - 1, 1000, 1, 0):
        with pytest.raises(CodecError):
            decompress(codec, packed, limit)


@pytest.mark.parametrize("codec", PACKING)
def test_a_bomb_takes_no_more_memory_than_its_bound(codec: Codec) -> None:
    packed = compress(codec, bytes(200 << 20))
    tracemalloc.start()
    with pytest.raises(CodecError):
        decompress(codec, packed, 1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@pytest.mark.parametrize("codec", PACKING)
def test_cut_short(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    for cut in (1, 5, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CodecError):
            decompress(codec, packed[:cut])


@given(st.sampled_from(PACKING), st.binary(max_size=300))
def test_garbage_is_a_codec_error_or_data(codec: Codec, garbage: bytes) -> None:
    with contextlib.suppress(CodecError):
        assert len(decompress(codec, garbage, 1 << 16)) <= 1 << 16


@given(st.sampled_from(PACKING), st.data())
def test_altered_data_is_a_codec_error_or_data(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, TEXT[:3000]))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CodecError):
        assert len(decompress(codec, packed, 1 << 16)) <= 1 << 16


@pytest.mark.parametrize("number", [5, 6, 7, 8, -1])
def test_unknown_codec(number: int) -> None:
    with pytest.raises(CodecError):
        decompress(number, b"data")


def test_snappy_in_one_raw_block_as_librdkafka_writes_it() -> None:
    assert decompress(Codec.snappy, snappy_encode(TEXT, xerial_compatible=False)) == TEXT


def test_snappy_framed_as_java_writes_it() -> None:
    assert decompress(Codec.snappy, snappy_encode(TEXT)) == TEXT
    packed = compress(Codec.snappy, TEXT)
    assert packed[:16] == b"\x82SNAPPY\0" + bytes((0, 0, 0, 1, 0, 0, 0, 1))
    assert snappy_decode(packed) == TEXT


def test_two_snappy_streams_joined_are_read_on() -> None:
    packed = compress(Codec.snappy, TEXT)
    assert decompress(Codec.snappy, packed + packed) == TEXT + TEXT


def test_gzip_in_several_members_with_padding() -> None:
    packed = gzip.compress(TEXT) + gzip.compress(b"more")
    assert decompress(Codec.gzip, packed) == TEXT + b"more"
    assert decompress(Codec.gzip, packed + bytes(8)) == TEXT + b"more"


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses a frame without bit 5 of the flags."""
    packed = compress(Codec.lz4, TEXT)
    assert packed[:4] == bytes((0x04, 0x22, 0x4D, 0x18))
    assert packed[4] >> 6 == 1
    assert packed[4] & 0x20


def test_lz4_with_linked_blocks_and_checksums_is_read() -> None:
    frame = cramjam.lz4.Compressor(level=4, content_checksum=True, block_linked=True)
    frame.compress(TEXT * 5)
    assert decompress(Codec.lz4, bytes(frame.finish())) == TEXT * 5


def test_zstd_frame_without_its_size_is_read() -> None:
    frame = cramjam.zstd.Compressor(3)
    frame.compress(TEXT)
    packed = bytes(frame.flush())
    frame.compress(TEXT)
    packed += bytes(frame.finish())
    assert packed[4] & 0xE0 == 0  # neither content size nor single segment
    assert decompress(Codec.zstd, packed) == TEXT + TEXT
