"""Microseconds to read and write single messages: ours, kafka-python's and kio's.

    python -m bench.wire_micro [--seconds 0.3] [NAME ...]

Unlike the rest of the bench this measures a part of Ottla by itself. Each figure is CPU time, the
best of five rounds: what the code costs, not what else the machine did. The others read the bytes
that Ottla wrote, and write what they have read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from io import BytesIO
from time import process_time
from timeit import Timer
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from ottla.wire.api import fetch, heartbeat, metadata, offset_commit, produce
from ottla.wire.compile import decode, encode
from ottla.wire.schema import Message

KAFKA_PYTHON = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
)
NODES = [1, 2, 3]
BATCH = bytes(16 * 1024)


def heartbeat_request() -> Message:
    return heartbeat.HeartbeatRequest(
        group_id="orders", generation_id=7, member_id="consumer-1-0f9d4f0e-37f1-4b6a-9a35"
    )


def offset_commit_request() -> Message:
    partitions = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1_000_000 + index, committed_metadata=""
        )
        for index in range(12)
    ]
    return offset_commit.OffsetCommitRequest(
        group_id="orders",
        generation_id_or_member_epoch=7,
        member_id="consumer-1-0f9d4f0e-37f1-4b6a-9a35",
        topics=[offset_commit.OffsetCommitRequestTopic(name="orders", partitions=partitions)],
    )


def metadata_response() -> Message:
    def partition(index: int) -> metadata.MetadataResponsePartition:
        return metadata.MetadataResponsePartition(
            partition_index=index, leader_id=1, replica_nodes=NODES, isr_nodes=NODES
        )

    return metadata.MetadataResponse(
        brokers=[
            metadata.MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092)
            for node in NODES
        ],
        cluster_id="Y2x1c3RlciBpZCBvZiBvdX",
        controller_id=1,
        topics=[
            metadata.MetadataResponseTopic(
                name=f"topic-{topic}",
                topic_id=topic.to_bytes(16, "big"),
                partitions=[partition(index) for index in range(12)],
            )
            for topic in range(1, 101)
        ],
    )


def produce_request() -> Message:
    data = produce.PartitionProduceData(index=0, records=BATCH)
    topic = produce.TopicProduceData(name="orders", partition_data=[data])
    return produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def fetch_request() -> Message:
    partitions = [
        fetch.FetchPartition(partition=index, fetch_offset=1_000_000, partition_max_bytes=1 << 20)
        for index in range(12)
    ]
    topic = fetch.FetchTopic(topic="orders", partitions=partitions)
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[topic])


def fetch_response() -> Message:
    partitions = [
        fetch.PartitionData(
            partition_index=index,
            high_watermark=1_000_100,
            last_stable_offset=1_000_100,
            log_start_offset=0,
            aborted_transactions=None,
            records=BATCH,
        )
        for index in range(12)
    ]
    topic = fetch.FetchableTopicResponse(topic="orders", partitions=partitions)
    return fetch.FetchResponse(responses=[topic])


CASES: dict[str, tuple[Callable[[], Message], int]] = {
    "Heartbeat": (heartbeat_request, 4),
    "OffsetCommit 12": (offset_commit_request, 8),
    "Metadata 100x12": (metadata_response, 12),
    "Produce 16 KiB": (produce_request, 9),
    "Fetch 12": (fetch_request, 12),
    "Fetched 12x16 KiB": (fetch_response, 12),
}


def best(call: Callable[[], Any], seconds: float) -> float:
    """Microseconds of CPU time that one call takes."""
    timer = Timer(call, timer=process_time)
    count, took = timer.autorange()
    count = max(1, int(count * seconds / 5 / took))
    return min(timer.repeat(5, count)) / count * 1e6


def of_kafka_python(name: str, version: int, data: bytes, seconds: float) -> tuple[float, float]:
    cls = next(getattr(module, name) for module in KAFKA_PYTHON if hasattr(module, name))
    read = cls.decode(data, version=version)
    read._header = None  # it asks for one that only messages it made itself have
    return (
        best(lambda: cls.decode(data, version=version), seconds),
        best(lambda: read.encode(version=version), seconds),
    )


def of_kio(message: Message, version: int, data: bytes, seconds: float) -> tuple[float, float]:
    load: Any = (
        load_request_schema if type(message).__name__.endswith("Request") else load_response_schema
    )
    cls = load(message.api_key, version)
    reader, writer = entity_reader(cls), entity_writer(cls)
    read = reader(data, 0)[0]
    return (
        best(lambda: reader(data, 0), seconds),
        best(lambda: writer(BytesIO(), read), seconds),
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each figure")
    parser.add_argument("names", nargs="*", help="rows to measure; all of them if none is named")
    options = parser.parse_args(arguments)
    print(f"{'us to read / write':<22}{'ottla':>18}{'kafka-python':>18}{'kio':>18}")
    for row, (make, version) in CASES.items():
        if options.names and not any(name in row for name in options.names):
            continue
        message = make()
        cls = type(message)
        data = b"".join(encode(message, version))
        # A frame arrives in a bytearray that the log may write into.
        frame = bytearray(data)
        seconds = options.seconds
        ours = (
            best(lambda: decode(cls, version, frame), seconds),  # noqa: B023
            best(lambda: encode(message, version), seconds),  # noqa: B023
        )
        figures = (
            ours,
            of_kafka_python(cls.__name__, version, data, seconds),
            of_kio(message, version, data, seconds),
        )
        cells = "".join(f"{f'{read:.2f} / {write:.2f}':>18}" for read, write in figures)
        print(f"{f'{row} v{version}':<22}{cells}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
