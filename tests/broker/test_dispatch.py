"""What dispatch does once for every API: versions, headers, errors."""

from __future__ import annotations

import logging
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Client, Harness, make_batch
from tests.wire.messages import full, versions

from ottla.broker.api_names import api_name
from ottla.broker.context import CloseConnection, Context
from ottla.broker.dispatch import Route, announced, load_apis
from ottla.broker.slices import SLICE_MS
from ottla.log.errors import Damaged
from ottla.log.tickets import Ticket
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import TRANSACTIONAL
from ottla.wire.schema import Message


def header(key: int, version: int, number: int = 7) -> bytes:
    return struct.pack(">hhih", key, version, number, -1)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def raw_answer(client: Client, data: bytes) -> bytes:
    client.raw(data)
    return bytes(client._received)


# ---------------------------------------------------------------------------------------- versions


def test_every_handler_is_announced_and_nothing_else(client: Client) -> None:
    answer = client.call(
        ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4
    )
    apis = load_apis()
    assert {api.api_key for api in answer.api_keys} == set(apis)
    for api in answer.api_keys:
        low, high = apis[api.api_key].request.versions
        assert (api.max_version, api.min_version) == (high, 0 if api.api_key == 0 else low)


def test_every_handler_can_answer_with_an_error() -> None:
    error = KafkaError(Error.UNKNOWN_SERVER_ERROR)
    for key, api in load_apis().items():
        request = ProduceRequest(acks=1) if key == 0 else api.request()
        assert isinstance(api.on_error(request, error), api.response)


@pytest.mark.parametrize("key", sorted(load_apis()))
def test_a_request_refused_whole_has_an_answer_in_every_version(key: int) -> None:
    api = load_apis()[key]
    error = KafkaError(Error.INVALID_REQUEST, "refused")
    for version in versions(api.request):
        request = full(api.request, version)
        Route(api, version).frame(1, api.on_error(request, error))


