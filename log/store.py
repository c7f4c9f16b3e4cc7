"""The store: one folder, opened by one process. All calls on one thread, the loop's.

Nothing here blocks over a millisecond unless its docstring says so. What is admitted (append,
change) is given its offsets at once and becomes true when its ticket is done; get, scan, read and
the partitions' high watermarks show only what is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.log.errors import LogError
from ottla.log.options import Change, PartitionSettings, StoreOptions, Table
from ottla.log.partition import Partition
from ottla.log.tickets import Ticket
from ottla.wire.codecs import Buffer
from ottla.wire.records import BatchHeader

Post = Callable[[Callable[[], None]], object]


class Appended(NamedTuple):
    base_offset: int
    #: -1, or the batch's timestamp under message.timestamp.type=LogAppendTime, or a duplicate's.
    log_append_time: int
    ticket: Ticket
    #: The batch was in the log, or on its way, already: base_offset is the first one's.
    duplicate: bool


class Committed(NamedTuple):
    """What one commit moved: partitions whose high watermark rose, tables with changed rows."""

    partitions: Sequence[Partition]
    changes: Sequence[Change]


class Read(NamedTuple):
    """Whole batches. `buffers` keep what they view alive; size is their sum in bytes."""

    buffers: list[Buffer]
    size: int


class Cold(NamedTuple):
    """A read that may wait for the disk: give it to `read_cold`."""

    partition: Partition
    offset: int
    max_bytes: int
    end: int
    min_one: bool


class Store:
    @classmethod
    def open(
        cls,
        path: Path,
        *,
        options: StoreOptions,
        now_ms: int,
        boot_id: str,
        post: Post | None = None,
    ) -> Store:
        """Open or make the log in folder `path`; blocks while it is read.

        boot_id: a text that changes when the machine restarts. post: loop.call_soon_threadsafe;
        None does everything inline, for tests and tools. Raises FolderLocked, NewerFormat,
        NotALog, UncleanFolder, Damaged.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Commit what is pending, checkpoint, sync and write the clean mark; blocks. Twice is
        harmless."""
        raise NotImplementedError

    def tick(self, now_ms: int) -> None:
        """Time passes: call every 100 ms or so. Starts checkpoints, rolls by age, retention."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------- state

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The committed row."""
        raise NotImplementedError

    def scan(self, table: Table, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Committed rows whose key starts with `prefix`, in key order; a snapshot."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------------- writing

    def append(
        self, partition: Partition, batch: Buffer, header: BatchHeader, now_ms: int
    ) -> Appended:
        """Admit one checked batch; its base offset and leader epoch are written into `batch`.

        `batch` must stay unchanged until its ticket is done (a copy is made if it is read-only).
        Raises KafkaError: what idempotence judges (OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH), UNKNOWN_TOPIC_OR_PARTITION of a dropped partition,
        KAFKA_STORAGE_ERROR while writes are refused (`refusing` says why).
        """
        raise NotImplementedError

    def change(self, changes: Sequence[Change]) -> Ticket:
        """Admit one atomic group of changes. Raises KafkaError KAFKA_STORAGE_ERROR as append."""
        raise NotImplementedError

    def flush(self) -> None:
        """Hand what is pending to the writer: once per turn of the loop. Commits inline under
        durability `os`."""
        raise NotImplementedError

    def settled(self) -> Ticket:
        """Done when everything admitted so far is; at once when nothing is."""
        raise NotImplementedError

    @property
    def pending_bytes(self) -> int:
        """Bytes of batches and changes admitted and not yet committed."""
        raise NotImplementedError

    @property
    def refusing(self) -> LogError | None:
        """Why writes are refused at the moment (disk full, failed flush), or None."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------- partitions

    def new_partitions(
        self, count: int, settings: PartitionSettings
    ) -> tuple[list[int], list[Change]]:
        """Numbers for `count` partitions and the rows to put into the caller's change()."""
        raise NotImplementedError

    def drop_partitions(self, numbers: Iterable[int]) -> list[Change]:
        """The rows that, once committed, end these partitions for ever."""
        raise NotImplementedError

    def configure(self, numbers: Iterable[int], settings: PartitionSettings) -> None:
        """Tell the log what the topic's configs say; not stored. At start and on every change."""
        raise NotImplementedError

    def partition(self, number: int) -> Partition:
        """The view of a committed partition. Raises KeyError for one that is not."""
        raise NotImplementedError

    def epoch_end(self, partition: Partition, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers: the largest epoch not above
        `epoch` and where it ends; (-1, -1) for one above ours or before the first."""
        raise NotImplementedError

    def delete_records(self, partition: Partition, offset: int) -> Ticket:
        """Move the log start to `offset` (-1: the high watermark); never back. Raises KafkaError
        OFFSET_OUT_OF_RANGE above the high watermark."""
        raise NotImplementedError

    # ----------------------------------------------------------------------------------- reading

    def read(
        self, partition: Partition, offset: int, max_bytes: int, *, end: int, min_one: bool
    ) -> Read | Cold:
        """Batches from the one that holds `offset` (or the next) on, up to `end` (exclusive: the
        high watermark or the last stable offset) or max_bytes, whichever comes first.

        min_one: the first batch is returned whole even if it is larger than max_bytes. May hold
        less than fits. Raises KafkaError OFFSET_OUT_OF_RANGE outside log start ... log end,
        LogError where the file is damaged or missing.
        """
        raise NotImplementedError

    def read_cold(self, cold: Cold, done: Callable[[Read | Exception], None]) -> None:
        """`done` is called on the loop with the batches, a KafkaError or a LogError."""
        raise NotImplementedError

    def offset_for_timestamp(
        self,
        partition: Partition,
        timestamp: int,
        done: Callable[[tuple[int, int] | Exception | None], None],
    ) -> None:
        """First record at or after `timestamp` (ms): `done((offset, timestamp))`, None if there
        is none. May call `done` before it returns."""
        raise NotImplementedError

    def offset_of_max_timestamp(
        self, partition: Partition, done: Callable[[tuple[int, int] | Exception | None], None]
    ) -> None:
        """The first record with the largest timestamp; None in an empty partition."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------ notice

    def listen(self, fn: Callable[[Committed], None]) -> None:
        """`fn` is called on the loop after each commit, after its tickets are done."""
        raise NotImplementedError

    def on_reset(self, fn: Callable[[LogError], None]) -> None:
        """`fn` is called on the loop after a failed commit, when what was admitted and not
        committed is forgotten: whoever keeps admitted state in RAM reads it anew."""
        raise NotImplementedError
