"""Every version of every message: what is written is what is read."""

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.wire.messages import (
    MESSAGES,
    every_message,
    every_version,
    full,
    instances,
    versions,
    written,
)

from ottla.wire.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from ottla.wire.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.sync_group import SyncGroupResponse
from ottla.wire.compile import (
    decode,
    decode_steps,
    decoders,
    encode,
    encode_few,
    encode_steps,
    source,
)
from ottla.wire.errors import EncodeError, Long
from ottla.wire.primitives import FEW_ELEMENTS, STEP_ELEMENTS, Buffer
from ottla.wire.schema import FIELDS, NEVER, Message, message, parse_versions, string, struct

QUICK = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


@every_version
def test_round_trip(cls: type[Message], version: int) -> None:
    @QUICK
    @given(instances(cls, version))
    def round_trip(message: Message) -> None:
        data = written(message, version)
        assert decode(cls, version, data) == message
        assert decode(cls, version, memoryview(bytearray(b"head" + data)), 4) == message

    round_trip()


@every_version
def test_defaults_round_trip(cls: type[Message], version: int) -> None:
    message = cls()
    assert decode(cls, version, written(message, version)) == message


@every_version
def test_a_message_with_every_field_set_round_trips(cls: type[Message], version: int) -> None:
    message = full(cls, version)
    assert decode(cls, version, written(message, version)) == message


@every_version
def test_a_message_read_and_written_in_steps_is_the_same(cls: type[Message], version: int) -> None:
    message = full(cls, version)
    data = written(message, version)
    assert taken(decode_steps(cls, version, data))[0] == message
    assert b"".join(taken(encode_steps(message, version))[0]) == data


@pytest.mark.parametrize("count", [FEW_ELEMENTS, FEW_ELEMENTS + 1, 20_000])
def test_a_message_of_many_elements_takes_steps(count: int) -> None:
    topics = [MetadataRequestTopic(name=f"topic-{number}") for number in range(count)]
    message = MetadataRequest(topics=topics)
    data = written(message, 12)
    assert decode(MetadataRequest, 12, data) == message
    read, yields = taken(decode_steps(MetadataRequest, 12, data))
    assert read == message
    assert yields == count // STEP_ELEMENTS
    pieces, yields = taken(encode_steps(message, 12))
    assert b"".join(pieces) == data
    assert yields == count // STEP_ELEMENTS
    if count > FEW_ELEMENTS:
        with pytest.raises(Long):
            decoders(MetadataRequest)[12](data, 0)
        with pytest.raises(Long):
            encode_few(message, 12)