def test_a_request_refused_whole_closes_where_nothing_is_answered(
    harness: Harness, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Transactional batches without a transactional id, with acks=0."""
    harness.topic("t")
    batch = make_batch(attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0)
    data = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name="t", partition_data=[data])
    client.send(ProduceRequest(acks=0, topic_data=[topic]), 9)
    assert client.closed is not None
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED with acks=0" in client.closed
    assert not caplog.records


@pytest.mark.parametrize("version", [4, 5, 6])
def test_find_coordinator_of_no_keys_and_a_refused_type_answers_nothing(
    client: Client, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    answer = client.call(FindCoordinatorRequest(key_type=2), version)
    assert answer.coordinators == []
    assert not caplog.records


def test_what_comes_behind_a_long_request_waits_for_it(harness: Harness, client: Client) -> None:
    """Also what could be handled beside a small one."""
    harness.topic("t", 3000)
    batch = make_batch()

    def produce(*indexes: int) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=batch) for index in indexes]
        return ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=data)])

    client.raw(client.frame(produce(*range(3000)), 9) + client.frame(produce(2999), 9))
    assert client.receive() is None
    for base in (0, 1):
        answer = None
        while answer is None:
            harness.pass_time(SLICE_MS)
            answer = client.receive()
        assert answer.responses[0].partition_responses[-1].base_offset == base


def test_a_long_request_that_makes_no_sense_closes_its_connection(
    harness: Harness, client: Client
) -> None:
    names = [MetadataRequestTopic(name=f"t{number}") for number in range(5000)]
    frame = client.frame(MetadataRequest(topics=names), 8)
    cut = frame[4:-40]
    client.raw(struct.pack(">i", len(cut)) + cut)
    while client.closed is None:
        harness.pass_time(SLICE_MS)
    assert "MetadataRequest v8" in client.closed


def test_a_request_other_than_produce_has_a_lower_limit(harness: Harness, client: Client) -> None:
    limit = harness.limits.max_plain_bytes
    other = harness.client()
    client.raw(struct.pack(">i", limit + 1) + header(0, 9))
    assert client.closed is None
    other.raw(struct.pack(">i", limit) + header(3, 9))
    assert other.closed is None
    other = harness.client()
    other.raw(struct.pack(">i", limit + 1))
    other.raw(header(3, 9))
    assert other.closed is not None
    assert "ottla.request.max.bytes" in other.closed


def test_trap_2_api_versions_answers_have_header_version_0(client: Client) -> None:
    body = header(18, 3) + b"\0" + b"\2a\2b\0"
    answer = raw_answer(client, framed(body))
    assert struct.unpack_from(">iih", answer) == (len(answer) - 4, 7, 0)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_trap_3_an_unknown_version_of_api_versions_is_answered_in_version_0(
    client: Client, version: int
) -> None:
    answer = raw_answer(client, framed(header(18, version) + b"whatever comes"))
    assert answer == struct.pack(">iihihhh", 16, 7, 35, 1, 18, 0, 4)
    assert client.closed is None


@pytest.mark.parametrize(
    ("key", "version"), [(0, 2), (0, 14), (1, 3), (3, 14), (3, -1), (4, 0), (999, 0), (-1, 0)]
)
def test_trap_4_any_other_version_out_of_range_closes_the_connection(
    client: Client, key: int, version: int
) -> None:
    assert raw_answer(client, framed(header(key, version))) == b""
    assert client.closed is not None


def test_every_api_has_kafkas_name() -> None:
    for key, api in load_apis().items():
        assert api_name(key) + "Request" == api.request.__name__
    assert (api_name(49), api_name(18245)) == ("AlterClientQuotas", "API 18245")


def test_a_request_that_is_not_served_is_named_with_its_client(client: Client) -> None:
    client.raw(struct.pack(">ihhih2s", 12, 49, 0, 1, 2, b"me"))
    assert client.closed == "AlterClientQuotas version 0 of client id me: it is not served"


def test_trap_5_produce_is_announced_from_version_0() -> None:
    (produce,) = [api for api in announced(load_apis()) if api.api_key == 0]
    assert (produce.min_version, produce.max_version) == (0, 13)


@pytest.mark.parametrize("version", [3, 4])
def test_only_features_that_work_are_announced(client: Client, version: int) -> None:
    answer = client.call(
        ApiVersionsRequest(client_software_name="t", client_software_version="1"), version
    )
    levels = {f.name: (f.min_version_level, f.max_version_level) for f in answer.finalized_features}
    assert levels == {
        "eligible.leader.replicas.version": (1, 1),
        "metadata.version": (30, 30),
        "transaction.version": (2, 2),
    }
    supported = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}
    single = {"eligible.leader.replicas.version": (1, 1), "metadata.version": (30, 30)}
    new = {"kraft.version": (0, 0), "transaction.version": (0, 2)} if version >= 4 else {}
    assert supported == single | new, "older clients cannot read a 0"
    assert answer.finalized_features_epoch >= 0


@pytest.mark.parametrize("name", ["", "a b", "-a", "a.", "ä"])
def test_a_client_name_that_kafka_refuses_is_refused(client: Client, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert client.call(request, 3).error_code == Error.INVALID_REQUEST


# ------------------------------------------------------------------------------------------ frames


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0",
        header(3, 1)[:9],
        header(3, 1),
        header(3, 1) + struct.pack(">i", 100_000),
        header(3, 1) + struct.pack(">ih", 1, 5) + b"ab",
        struct.pack(">hhih", 3, 1, 7, -5),
        struct.pack(">hhih", 3, 1, 7, 100),
    ],
)
def test_a_frame_that_makes_no_sense_closes_its_connection_alone(
    harness: Harness, body: bytes
) -> None:
    bad, good = harness.client(), harness.client()
    assert raw_answer(bad, framed(body)) == b""
    assert bad.closed is not None
    assert good.call(MetadataRequest(topics=[]), 1).topics == []


def test_a_broken_frame_is_refused_after_the_answers_before_it(client: Client) -> None:
    first = client.frame(MetadataRequest(topics=[]), 1)
    client.raw(first + framed(header(3, 99)) + client.frame(MetadataRequest(topics=[]), 1))
    assert client.receive() is not None
    assert client.receive() is None
    assert client.closed is not None


# ------------------------------------------------------------------------------------------ errors


METADATA = MetadataRequest(topics=[])


def replace_api(harness: Harness, **changes: Any) -> None:
    """Other functions for Metadata 12, in this broker only."""
    route = harness.dispatcher._routes[METADATA.api_key << 16 | 12]
    route.api = replace(route.api, **changes)


@pytest.fixture
def errors(harness: Harness) -> list[KafkaError]:
    """What on_error of Metadata is called with."""
    seen: list[KafkaError] = []
    original = harness.broker.apis[METADATA.api_key].on_error

    def on_error(request: MetadataRequest, error: KafkaError) -> Message:
        seen.append(error)
        response: Message = original(request, error)
        return response

    replace_api(harness, on_error=on_error)
    return seen


def test_a_kafka_error_is_answered_through_on_error(
    harness: Harness, client: Client, errors: list[KafkaError]
) -> None:
    def handle(ctx: Context, request: MetadataRequest) -> None:
        raise KafkaError(Error.INVALID_REQUEST, "no")

    replace_api(harness, handle=handle)
    client.call(METADATA, 12)
    assert [error.error for error in errors] == [Error.INVALID_REQUEST]


def test_trouble_with_the_log_is_kafka_storage_error(
    harness: Harness, client: Client, errors: list[KafkaError], tmp_path: Path
) -> None:
    def handle(ctx: Context, request: MetadataRequest) -> None:
        raise Damaged(tmp_path, "torn")

    replace_api(harness, handle=handle)
    client.call(METADATA, 12)
    assert [error.error for error in errors] == [Error.KAFKA_STORAGE_ERROR]


def test_a_bug_is_logged_and_answered_unknown_server_error(
    harness: Harness,
    client: Client,
    errors: list[KafkaError],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def handle(ctx: Context, request: MetadataRequest) -> None:
        raise ZeroDivisionError("a bug")

    replace_api(harness, handle=handle)
    client.call(METADATA, 12)
    assert [error.error for error in errors] == [Error.UNKNOWN_SERVER_ERROR]
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert client.closed is None


def test_an_answer_that_cannot_be_written_closes_the_connection(
    harness: Harness, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    replace_api(harness, handle=lambda ctx, request: object())
    replace_api(harness, on_error=lambda request, error: None)
    client.send(METADATA, 12)
    assert client.closed is not None


def test_a_parked_request_fails_as_its_ticket_does(
    harness: Harness, client: Client, errors: list[KafkaError], tmp_path: Path
) -> None:
    ticket = Ticket()
    replace_api(
        harness, handle=lambda ctx, request: ctx.after(ticket, lambda _: pytest.fail("not true"))
    )
    client.send(METADATA, 12)
    assert client.receive() is None
    ticket.settle(Damaged(tmp_path, "torn"))
    harness.turn()
    assert client.receive() is not None
    assert [error.error for error in errors] == [Error.KAFKA_STORAGE_ERROR]


def test_a_bug_after_the_commit_is_answered_too(
    harness: Harness, client: Client, errors: list[KafkaError]
) -> None:
    ticket = Ticket()
    replace_api(harness, handle=lambda ctx, request: ctx.after(ticket, lambda _: 1 // 0))
    client.send(METADATA, 12)
    ticket.settle()
    harness.turn()
    assert client.receive() is not None
    assert [error.error for error in errors] == [Error.UNKNOWN_SERVER_ERROR]


def test_a_handler_that_parks_and_then_raises_is_answered_once(
    harness: Harness, client: Client, errors: list[KafkaError]
) -> None:
    contexts: list[Context] = []

    def handle(ctx: Context, request: MetadataRequest) -> None:
        contexts.append(ctx)
        ctx.park()
        raise KafkaError(Error.INVALID_REQUEST)

    replace_api(harness, handle=handle)
    client.call(METADATA, 12)
    contexts[0].fail(KafkaError(Error.UNKNOWN_SERVER_ERROR))
    harness.turn()
    assert client.receive() is None
    assert len(errors) == 1


@pytest.mark.parametrize("raised", [CloseConnection("because"), ValueError("a bug")])
def test_a_handler_that_parks_may_close_the_connection(
    harness: Harness, client: Client, raised: Exception
) -> None:
    def handle(ctx: Context, request: MetadataRequest) -> None:
        ctx.park()
        raise raised

    replace_api(harness, handle=handle, on_error=lambda request, error: None)
    client.send(METADATA, 12)
    assert client.closed is not None
    assert harness.budget.used == 0


def test_a_handler_may_close_the_connection(harness: Harness, client: Client) -> None:
    def handle(ctx: Context, request: MetadataRequest) -> None:
        raise CloseConnection("because")

    replace_api(harness, handle=handle)
    client.send(METADATA, 12)
    assert client.closed == "Metadata version 12 of client id test: because"
