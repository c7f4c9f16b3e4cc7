"""`ottla produce`: lines become records."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.broker.cli_client import ClientError, Cluster, raise_for
from ottla.broker.cli_output import print_json, say
from ottla.broker.cli_partitioner import partition_of
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.api.metadata import MetadataResponseTopic as Topic
from ottla.wire.api.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.codecs import Codec
from ottla.wire.errors import Error
from ottla.wire.records import Record, build_batch

_BATCH_BYTES = 512 * 1024
_TIMEOUT_MS = 30_000
_CREATION_S = 15.0
_ACKS = {"0": 0, "1": 1, "all": -1}


class Line(NamedTuple):
    """What one line of the input asks for."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int | None = None


def produce(args: argparse.Namespace) -> int:
    """Send every line; gives the exit status."""
    with Cluster(args.bootstrap_server) as cluster:
        sender = _Sender(cluster, _ready_topic(cluster, args.topic), args)
        if args.file:
            with open(args.file, "rb") as lines:
                sender.send_all(_parsed(args, lines))
        else:
            sender.send_all(_parsed(args, sys.stdin.buffer))
    sender.report()
    return 0


def _ready_topic(cluster: Cluster, name: str) -> Topic:
    """The topic, made by the cluster when that is how the cluster is set up. Raises ClientError."""
    deadline = time.monotonic() + _CREATION_S
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    while True:
        (topic,) = cluster.call(request, MetadataResponse).topics
        if topic.error_code == Error.NONE:
            break
        retry = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.LEADER_NOT_AVAILABLE)
        if topic.error_code not in retry or time.monotonic() > deadline:
            raise ClientError(f"{name}: {Error(topic.error_code).name}")
        time.sleep(0.1)
    (topic,) = cluster.topics([name])
    return topic


def _parsed(args: argparse.Namespace, lines: Iterable[bytes]) -> Iterator[Line]:
    separator = None if args.key_separator is None else args.key_separator.encode()
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip(b"\r\n")
        if args.json:
            yield _from_json(line, number)
        elif separator is None:
            yield Line(None, line)
        else:
            key, found, value = line.partition(separator)
            if not found:
                raise ClientError(f"line {number} has no {args.key_separator!r}")
            yield Line(key, value)


def _from_json(line: bytes, number: int) -> Line:
    try:
        fields = json.loads(line)
        headers = fields.get("headers") or {}
        return Line(
            _bytes(fields.get("key")),
            _bytes(fields.get("value")),
            tuple((name.encode(), _bytes(text)) for name, text in headers.items()),
            fields.get("timestamp"),
            fields.get("partition"),
        )
    except (ValueError, AttributeError, TypeError) as error:
        raise ClientError(f"line {number} is no record in JSON: {error}") from None


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class _Sender:
    """Gathers records by partition and sends a batch when it is full."""

    def __init__(self, cluster: Cluster, topic: Topic, args: argparse.Namespace) -> None:
        self._cluster = cluster
        self._topic = topic
        self._args = args
        self._codec = Codec[args.compression]
        self._waiting: dict[int, list[Record]] = defaultdict(list)
        self._sizes: dict[int, int] = defaultdict(int)
        self._next_partition = 0
        self._sent: dict[int, list[int]] = {}
        self._bytes = 0

    def send_all(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._take(line)
        for partition in list(self._waiting):
            self._send(partition)

    def report(self) -> None:
        """How much went where."""
        records = sum(count for count, _, _ in self._sent.values())
        if self._args.json:
            for partition, (count, first, last) in sorted(self._sent.items()):
                print_json(
                    {
                        "topic": self._args.topic,
                        "partition": partition,
                        "records": count,
                        "first_offset": first,
                        "last_offset": last,
                    }
                )
        else:
            say(
                f"{records} records, {self._bytes} bytes to {len(self._sent)} partitions"
                f" of {self._args.topic}"
            )

    def _take(self, line: Line) -> None:
        partition = self._place(line)
        waiting = self._waiting[partition]
        timestamp = line.timestamp if line.timestamp is not None else time.time_ns() // 1_000_000
        waiting.append(Record(len(waiting), timestamp, line.key, line.value, line.headers))
        size = len(line.key or b"") + len(line.value or b"")
        self._bytes += size
        self._sizes[partition] += size
        if self._sizes[partition] >= _BATCH_BYTES:
            self._send(partition)

    def _place(self, line: Line) -> int:
        count = len(self._topic.partitions)
        partition = line.partition if line.partition is not None else self._args.partition
        if partition is None:
            if line.key is not None:
                return partition_of(line.key, count)
            return self._next_partition % count
        if not 0 <= partition < count:
            raise ClientError(f"{self._args.topic} has no partition {partition}")
        return int(partition)

    def _send(self, partition: int) -> None:
        records = self._waiting.pop(partition)
        self._sizes.pop(partition)
        self._next_partition += 1  # records without a key go on to the next one
        batch = build_batch(records, codec=self._codec)
        data = PartitionProduceData(index=partition, records=batch)
        topic = TopicProduceData(
            name=self._args.topic, topic_id=self._topic.topic_id, partition_data=[data]
        )
        request = ProduceRequest(
            acks=_ACKS[self._args.acks], timeout_ms=_TIMEOUT_MS, topic_data=[topic]
        )
        if request.acks == 0:  # nothing comes back, offsets neither
            self._cluster.tell_leader(self._args.topic, partition, request)
            self._count(partition, len(records), -1)
            return
        answer = self._cluster.call_leader(self._args.topic, partition, request, ProduceResponse)
        for result in answer.responses[0].partition_responses:
            raise_for(result.error_code, result.error_message)
            self._count(partition, len(records), result.base_offset)

    def _count(self, partition: int, records: int, base_offset: int) -> None:
        last = -1 if base_offset < 0 else base_offset + records - 1
        sent = self._sent.setdefault(partition, [0, base_offset, last])
        sent[0] += records
        sent[2] = last