def taken(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """What the steps lead to, and how often they yield."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1


@every_message
def test_requests_and_responses_agree_on_key_and_versions(cls: type[Message]) -> None:
    same_key = [other for other in MESSAGES if other.api_key == cls.api_key]
    assert len(same_key) == 2
    assert {other.versions for other in same_key} == {cls.versions}
    assert {other.flexible for other in same_key} == {cls.flexible}


@every_message
def test_fields_are_within_the_versions_of_their_message(cls: type[Message]) -> None:
    def check(owner: type) -> None:
        for field in FIELDS[owner]:
            assert any(version in field.versions for version in versions(cls)), field.name
            assert field.tag is None or field.versions[0] >= cls.flexible
            inner = field.struct if field.item is None else field.item.struct
            if inner is not None:
                check(inner)

    check(cls)


# -- buffers --------------------------------------------------------------------------------------


def fetched(*records: Buffer | list[Buffer] | None) -> FetchResponse:
    partitions = [PartitionData(partition_index=1, records=item) for item in records]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def batches_of(message: FetchResponse) -> list[object]:
    return [partition.records for topic in message.responses for partition in topic.partitions]


@pytest.mark.parametrize("version", [4, 12])
def test_records_are_handed_on_and_never_copied(version: int) -> None:
    one, two, three = bytearray(b"1" * 40000), memoryview(b"2" * 70), b"3" * 200
    buffers = encode(fetched([one, two], three), version)
    assert [id(item) for item in buffers if item in (one, two, three)] == [
        id(one),
        id(two),
        id(three),
    ]
    # What is not records is joined: one buffer before, between and (tagged fields) after them.
    assert len(buffers) == (6 if version == 12 else 5)
    frame = b"".join(buffers)
    read = decode(FetchResponse, version, frame)
    assert batches_of(read) == [b"1" * 40000 + b"2" * 70, three]


def test_records_are_read_as_views_of_the_frame() -> None:
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"batch")])
        ]
    )
    frame = bytearray(written(request, 9))
    records = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    frame[frame.index(b"batch")] = ord("B")
    assert bytes(records) == b"Batch"


def test_bytes_are_copied_out_of_the_frame() -> None:
    frame = bytearray(written(SyncGroupResponse(assignment=b"mine"), 3))
    read = decode(SyncGroupResponse, 3, frame)
    frame[:] = bytes(len(frame))
    assert read.assignment == b"mine"
    assert isinstance(read.assignment, bytes)


def test_a_message_without_records_is_one_bytes_object() -> None:
    buffers = encode(full(MetadataResponse, 12), 12)
    assert len(buffers) == 1
    assert isinstance(buffers[0], bytes)


def test_the_first_buffer_is_ours_to_put_a_header_before() -> None:
    for version in (4, 12):
        for response in (
            fetched(),
            fetched(b"x"),
            fetched([b"x", b"y"]),
            fetched(None),
            fetched([]),
        ):
            assert isinstance(encode(response, version)[0], bytes)


# -- arrays ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 9])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 126, 127, 128, 129, 20000])
def test_arrays_of_any_length(version: int, count: int) -> None:
    numbers = list(range(count))
    partition = MetadataResponsePartition(replica_nodes=numbers, isr_nodes=[7], error_code=5)
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition])])
    data = written(response, version)
    assert decode(MetadataResponse, version, data) == response
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t")] * count)
    assert decode(MetadataResponse, version, written(response, version)) == response


def test_structs_of_fixed_size_with_and_without_tags_in_one_array() -> None:
    partitions = [FetchPartition(partition=index, fetch_offset=-index) for index in range(9)]
    partitions[5].replica_directory_id = b"d" * 16
    request = FetchRequest(topics=[FetchTopic(partitions=partitions)], replica_state=ReplicaState())
    assert decode(FetchRequest, 17, written(request, 17)) == request


def test_nullable_structs() -> None:
    cursor = Cursor(topic_name="t", partition_index=4)
    for value in (None, cursor):
        request = DescribeTopicPartitionsRequest(cursor=value, response_partition_limit=5)
        assert decode(DescribeTopicPartitionsRequest, 0, written(request, 0)) == request


# -- what does not fit ----------------------------------------------------------------------------


def test_a_field_the_version_lacks_is_refused_unless_ignorable() -> None:
    with pytest.raises(EncodeError, match=r"InitProducerIdRequest v2: producer_id: 5 cannot be"):
        encode(InitProducerIdRequest(producer_id=5), 2)
    assert encode(HeartbeatResponse(throttle_time_ms=5, error_code=27), 0) == [b"\0\x1b"]


@pytest.mark.parametrize(
    ("message", "version", "text"),
    [
        (HeartbeatRequest(generation_id=1 << 31), 4, r"v4: generation_id\|member_id: .*format"),
        (HeartbeatRequest(group_id=None), 4, "v4: group_id: "),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id="x" * 32768), 4, "v4: group_id: .*32768 bytes"),
        (HeartbeatRequest(group_id="x" * 32768), 1, "v1: group_id: "),
        (HeartbeatRequest(group_id="\ud800"), 1, "v1: group_id: .*surrogates"),
        (HeartbeatRequest(group_id=b"x"), 1, "v1: group_id: "),  # type: ignore[arg-type]
        (MetadataRequest(topics=None), 0, "v0: topics: "),
        (SyncGroupResponse(assignment="text"), 5, "v5: "),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_written_is_named(message: Message, version: int, text: str) -> None:
    with pytest.raises(EncodeError, match=text):
        encode(message, version)


def test_the_path_of_a_nested_field_is_named() -> None:
    response = fetched(None)
    response.responses[0].partitions[0].high_watermark = 1 << 63
    with pytest.raises(EncodeError, match=r"v12: responses\.partitions\..*high_watermark"):
        encode(response, 12)


def test_versions_outside_the_range_are_refused() -> None:
    for version in (-1, 5):
        with pytest.raises(ValueError, match="HeartbeatRequest has versions 0 to 4"):
            encode(HeartbeatRequest(), version)
        with pytest.raises(ValueError, match="HeartbeatRequest has versions 0 to 4"):
            decode(HeartbeatRequest, version, b"")


# -- the schema -----------------------------------------------------------------------------------


def test_version_texts() -> None:
    assert parse_versions("3+") == range(3, NEVER)
    assert parse_versions("0-7") == range(8)
    assert parse_versions("5") == range(5, 6)
    assert parse_versions("") == range(NEVER)
    assert parse_versions("none") == range(0)


def test_a_field_without_specifier_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Broken\.name has no field specifier"):

        @struct
        class Broken:
            name: str = "plain default"


def test_a_field_that_hides_an_attribute_of_messages_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Broken\.api_key hides an attribute"):

        @message(key=1, versions="0", flexible="none")
        class Broken(Message):
            api_key: str = string()  # type: ignore[assignment, misc]


@given(st.data())
def test_lists_of_defaults_are_not_shared(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(MESSAGES))
    one, two = cls(), cls()
    for field in FIELDS[cls]:
        if field.kind == "array" and field.default is list:
            assert getattr(one, field.name) is not getattr(two, field.name)


def test_the_source_of_a_version_can_be_read() -> None:
    text = source(HeartbeatRequest, 4)
    assert "def decode(buf, p):" in text
    assert "def encode(o):" in text
