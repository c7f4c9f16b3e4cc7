"""Frames and headers, and the traps that lie in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.messages import MESSAGES, versions, written

from ottla.wire.api.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.compile import decode, encode
from ottla.wire.errors import Error, FrameError, KafkaError
from ottla.wire.frame import enclose, frame_size, split
from ottla.wire.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.primitives import encode_uvarint, read_uvarint

LIMIT = 1 << 20


# -- the traps ------------------------------------------------------------------------------------


def test_trap_01_client_id_in_header_v2_is_not_compact_and_tags_follow_it() -> None:
    start = b"\x00\x0c\x00\x04\x00\x00\x00\x07"
    header = RequestHeader(12, 4, 7, "me")
    assert encode_request_header(header, flexible=True) == start + b"\x00\x02me\x00"
    assert decode_request_header(start + b"\x00\x02me\x00", 0, True) == (header, 13)
    assert decode_request_header(start + b"\xff\xff\x00", 0, True) == (
        RequestHeader(12, 4, 7, None),
        11,
    )
    # Tagged fields are after the client id and are skipped.
    assert decode_request_header(start + b"\x00\x02me\x01\x09\x02xyBODY", 0, True) == (header, 17)
    # Version 1 has none: what follows the client id is the message.
    assert decode_request_header(start + b"\x00\x02me\x00", 0, False) == (header, 12)


def test_trap_02_the_response_to_api_versions_always_has_header_v0() -> None:
    for version in versions(ApiVersionsResponse):
        assert response_header_version(ApiVersionsResponse, version) == 0
    assert encode_response_header(7, 0) == b"\0\0\0\7"
    # Its body is flexible all the same, and so is the header of its request.
    assert request_header_version(ApiVersionsRequest, 3) == 2
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    assert written(response, 3) == b"\0\0\2\0\x12\0\0\0\4\0\0\0\0\0\0"
    # Every other flexible response has tagged fields in its header.
    for cls in MESSAGES:
        for version in versions(cls):
            if cls is not ApiVersionsResponse and cls.api_key != 18:
                assert response_header_version(cls, version) == (version >= cls.flexible)
    assert encode_response_header(7, 1) == b"\0\0\0\7\0"


def test_trap_03_an_api_versions_request_newer_than_ours_has_a_header_that_can_be_read() -> None:
    # Its body may have any layout: the header, of version 2, is all that is looked at.
    frame = encode_request_header(RequestHeader(18, 99, 3, "newer"), flexible=True) + b"\xff" * 9
    header, _ = decode_request_header(frame, 0, True)
    assert header == RequestHeader(18, 99, 3, "newer")
    # It is answered in version 0, with our own range.
    answer = ApiVersionsResponse(
        error_code=Error.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, max_version=4)]
    )
    assert written(answer, 0) == b"\0\x23\0\0\0\1\0\x12\0\0\0\4"


def test_trap_09_unknown_tagged_fields_are_skipped() -> None:
    data = written(HeartbeatRequest(group_id="g", member_id="m"), 4)
    tags = b"\x03\x00\x00\x07\x02xy\x80\x01\x01z"
    assert decode(HeartbeatRequest, 4, data[:-1] + tags) == decode(HeartbeatRequest, 4, data)


def test_trap_09_null_is_minus_one_in_old_types_and_zero_in_compact_ones() -> None:
    assert written(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert written(MetadataRequest(topics=[]), 1) == b"\0\0\0\0"
    assert written(MetadataRequest(topics=None), 9)[:1] == b"\0"
    assert written(MetadataRequest(topics=[]), 9)[:1] == b"\1"
    assert written(HeartbeatRequest(group_instance_id=None), 3)[-2:] == b"\xff\xff"
    assert written(HeartbeatRequest(group_instance_id=None), 4)[-2:] == b"\0\0"
    assert written(HeartbeatRequest(group_instance_id=""), 4)[-2:] == b"\1\0"
    for version, null in ((1, b"\xff\xff\xff\xff"), (9, b"\0\1\0\0\0")):
        assert decode(MetadataRequest, version, null + b"" * version).topics is None


def test_trap_09_records_nobody_set_are_empty_and_not_null() -> None:
    answer = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
    for version in versions(FetchResponse):
        read = decode(FetchResponse, version, written(answer, version))
        assert read.responses[0].partitions[0].records == b""
    assert written(answer, 4)[-4:] == b"\0\0\0\0"
    assert written(answer, 12)[-4:] == b"\1\0\0\0"


# -- headers --------------------------------------------------------------------------------------

texts = st.none() | st.text(max_size=20)
headers = st.builds(
    RequestHeader,
    st.integers(0, 32767),
    st.integers(0, 32767),
    st.integers(-(1 << 31), (1 << 31) - 1),
    texts,
)


@given(headers, st.booleans(), st.binary(max_size=5))
def test_request_headers_round_trip(header: RequestHeader, flexible: bool, body: bytes) -> None:
    data = encode_request_header(header, flexible)
    frame = memoryview(bytearray(b"size" + data + body))
    assert decode_request_header(frame, 4, flexible) == (header, 4 + len(data))
    for end in range(len(data)):
        with pytest.raises(FrameError, match=r"^request header: "):
            decode_request_header(data[:end], 0, flexible)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.sampled_from([0, 1]))
def test_response_headers_round_trip(correlation_id: int, version: int) -> None:
    data = encode_response_header(correlation_id, version)
    assert decode_response_header(data + b"body", 0, version) == (correlation_id, len(data))
    for end in range(len(data)):
        with pytest.raises(FrameError, match=r"^response header: "):
            decode_response_header(data[:end], 0, version)


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        (b"\xff\xfe\0", "client id of negative length -2"),
        (b"\x7f\xffxx\0", "client id of 32767 bytes, 3 are left"),
        (b"\x7f\xff" + b"\xff" * 32767 + b"\0", "32767 bytes, not UTF-8, is too long"),
        (b"\0\0\x02\x01\0\x01\0", "tag 1 after tag 1"),
        (b"\0\0\x09", "9 elements of at least 2 bytes"),
        (b"\0\0\x01\x01\x05", "tagged field 1 of 5 bytes"),
    ],
)
def test_broken_request_headers_are_refused(tail: bytes, text: str) -> None:
    with pytest.raises(FrameError, match=f"^request header: .*{text}"):
        decode_request_header(b"\0\x0c\0\4\0\0\0\7" + tail, 0, True)


@pytest.mark.parametrize("flexible", [False, True])
def test_bytes_of_a_client_id_that_are_not_utf_8_are_replaced(flexible: bool) -> None:
    data = b"\0\x0c\0\4\0\0\0\7" + b"\0\4a\xff\xc3b" + b"\0" * flexible
    header, end = decode_request_header(data, 0, flexible)
    assert (header.client_id, end) == ("a\ufffd\ufffdb", len(data))


# -- frames ---------------------------------------------------------------------------------------


def test_a_frame_is_a_size_a_header_and_a_message() -> None:
    buffers = enclose(encode_response_header(9, 1), encode(HeartbeatResponse(error_code=27), 4))
    assert b"".join(buffers) == b"\0\0\0\x0c" + b"\0\0\0\x09\0" + b"\0\0\0\0\0\x1b\0"


def test_enclosing_hands_on_records_as_they_are() -> None:
    records = bytearray(70000)
    partition = PartitionData(records=records)
    body = encode(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 12)
    buffers = enclose(encode_response_header(1, 1), body)
    assert buffers[1] is records
    assert frame_size(buffers[0], 0, LIMIT) == sum(map(len, buffers)) - 4


@given(st.lists(st.binary(max_size=30), max_size=5), st.data())
def test_frames_are_split_where_they_end(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(b"".join(enclose(b"", [body])) for body in bodies)
    assert list(split(stream, LIMIT)) == bodies
    cut = data.draw(st.integers(0, len(stream)))
    whole = list(split(stream[:cut], LIMIT))
    assert whole == bodies[: len(whole)]


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\x00\x10\x00\x01", b"GET "])
def test_sizes_over_the_limit_and_negative_ones_are_refused(size: bytes) -> None:
    with pytest.raises(FrameError, match=r"a frame of .*; the limit is 1048576"):
        list(split(size + b"rest", LIMIT))
    assert frame_size(b"\x00\x10\x00\x00", 0, LIMIT) == LIMIT


# -- varints and errors ---------------------------------------------------------------------------


@given(st.integers(0, (1 << 32) - 1))
def test_varints_round_trip(value: int) -> None:
    data = encode_uvarint(value)
    assert len(data) == max(1, -(-value.bit_length() // 7))
    assert read_uvarint(b"x" + data + b"x", 1) == (value, 1 + len(data))


def test_kafka_errors_have_a_code_and_perhaps_words() -> None:
    plain, told = (
        KafkaError(Error.UNKNOWN_TOPIC_ID),
        KafkaError(Error.INVALID_CONFIG, "no such key"),
    )
    assert (plain.error, plain.message, str(plain)) == (100, None, "UNKNOWN_TOPIC_ID")
    assert (told.message, str(told)) == ("no such key", "INVALID_CONFIG: no such key")
