"""Reads the records of a topic's partitions from any broker of a cluster, through restarts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from ottla.broker.cli_client import RETRIABLE, Cluster, patiently
from ottla.broker.cli_errors import ClientError, problem, raise_for
from ottla.broker.cli_offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from ottla.broker.cli_output import say
from ottla.wire.api.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchResponse
from ottla.wire.api.fetch import FetchTopic as FetchedTopic
from ottla.wire.api.fetch import PartitionData as Fetched
from ottla.wire.api.metadata import MetadataResponseTopic as Topic
from ottla.wire.errors import Error, KafkaError
from ottla.wire.primitives import Buffer
from ottla.wire.records import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Record,
    crc_ok,
    read_header,
    records,
)

_MAX_WAIT_MS: Final = 500
_MAX_BYTES: Final = 8 << 20
_PARTITION_BYTES: Final = 1 << 20
_CONTROL_KEY: Final = Struct(">hh")  # version, type
_ABORT: Final = 0


class Reader:
    """Records of one topic from `positions` on, the next offset by partition; iteration ends when
    `ends` have been reached."""

    def __init__(self, cluster: Cluster, topic: Topic, isolation: int, timeout_s: float) -> None:
        self.positions: dict[int, int] = {}
        self.ends: dict[int, int] | None = None
        self.after_each_fetch: Callable[[], bool] = lambda: True
        """Called when the records of a fetch have been taken; False ends the iteration."""
        self._cluster = cluster
        self._name = topic.name or ""
        self._topic_id = topic.topic_id
        self._isolation = isolation
        self._timeout_s = timeout_s
        self._stale = False
        """Leaders may have moved since the last Metadata."""

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        """Partition and record. Raises ClientError, KafkaError."""
        while self._left():
            for fetched in patiently(self._fetch, self._timeout_s, self._on_trouble):
                yield from self._records(fetched)
            if not self.after_each_fetch():
                return

    def _left(self) -> list[int]:
        return [index for index in self.positions if not self._at_end(index)]

    def _at_end(self, index: int) -> bool:
        return self.ends is not None and self.positions[index] >= self.ends[index]

    def _on_trouble(self, error: Exception) -> None:
        text = (error.message or str(error)) if isinstance(error, KafkaError) else str(error)
        say(f"{text}; trying again for {self._timeout_s:g} s")

    # ----------------------------------------------------------------------------------- fetching

    def _fetch(self) -> list[Fetched]:
        """One Fetch of each leader. Raises what `patiently` knows for errors that pass."""
        if self._stale:
            found = self._cluster.topic(self._name)
            if found.topic_id != self._topic_id:
                raise ClientError(f"{self._name} was deleted and created again in the meantime")
        self._stale = True
        by_leader: dict[int, list[int]] = defaultdict(list)
        for index in self._left():
            by_leader[self._cluster.leader(self._name, index)].append(index)
        answers = []
        for led in by_leader.values():
            request = self._request(led, _MAX_WAIT_MS // len(by_leader))
            answer = self._cluster.call_leader(self._name, led[0], request, FetchResponse)
            raise_for(answer.error_code, self._name)
            answers += [fetched for topic in answer.responses for fetched in topic.partitions]
        for fetched in answers:
            if fetched.error_code in RETRIABLE:
                raise self._problem(fetched)
        self._stale = False
        return answers

    def _request(self, indexes: list[int], max_wait_ms: int) -> FetchRequest:
        asked = FetchedTopic(
            topic=self._name,
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
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            isolation_level=self._isolation,
            topics=[asked],
        )

    def _problem(self, fetched: Fetched) -> KafkaError:
        return problem(fetched.error_code, f"{self._name} partition {fetched.partition_index}")

    # ------------------------------------------------------------------------------------ records

    def _records(self, fetched: Fetched) -> Iterator[tuple[int, Record]]:
        index = fetched.partition_index
        if fetched.error_code == Error.OFFSET_OUT_OF_RANGE:
            self._back_into_range(index)
            return
        if fetched.error_code:
            raise self._problem(fetched)
        data = fetched.records
        if not isinstance(data, (bytes, bytearray, memoryview)) or not data:
            return
        aborted = _Aborted(fetched.aborted_transactions if self._committed_only else None)
        for batch, header in self._batches(index, data):
            if not aborted.hides(batch, header):
                for record in records(batch, header):
                    if record.offset >= self.positions[index] and not self._at_end(index):
                        self.positions[index] = record.offset + 1
                        yield index, record
            self.positions[index] = max(self.positions[index], header.next_offset)

    @property
    def _committed_only(self) -> bool:
        return self._isolation == READ_COMMITTED

    def _batches(self, index: int, data: Buffer) -> Iterator[tuple[memoryview, BatchHeader]]:
        """The whole batches; brokers may cut the last one. Raises ClientError for unsound ones."""
        view = memoryview(data)
        pos = 0
        while len(view) - pos >= HEADER_SIZE:
            header = read_header(view, pos)
            where = f"{self._name} partition {index} offset {header.base_offset}"
            if header.magic != MAGIC:
                raise ClientError(f"{where}: message format {header.magic} is not supported")
            if header.size < HEADER_SIZE:
                raise ClientError(f"{where}: the batch says that it has {header.size} bytes")
            if header.size > len(view) - pos:
                break
            if not crc_ok(view, header, pos):
                raise ClientError(f"{where}: the batch is damaged: its CRC does not fit")
            yield view[pos : pos + header.size], header
            pos += header.size
        if not pos:
            raise ClientError(f"{self._name} partition {index}: the broker sent a part of a batch")

    def _back_into_range(self, index: int) -> None:
        """Retention has deleted the records at the position, or the log has lost its end."""
        start = list_offsets(self._cluster, self._name, [index], EARLIEST)[index]
        end = list_offsets(self._cluster, self._name, [index], LATEST)[index]
        self.positions[index] = moved(self._name, index, self.positions[index], start, end)


def moved(topic: str, index: int, position: int, start: int, end: int) -> int:
    """The position within a log from `start` to `end`, with a line about it if it changes."""
    if position < start:
        say(f"{topic} partition {index} begins at offset {start}, after {position}")
        return start
    if position > end:
        say(f"{topic} partition {index} ends at offset {end}, before {position}")
        return end
    return position


class _Aborted:
    """Which batches of one fetched partition belong to aborted transactions. What a broker sends is
    in the order of offsets; a transaction ends with its marker."""

    def __init__(self, aborted: object) -> None:
        """`aborted`: the list in the answer; None where all is to be shown."""
        listed: list[AbortedTransaction] = aborted if isinstance(aborted, list) else []
        self._coming = sorted(listed, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()

    def hides(self, batch: memoryview, header: BatchHeader) -> bool:
        """Whether the records of the next batch are not to be shown."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._open.add(self._coming.pop().producer_id)
        if header.is_control:
            if header.is_transactional and _is_abort(batch, header):
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def _is_abort(batch: memoryview, header: BatchHeader) -> bool:
    for record in records(batch, header):
        if record.key is not None and len(record.key) >= _CONTROL_KEY.size:
            return int(_CONTROL_KEY.unpack_from(record.key)[1]) == _ABORT
    return False
