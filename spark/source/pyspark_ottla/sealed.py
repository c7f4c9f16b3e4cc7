"""Reading sealed segments of Ottla's log straight from the disk (option ottla.log.dir).

The broker is asked what there is (offsets, the topic's id, the cluster's); the records come from
its files, without its CPU. What no file can tell goes through the broker: the part that is not
sealed yet, damage, a file that may be missing, and under read_committed everything from the first
transactional batch on, because the files do not say which transactions were aborted.

The one module of this package that imports Ottla: the reader of sealed segments, and record
batches.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct, error
from typing import TYPE_CHECKING, Any, Final

from pyspark_ottla.cluster import Cluster
from pyspark_ottla.errors import INSTALL, BadOption
from pyspark_ottla.fetching import Fetcher
from pyspark_ottla.opened import BadRecords, add_records
from pyspark_ottla.ranges import Range
from pyspark_ottla.rows import CREATE_TIME, LOG_APPEND_TIME, Rows

try:
    from ottla.log.outside import Extent, LogError, Outside, Table
    from ottla.wire.records import BatchHeader, CorruptBatch, open_records, walk
except ImportError as missing:
    raise BadOption(
        "ottla.log.dir", f"needs Ottla and its dependencies here ({missing}): {INSTALL}"
    ) from missing

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log: Final = logging.getLogger("pyspark_ottla")

#: docs/design/metadata.md: version, topic id, partitions; then the partitions' numbers.
_TOPIC: Final = Struct("<B16sI")
_TOPIC_VERSION: Final = 1
_CLUSTER_ID: Final = b"cluster.id"
_URL_SAFE: Final = str.maketrans("+/", "-_", "=")

#: This process's folders: a worker serves many tasks, and mapped files stay mapped.
_folders: dict[str, Outside] = {}


def folder(path: str) -> Outside:
    """The data folder. Raises BadOption."""
    found = _folders.get(path)
    if found is None:
        try:
            found = _folders[path] = Outside(Path(path))
        except (LogError, OSError) as problem:
            raise BadOption(
                "ottla.log.dir",
                f"{problem}. It is the broker's data folder, to be readable on the driver and on"
                " every executor; leave the option out where it is not",
            ) from None
    return found


def placed(path: str, cluster: Cluster, ranges: Sequence[Range]) -> list[Range]:
    """The ranges with their partitions' numbers in the folder's files, where it knows them.

    A topic that is not in the folder's checkpoint yet, or of which the folder knows a predecessor
    of the same name, is read through the broker; so is what the broker has let go already. Raises
    BadOption when the folder is another broker's.
    """
    outside = folder(path)
    names = sorted({range_.topic for range_ in ranges})
    wanted = [(Table.CLUSTER, _CLUSTER_ID), *((Table.TOPICS, name.encode()) for name in names)]
    try:
        cluster_row, *rows = outside.rows(wanted)
    except (LogError, OSError) as problem:
        raise BadOption("ottla.log.dir", f"cannot be read: {problem}") from None
    here = None if cluster_row is None else cluster_row.decode()
    there = cluster.cluster_id()
    if here != there:
        raise BadOption(
            "ottla.log.dir", f"{path} belongs to cluster {here}, the brokers' cluster is {there}"
        )
    topics = cluster.topics(names) if names else {}
    numbers: dict[tuple[str, int], int] = {}
    for name, row in zip(names, rows, strict=True):
        for index, number in enumerate(_numbers(row, topics[name].id)):
            numbers[name, index] = number
    first = cluster.earliest({range_.of for range_ in ranges if range_.of in numbers})
    return [
        range_.at(numbers[range_.of])
        if range_.of in numbers and range_.start >= first[range_.of]
        else range_
        for range_ in ranges
    ]


def _numbers(row: bytes | None, topic_id: str) -> tuple[int, ...]:
    if row is None:
        return ()
    version, found, count = _TOPIC.unpack_from(row)
    # librdkafka writes ids with + and /, Kafka with - and _
    known = base64.b64encode(found, b"-_").decode().rstrip("=")
    if version != _TOPIC_VERSION or known != topic_id.translate(_URL_SAFE):
        return ()
    return Struct(f"<{count}I").unpack_from(row, _TOPIC.size)


class _ThroughBroker(Exception):
    """The rest of the range is not for this reader; the text says why."""


class SealedReader:
    """Reads ranges of one query from the files, and through the broker what they do not have."""

    def __init__(self, path: str, isolation: str, schema: StructType, fetcher: Fetcher) -> None:
        self._path = path
        self._committed = isolation == "read_committed"
        self._schema = schema
        self._fetcher = fetcher

    def read(self, range_: Range) -> Iterator[Any]:
        """RecordBatches of the range. Raises BadOption, DataLoss, BrokerError."""
        rows = Rows(self._schema, range_.topic, range_.partition)
        reading = _Reading(rows, range_, self._committed)
        outside = folder(self._path)
        try:
            for extent in outside.extents(range_.number or 0, range_.start, range_.end):
                if extent.first > reading.next and not extent.follows:
                    # Compaction, or a file that is missing? The broker knows.
                    yield from self._fetcher.into(rows, range_.part(reading.next, extent.first))
                    reading.next = extent.first
                for _ in reading.batches(extent):
                    if rows.full:
                        yield from rows.drain()
        except (_ThroughBroker, BadRecords, CorruptBatch, LogError, OSError, error) as reason:
            log.info("%s: on through the broker at %s: %s", range_, reading.next, reason)
        if reading.next < range_.end:
            yield from self._fetcher.into(rows, range_.part(reading.next, range_.end))
        yield from rows.drain()


class _Reading:
    """How far one range is read."""

    def __init__(self, rows: Rows, range_: Range, committed: bool) -> None:
        self._rows = rows
        self._range = range_
        self._committed = committed
        self.next = range_.start

    def batches(self, extent: Extent) -> Iterator[None]:
        """Take the extent's batches; a pause after each. Raises _ThroughBroker and what damaged
        batches raise; `next` is then where to go on."""
        view = extent.view
        for at, header in walk(view):
            if header.last_offset < self.next:
                continue
            if header.base_offset >= self._range.end:
                self.next = self._range.end
                return
            if self._committed and header.is_transactional:
                raise _ThroughBroker("a transaction, which may have been aborted")
            if not header.is_control:
                self._records(view[at : at + header.size], header)
                yield
            self.next = min(header.next_offset, self._range.end)

    def _records(self, batch: memoryview, header: BatchHeader) -> None:
        rows = self._rows
        added = add_records(
            rows,
            bytes(open_records(batch, header)),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            self.next,
            self._range.end,
        )
        if header.log_append_time:
            rows.times[len(rows.times) - added :] = [header.max_timestamp] * added
        rows.time_types += [LOG_APPEND_TIME if header.log_append_time else CREATE_TIME] * added
