"""Idle connections take all the file descriptors they can get: the log keeps what it needs."""

from __future__ import annotations

import os
import resource
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import make_batch
from tests.broker.serving import Serving

from ottla.broker import machine
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.compile import decode, encode
from ottla.wire.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.schema import Message

DESCRIPTORS = 160
ENOUGH_S = 120
"""Long enough on any machine."""


class Asking:
    """A client that was there first."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, ENOUGH_S)
        self.stream = self.socket.makefile("rb")

    def call(self, request: Message, version: int) -> Any:
        flexible = request_header_version(type(request), version) == 2
        header = RequestHeader(request.api_key, version, 1, "test")
        body = encode_request_header(header, flexible) + b"".join(encode(request, version))
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        data = self.stream.read(*struct.unpack(">i", self.stream.read(4)))
        module = sys.modules[type(request).__module__]
        response = getattr(module, type(request).__name__.replace("Request", "Response"))
        _, at = decode_response_header(data, 0, response_header_version(response, version))
        return decode(response, version, data, at)

    def create(self, name: str) -> None:
        config = CreatableTopicConfig(name="segment.ms", value="1")
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=[config])
        answer = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 4)
        assert answer.topics[0].error_code == 0

    def produce(self, name: str) -> int:
        data = PartitionProduceData(index=0, records=make_batch())
        topic = TopicProduceData(name=name, partition_data=[data])
        answer = self.call(ProduceRequest(acks=-1, topic_data=[topic]), 9)
        (result,) = answer.responses[0].partition_responses
        assert result.error_code == 0
        return int(result.base_offset)

    def commit(self, name: str, offset: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequestTopic(name=name, partitions=[partition])
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=-1, topics=[topic]
        )
        assert self.call(request, 8).topics[0].partitions[0].error_code == 0


def flood(address: tuple[str, int], count: int) -> list[socket.socket]:
    sockets = []
    for _ in range(count):
        with suppress(OSError):
            sockets.append(socket.create_connection(address, ENOUGH_S))
    return sockets


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts in /proc")
def test_the_log_goes_on_while_connections_take_what_they_can(tmp_path: Path) -> None:
    broker = Serving("--data-dir", str(tmp_path / "data"), descriptors=DESCRIPTORS)
    host, _, port = broker.address.rpartition(":")
    address = host, int(port)
    first = Asking(address)
    idle = flood(address, 2 * DESCRIPTORS)
    try:
        deadline = time.monotonic() + ENOUGH_S
        offset = -1
        turn = 0
        while len(list((tmp_path / "data/log").glob("*.sealed"))) < 3:
            assert time.monotonic() < deadline, "no segment is begun"
            turn += 1
            if turn % 50 == 1:
                first.create(f"topic-{turn}")
                idle += flood(address, 20)
            assert first.produce("topic-1") == offset + 1
            offset += 1
            first.commit("topic-1", offset)
            time.sleep(0.01)
        held = len(os.listdir(f"/proc/{broker.process.pid}/fd"))
        assert DESCRIPTORS // 2 < held < DESCRIPTORS, "the soft limit was raised, and not reached"
    finally:
        for one in idle:
            one.close()
        status, errors = broker.stop()
    assert status == 0
    assert "kept for the log" in errors
    assert "Too many open files" not in errors
    assert errors.count("kept for the log") < 100, "the lines are counted, not written"


def test_an_eighth_is_kept_back_and_at_least_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, connections in ((1 << 20, 917_504), (1024, 896), (256, 192), (100, 50)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert machine.descriptors_for_connections() == connections
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert machine.descriptors_for_connections() > 1 << 40
