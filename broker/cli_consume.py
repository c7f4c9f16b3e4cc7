"""`ottla consume`: records become lines."""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator

from ottla.broker.cli_client import ClientError, Cluster, raise_for
from ottla.broker.cli_offsets import LATEST, list_offsets, start_offsets
from ottla.broker.cli_output import print_json, say
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.api.fetch import PartitionData as Fetched
from ottla.wire.errors import Error
from ottla.wire.records import Record, records, walk

_MAX_WAIT_MS = 500
_MAX_BYTES = 8 << 20
_PARTITION_BYTES = 1 << 20
_READ_COMMITTED = 1


def consume(args: argparse.Namespace) -> int:
    """Print what is there and what comes; gives the exit status."""
    with Cluster(args.bootstrap_server) as cluster:
        (topic,) = cluster.topics([args.topic])
        if topic.error_code:
            raise ClientError(f"{args.topic}: {Error(topic.error_code).name}")
        there = sorted(partition.partition_index for partition in topic.partitions)
        for index in args.partition or ():
            if index not in there:
                raise ClientError(f"{args.topic} has no partition {index}")
        wanted = args.partition or there
        reader = _Reader(cluster, args.topic, topic.topic_id)
        reader.positions = start_offsets(cluster, args.topic, wanted, args.start)
        if args.exit:
            reader.ends = list_offsets(cluster, args.topic, wanted, LATEST)
        count = 0
        for partition, record in reader:
            _print(args, partition, record)
            count += 1
            if count == args.max_records:
                break
    sys.stdout.flush()
    if not args.json:
        say(f"{count} records")
    return 0


class _Reader:
    """Records of one topic from `positions` on; iteration ends when `ends` have been reached."""

    def __init__(self, cluster: Cluster, topic: str, topic_id: bytes) -> None:
        self._cluster = cluster
        self._topic = topic
        self._topic_id = topic_id
        self.positions: dict[int, int] = {}
        self.ends: dict[int, int] | None = None

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        while True:
            left = [index for index in self.positions if not self._at_end(index)]
            if not left:
                return
            for indexes in self._by_leader(left):
                for fetched in self._fetch(indexes):
                    yield from self._records(fetched)
            sys.stdout.flush()

    def _at_end(self, index: int) -> bool:
        return self.ends is not None and self.positions[index] >= self.ends[index]

    def _by_leader(self, indexes: list[int]) -> Iterator[list[int]]:
        by_leader: dict[int, list[int]] = defaultdict(list)
        for index in indexes:
            by_leader[self._cluster.leader(self._topic, index)].append(index)
        yield from by_leader.values()

    def _fetch(self, indexes: list[int]) -> list[Fetched]:
        asked = FetchTopic(
            topic=self._topic,
            topic_id=self._topic_id,
            partitions=[
                FetchPartition(
                    partition=index,
                    fetch_offset=self.positions[index],
                    partition_max_bytes=_PARTITION_BYTES,
                )
                for index in indexes
            ],
        )
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            isolation_level=_READ_COMMITTED,
            topics=[asked],
        )
        answer = self._cluster.call_leader(self._topic, indexes[0], request, FetchResponse)
        raise_for(answer.error_code)
        return [fetched for topic in answer.responses for fetched in topic.partitions]

    def _records(self, fetched: Fetched) -> Iterator[tuple[int, Record]]:
        index = fetched.partition_index
        raise_for(fetched.error_code, f"partition {index}: {Error(fetched.error_code).name}")
        data = fetched.records
        if not isinstance(data, (bytes, bytearray, memoryview)) or not data:
            return
        for pos, header in walk(data):
            batch = memoryview(data)[pos : pos + header.size]
            if not header.is_control:
                for record in records(batch, header):
                    if record.offset >= self.positions[index] and not self._at_end(index):
                        self.positions[index] = record.offset + 1
                        yield index, record
            self.positions[index] = max(self.positions[index], header.next_offset)


def _print(args: argparse.Namespace, partition: int, record: Record) -> None:
    if args.json:
        print_json(
            {
                "partition": partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": {_text(name): _text(value) for name, value in record.headers},
            }
        )
        return
    out = sys.stdout.buffer
    if args.key_separator is not None:
        out.write((record.key or b"") + args.key_separator.encode())
    out.write((record.value or b"") + b"\n")


def _text(data: bytes | None) -> str | None:
    """As UTF-8; bytes that are not become surrogates' escapes rather than an error."""
    return None if data is None else data.decode("utf-8", "backslashreplace")
