"""Gathers records by partition and sends them in rounds, each acknowledged before the next."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from typing import Final, NamedTuple

from ottla.broker.cli_client import RETRIABLE, Cluster, patiently
from ottla.broker.cli_errors import ClientError, problem, raise_for
from ottla.broker.cli_output import say
from ottla.broker.cli_partitioner import partition_of
from ottla.broker.cli_records import BadLine, Line
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.metadata import MetadataResponseTopic as Topic
from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.codecs import Codec
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import NO_SEQUENCE, Record, build_batch

BATCH_BYTES: Final = 900_000
"""Of a batch, as `size_bound` counts them: below the default of max.message.bytes."""
ROUND_BYTES: Final = 4 << 20
TIMEOUT_MS: Final = 30_000
ACKS: Final = {"0": 0, "1": 1, "all": -1}
_RECORD_OVERHEAD: Final = 21
"""Largest size of a record's length (5), attributes (1), timestamp (10) and offset (5): Kafka's
DefaultRecord.MAX_RECORD_OVERHEAD."""
_SEQUENCES: Final = 1 << 31


def size_bound(line: Line) -> int:
    """Bytes that the record takes in a batch, at most."""
    size = _RECORD_OVERHEAD + _field(line.key) + _field(line.value) + _varint(len(line.headers))
    for name, value in line.headers:
        size += _field(name) + _field(value)
    return size


def _field(data: bytes | None) -> int:
    return 1 if data is None else _varint(len(data)) + len(data)


def _varint(number: int) -> int:
    """Bytes of a zigzag varint of a number from 0 on."""
    return (2 * number).bit_length() // 7 + 1


class Sent:
    """What a partition has acknowledged; offsets are -1 where the broker did not give them."""

    def __init__(self) -> None:
        self.records = 0
        self.first_offset = -1
        self.last_offset = -1


class Entry(NamedTuple):
    """A record that waits, and the number of its line."""

    line: int
    record: Record


class Batch:
    """Records of one partition that are sent in one piece; its bytes are the same each time."""

    def __init__(self, partition: int, entries: list[Entry]) -> None:
        self.partition = partition
        self.entries = entries
        self.sequence: int | None = None
        self.data: bytearray | None = None


class Sender:
    """`take` records and `flush` them; both raise ClientError and KafkaError for what the cluster
    refuses, or when it cannot be reached for `args.timeout` seconds."""

    def __init__(self, cluster: Cluster, topic: Topic, args: argparse.Namespace) -> None:
        self.lines = 0
        """Lines taken so far."""
        self.bytes = 0
        """Of keys and values that were acknowledged."""
        self.total = 0
        """Records that were acknowledged."""
        self.sent: dict[int, Sent] = {}
        self._cluster = cluster
        self._name: str = args.topic
        self._topic = topic
        self._acks = ACKS[args.acks]
        self._codec = Codec[args.compression]
        self._partition: int | None = args.partition
        self._headers = tuple(args.header)
        self._timeout_s: float = args.timeout
        self._waiting: dict[int, list[Entry]] = defaultdict(list)
        self._sizes: dict[int, int] = defaultdict(int)
        self._size = 0
        self._round: list[Batch] = []
        self._rounds = 0
        self._stale = False
        """Leaders may have moved since the last Metadata."""
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = defaultdict(int)

    @property
    def first_open_line(self) -> int:
        """The first line whose record is not acknowledged."""
        waiting = [entries[0].line for entries in self._waiting.values() if entries]
        return min([*waiting, *(batch.entries[0].line for batch in self._round), self.lines + 1])

    def place(self, line: Line) -> int:
        """The partition of a record: its own, that of the command, that of its key, or one after
        the other. Raises BadLine when the topic lacks it."""
        partitions = len(self._topic.partitions)
        partition = line.partition if line.partition is not None else self._partition
        if partition is None:
            if line.key is not None:
                return partition_of(line.key, partitions)
            return self._rounds % partitions
        if partition >= partitions:
            raise BadLine(
                f"cannot go to partition {partition}: {self._name} has partitions 0 to"
                f" {partitions - 1}"
            )
        return partition

    def take(self, line: Line, partition: int) -> None:
        """Keep the record of the next line; sends what waits when that is enough."""
        line = line._replace(headers=self._headers + line.headers)
        size = size_bound(line)
        if self._sizes[partition] + size > BATCH_BYTES or self._size + size > ROUND_BYTES:
            self.flush()
        self.lines += 1
        waiting = self._waiting[partition]
        timestamp = time.time_ns() // 1_000_000 if line.timestamp is None else line.timestamp
        record = Record(len(waiting), timestamp, line.key, line.value, line.headers)
        waiting.append(Entry(self.lines, record))
        self._sizes[partition] += size
        self._size += size

    def flush(self) -> None:
        """Send what waits; returns when all of it is acknowledged."""
        self._round += [Batch(index, entries) for index, entries in self._waiting.items()]
        self._waiting.clear()
        self._sizes.clear()
        self._size = 0
        self._rounds += 1  # records without a key go to the next partition
        while self._round:
            patiently(self._attempt, self._timeout_s, self._on_trouble)

    def _on_trouble(self, error: Exception) -> None:
        text = (error.message or str(error)) if isinstance(error, KafkaError) else str(error)
        say(f"{text}; trying again for {self._timeout_s:g} s")

    # ---------------------------------------------------------------------------------- one attempt

    def _attempt(self) -> None:
        """Send the first batch of each partition, one request a broker. Raises KafkaError for the
        first batch that was refused, Unreachable."""
        if self._stale:
            self._refresh()
        self._stale = True
        if self._acks == ACKS["all"] and self._producer[0] < 0:
            self._init_producer()
        by_leader: dict[int, dict[int, Batch]] = defaultdict(dict)
        for batch in self._round:
            leader = self._cluster.leader(self._name, batch.partition)
            by_leader[leader].setdefault(batch.partition, batch)
        refusals: list[KafkaError] = []
        for batches in by_leader.values():
            request = self._request(list(batches.values()))
            if request.acks == 0:
                self._cluster.tell_leader(self._name, next(iter(batches)), request)
                for batch in batches.values():
                    self._acknowledged(batch, -1)
                continue
            partition = next(iter(batches))
            answer = self._cluster.call_leader(self._name, partition, request, ProduceResponse)
            for topic in answer.responses:
                for result in topic.partition_responses:
                    refusals += self._settle(batches[result.index], result)
        for error in refusals:
            if error.error not in RETRIABLE:
                raise error
        if refusals:
            raise refusals[0]
        self._stale = False

    def _refresh(self) -> None:
        topic = self._cluster.topic(self._name)
        if topic.topic_id != self._topic.topic_id:
            raise ClientError(f"{self._name} was deleted and created again in the meantime")

    def _init_producer(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
        answer = self._cluster.call(request, InitProducerIdResponse)
        raise_for(answer.error_code, "a producer id")
        self._producer = answer.producer_id, answer.producer_epoch

    def _request(self, batches: list[Batch]) -> ProduceRequest:
        data = [
            PartitionProduceData(index=batch.partition, records=self._built(batch))
            for batch in batches
        ]
        topic = TopicProduceData(
            name=self._name, topic_id=self._topic.topic_id, partition_data=data
        )
        return ProduceRequest(acks=self._acks, timeout_ms=TIMEOUT_MS, topic_data=[topic])

    def _built(self, batch: Batch) -> bytearray:
        if batch.data is None:
            if batch.sequence is None:
                batch.sequence = self._sequences[batch.partition]
                after = (batch.sequence + len(batch.entries)) % _SEQUENCES
                self._sequences[batch.partition] = after
            producer_id, epoch = self._producer
            batch.data = build_batch(
                [entry.record for entry in batch.entries],
                codec=self._codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=NO_SEQUENCE if producer_id < 0 else batch.sequence,
            )
        return batch.data

    def _settle(self, batch: Batch, result: PartitionProduceResponse) -> list[KafkaError]:
        """What an answer means for its batch; the error, if it was refused."""
        if result.error_code == Error.DUPLICATE_SEQUENCE_NUMBER:
            self._acknowledged(batch, -1)
        elif result.error_code == Error.NONE:
            self._acknowledged(batch, result.base_offset)
        elif result.error_code == Error.MESSAGE_TOO_LARGE and len(batch.entries) > 1:
            self._split(batch)
        else:
            return [self._refusal(batch, result)]
        return []

    def _refusal(self, batch: Batch, result: PartitionProduceResponse) -> KafkaError:
        subject = f"{self._name} partition {batch.partition}"
        message = result.error_message
        at = [one for one in result.record_errors if one.batch_index < len(batch.entries)]
        if at:
            subject += f", line {batch.entries[at[0].batch_index].line:,}"
            message = at[0].batch_index_error_message or message
        elif len(batch.entries) == 1:
            subject += f", line {batch.entries[0].line:,}"
        return problem(result.error_code, subject, message)

    def _split(self, batch: Batch) -> None:
        """Two halves in place of a batch that is too large for the topic."""
        half = len(batch.entries) // 2
        first = batch.entries[:half]
        second = [
            Entry(line, record._replace(offset=number))
            for number, (line, record) in enumerate(batch.entries[half:])
        ]
        halves = [Batch(batch.partition, first), Batch(batch.partition, second)]
        assert batch.sequence is not None
        halves[0].sequence = batch.sequence
        halves[1].sequence = (batch.sequence + half) % _SEQUENCES
        at = self._round.index(batch)
        self._round[at : at + 1] = halves

    def _acknowledged(self, batch: Batch, base_offset: int) -> None:
        self._round.remove(batch)
        sent = self.sent.setdefault(batch.partition, Sent())
        if base_offset >= 0:
            if not sent.records:
                sent.first_offset = base_offset
            sent.last_offset = base_offset + len(batch.entries) - 1
        sent.records += len(batch.entries)
        self.total += len(batch.entries)
        self.bytes += sum(
            len(record.key or b"") + len(record.value or b"") for _, record in batch.entries
        )
