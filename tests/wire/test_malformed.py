"""Bytes that are no message: refused with a FrameError that says where, and with nothing else."""

import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire import fuzz_frames
from tests.wire.fuzz_frames import TARGETS, check, mutations
from tests.wire.messages import MESSAGES, full, versions, written

from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.fetch import FetchRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataResponse
from ottla.wire.api.offset_delete import OffsetDeleteRequest
from ottla.wire.api.offset_fetch import OffsetFetchRequest
from ottla.wire.api.produce import ProduceRequest
from ottla.wire.compile import decode
from ottla.wire.errors import FrameError
from ottla.wire.primitives import MAX_ELEMENTS, encode_uvarint
from ottla.wire.schema import Message

#: What would be a lot of memory as a length or a count: old, old in two bytes, compact.
HUGE = [b"\x7f\xff\xff\xff", b"\x7f\xff", b"\xff\xff\xff\xff\x0f"]


def corners(cls: type[Message]) -> set[int]:
    """Versions on both sides of what changes the encoding: first, last, flexible."""
    chosen = {*cls.versions, cls.flexible - 1, cls.flexible}
    return chosen & set(versions(cls))


every_corner = pytest.mark.parametrize(
    ("cls", "version"),
    [
        pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
        for cls in MESSAGES
        for version in sorted(corners(cls))
    ],
)


@pytest.fixture(scope="session")
def compiled() -> None:
    """What is made only once, and is no part of what an input costs, has been made."""
    for cls, version in TARGETS:
        check(cls, version, b"")


@pytest.fixture
def traced(compiled: None) -> Iterator[None]:
    """Memory is counted."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def peak_of(cls: type[Message], version: int, data: bytes) -> int:
    """Most memory held while an input is tried."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    check(cls, version, data)
    return tracemalloc.get_traced_memory()[1] - before


@every_corner
def test_a_message_cut_off_at_any_byte_is_refused(cls: type[Message], version: int) -> None:
    data = written(full(cls, version), version)
    for end in range(len(data)):
        with pytest.raises(FrameError, match=f"^{cls.__name__} v{version}: "):
            decode(cls, version, data[:end])


@every_corner
def test_bytes_after_a_request_are_ignored_and_after_other_messages_refused(
    cls: type[Message], version: int
) -> None:
    data = written(full(cls, version), version)
    if cls.__name__.endswith("Request"):
        assert decode(cls, version, data + b"\0\0") == decode(cls, version, data)
        return
    with pytest.raises(FrameError, match="2 bytes are left over after the message"):
        decode(cls, version, data + b"\0\0")


@every_corner
def test_wrong_lengths_and_counts_cost_no_memory(
    cls: type[Message], version: int, traced: None
) -> None:
    data = written(full(cls, version, elements=1), version)
    for start in range(len(data)):
        for piece in HUGE:
            changed = data[:start] + piece + data[start + len(piece) :]
            # Two GiB would show; what a message of this size may cost does not.
            assert peak_of(cls, version, changed) < 64 * 1024 + 100 * len(changed)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_random_bytes_are_refused_or_read(cls: type[Message]) -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.sampled_from(sorted(versions(cls))), st.binary(max_size=80), st.integers(0))
    def attempt(version: int, tail: bytes, cut: int) -> None:
        check(cls, version, tail)
        data = written(full(cls, version), version)
        check(cls, version, data[: cut % (len(data) + 1)] + tail)

    attempt()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_fuzzing_finds_nothing() -> None:
    seed = random.randrange(1 << 32)
    tried, read = fuzz_frames.run(1_000_000, seed)
    assert 0 < read < tried


def test_the_fuzzer_reports_what_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("not a FrameError")

    monkeypatch.setattr(fuzz_frames, "decode", broken)
    with pytest.raises(IndexError) as caught:
        fuzz_frames.run(1, seed=7)
    assert "seed 7" in caught.value.__notes__[0]


def test_mutations_differ_from_the_message_and_can_be_repeated() -> None:
    data = bytes(40)
    made = [next(mutations(data, random.Random(seed))) for seed in range(20)]
    assert data not in made[:1] or len(set(made)) > 10
    assert made == [next(mutations(data, random.Random(seed))) for seed in range(20)]


# -- one by one: the byte that is wrong, and what is said of it ------------------------------------

HEARTBEAT = b"\x02g\x00\x00\x00\x07\x02m\x00\x00"
FETCH = written(full(FetchRequest, 18), 18)


def refused(cls: type[Message], version: int, data: bytes) -> str:
    with pytest.raises(FrameError) as caught:
        decode(cls, version, data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("cls", "version", "data", "text"),
    [
        # strings
        (HeartbeatRequest, 0, b"\xff\xff" + bytes(8), "group_id: null where none may be"),
        (HeartbeatRequest, 0, b"\xff\xfe" + bytes(8), "group_id: negative length -2"),
        (
            HeartbeatRequest,
            0,
            b"\x00\x09" + bytes(8),
            "group_id: length 9 is more than the 8 bytes",
        ),
        (HeartbeatRequest, 3, bytes(8) + b"\xff\xfe", "group_instance_id: negative length -2"),
        (
            HeartbeatRequest,
            0,
            b"\x7f\xff" + b"\xff" * 32767 + bytes(6),
            "group_id: string of 32767 bytes, not UTF-8, is too long to be repeated",
        ),
        (MetadataResponse, 2, bytes(4) + b"\0\1\xff" + bytes(8), "cluster_id: not UTF-8"),
        (HeartbeatRequest, 4, b"\x00" + HEARTBEAT[2:], "group_id: null where none may be"),
        (HeartbeatRequest, 4, b"\x20g\x00\x00\x00\x07\x02m\x00\x00", "group_id: length 31 is more"),
        (HeartbeatRequest, 4, b"\x80\x80\x80\x80\x80\x01" + bytes(20), "longer than five bytes"),
        (HeartbeatRequest, 4, b"\xff\xff\xff\xff\x1f" + bytes(20), "larger than 32 bits"),
        (HeartbeatRequest, 4, b"\x81\x80\x02" + bytes(40000), "32768 bytes is longer than 32767"),
        (HeartbeatRequest, 4, b"\x80", "group_id: the frame ends too early (at byte 0 of 1)"),
        (HeartbeatRequest, 4, HEARTBEAT[:4], "generation_id|member_id: the frame ends too early"),
        # bytes
        (
            JoinGroupRequest,
            0,
            bytes(10) + b"\0\0\0\1" + b"\0\0\xff\xff\xff\xff",
            "protocols.metadata",
        ),
        # arrays
        (DescribeGroupsRequest, 0, b"\xff\xff\xff\xff", "groups: null where none may be"),
        (DescribeGroupsRequest, 0, b"\xff\xff\xff\xfe", "groups: negative count -2"),
        (
            DescribeGroupsRequest,
            0,
            b"\x7f\xff\xff\xff\0\0",
            "2147483647 elements of at least 2 bytes",
        ),
        (DescribeGroupsRequest, 5, b"\x00\x00\x00", "groups: null where none may be"),
        (DescribeGroupsRequest, 5, b"\x05\x01\x01\x01", "4 elements of at least 1 bytes are more"),
        (
            OffsetDeleteRequest,
            0,
            bytes(2) + b"\0\0\0\2" + bytes(11),
            "topics: 2 elements of at least 6",
        ),
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "topics: null where none may be"),
        (
            MetadataResponse,
            0,
            bytes(4) + b"\0\0\0\1" + bytes(4) + b"\0\0\0\1" + bytes(10) + b"\0\0\0\x11" + bytes(6),
            "topics.partitions.replica_nodes: 17 elements of at least 4 bytes",
        ),
        (
            MetadataResponse,
            0,
            bytes(4)
            + b"\0\0\0\1"
            + bytes(4)
            + b"\0\0\0\1"
            + bytes(10)
            + b"\xff\xff\xff\xff"
            + bytes(6),
            "topics.partitions.replica_nodes: null where none may be",
        ),
        # tagged fields
        (
            HeartbeatRequest,
            4,
            HEARTBEAT[:-1] + b"\x05\0\0",
            "tagged fields: 5 elements of at least 2",
        ),
        (
            HeartbeatRequest,
            4,
            HEARTBEAT[:-1] + b"\x01\x05\x03ab",
            "tagged field 5 of 3 bytes is more",
        ),
        (HeartbeatRequest, 4, HEARTBEAT[:-1] + b"\x02\x05\0\x05\0", "tag 5 after tag 5"),
        (HeartbeatRequest, 4, HEARTBEAT[:-1] + b"\x02\x05\0\x04\0", "tag 4 after tag 5"),
        (FetchRequest, 18, bytes(21) + b"\x01\x01\x01" + b"\x01\x00\x03\x02a\x01", "cluster_id"),
    ],
)
def test_what_is_wrong_is_said(cls: type[Message], version: int, data: bytes, text: str) -> None:
    message = refused(cls, version, data)
    assert message.startswith(f"{cls.__name__} v{version}: ")
    assert text in message


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xc3(", "\ufffd("),
        (b"\xe2\x82", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xff" * 10922, "\ufffd" * 10922),
    ],
)
def test_bytes_of_a_request_that_are_not_utf_8_are_replaced(raw: bytes, read: str) -> None:
    rest = b"\0\0\0\7" + b"\0\1m"
    old = len(raw).to_bytes(2, "big") + raw + rest
    assert decode(HeartbeatRequest, 0, old).group_id == read
    compact = encode_uvarint(len(raw) + 1) + raw + b"\0\0\0\7" + b"\2m\0\0"
    assert decode(HeartbeatRequest, 4, compact).group_id == read


def test_the_byte_is_said() -> None:
    text = refused(HeartbeatRequest, 4, HEARTBEAT[:6] + b"\x7fm\x00\x00")
    assert text == (
        "HeartbeatRequest v4: member_id: length 126 is more than the 3 bytes left (at byte 6 of 10)"
    )


def test_a_tagged_field_of_the_wrong_size_is_refused() -> None:
    good = written(full(FetchRequest, 18), 18)
    tag = good.index(b"\x00\x05\x05name")  # tag 0, 5 bytes, "name"
    for size in (4, 6):
        changed = good[: tag + 1] + bytes((size,)) + good[tag + 2 :]
        assert "cluster_id: tagged field 0 ends at byte" in refused(FetchRequest, 18, changed)


def empty_topics(count: int) -> bytes:
    """A Produce request with topics of three bytes each: no name, no partitions, no tags."""
    return b"\0" + bytes(6) + encode_uvarint(count + 1) + b"\1\1\0" * count + b"\0"


def test_a_message_may_hold_many_elements() -> None:
    data = empty_topics(MAX_ELEMENTS)
    assert len(decode(ProduceRequest, 9, data).topic_data) == MAX_ELEMENTS


def test_more_elements_than_a_message_may_hold_cost_no_memory(traced: None) -> None:
    data = empty_topics(MAX_ELEMENTS + 1)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    assert f"{MAX_ELEMENTS + 1} more elements are over the number" in refused(
        ProduceRequest, 9, data
    )
    assert tracemalloc.get_traced_memory()[1] - before < 16 * 1024


def test_elements_are_counted_over_all_arrays_of_a_message() -> None:
    # Two topics, each with more than half of the partitions allowed.
    partitions = encode_uvarint(MAX_ELEMENTS // 2 + 2) + b"\0\0\0\0\1\0" * (MAX_ELEMENTS // 2 + 1)
    data = b"\0" + bytes(6) + b"\3" + (b"\1" + partitions + b"\0") * 2 + b"\0"
    assert f"topic_data.partition_data: {MAX_ELEMENTS // 2 + 1} more elements" in refused(
        ProduceRequest, 9, data
    )


@pytest.mark.parametrize("each", [1, 16, 17, 5000])
def test_numbers_are_elements_too(each: int) -> None:
    topics = MAX_ELEMENTS // (each + 1)
    topic = b"\2t" + encode_uvarint(each + 1) + bytes(4) * each + b"\0"

    def request(count: int) -> bytes:
        return b"\2g" + encode_uvarint(count + 1) + topic * count + b"\0\0"

    assert len(decode(OffsetFetchRequest, 7, request(topics)).topics or ()) == topics
    message = refused(OffsetFetchRequest, 7, request(topics + 2))
    assert "more elements are over the number that a message may hold" in message


def test_tagged_fields_that_are_not_known_are_elements_too() -> None:
    tags = b"\x7f" + b"".join(bytes((tag, 0)) for tag in range(127))
    data = HEARTBEAT[:-1] + b"\x80\x01" + tags
    assert "more than 127 tagged fields" in refused(HeartbeatRequest, 4, data)
    count = MAX_ELEMENTS // 64
    data = b"\0" + bytes(6) + encode_uvarint(count + 1) + (b"\1\1" + tags) * count + b"\0"
    assert "tagged fields: 127 more elements" in refused(ProduceRequest, 9, data)


def test_an_error_of_ours_is_not_called_a_broken_frame() -> None:
    with pytest.raises(TypeError):
        decode(ApiVersionsRequest, 3, None)  # type: ignore[arg-type]
