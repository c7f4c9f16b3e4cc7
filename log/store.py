"""The store: one folder, opened by one process. All calls on one thread, the loop's.

Nothing here blocks over a millisecond unless its docstring says so. What is admitted (append,
change) is given its offsets at once and becomes true when its ticket is done; get, scan, read and
the partitions' high watermarks show only what is true.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from ottla.log.commit import IDEMPOTENT
from ottla.log.errors import LogError
from ottla.log.folder import FORMAT, Folder, Mark, Step, no_step
from ottla.log.mailbox import Mailbox
from ottla.log.maintenance import Maintenance
from ottla.log.options import Change, PartitionSettings, StoreOptions, Table
from ottla.log.partition import KEY, Partition
from ottla.log.partitions import Partitions
from ottla.log.pipeline import Effects, Pipeline
from ottla.log.producer import ProducerState
from ottla.log.producers import OpenTransaction
from ottla.log.readers import Readers, T, fetch
from ottla.log.reading import Cold, Read, read
from ottla.log.recovery import Opened, open_folder
from ottla.log.statecopy import StateCopy
from ottla.log.tickets import Ticket
from ottla.log.timestamps import Found, find_first, find_latest, search
from ottla.log.transactions import End, Marker, MarkerRefused, aborted_row, marker_batch
from ottla.log.writer import Outcome
from ottla.wire.codecs import Buffer
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import LOG_APPEND_TIME, BatchHeader, patch

#: What a named tuple's own way of making one does in twice the time.
_new_tuple: Final = tuple.__new__

Post = Callable[[Callable[[], None]], object]


class Appended(NamedTuple):
    base_offset: int
    #: -1, or the batch's timestamp under message.timestamp.type=LogAppendTime, or a duplicate's.
    log_append_time: int
    ticket: Ticket
    #: The batch was in the log, or on its way, already: base_offset is the first one's.
    duplicate: bool


class Committed(NamedTuple):
    """What one commit moved: partitions whose high watermark rose, and its changes."""

    partitions: Sequence[Partition]
    changes: Sequence[Change]


class Store:
    """One open folder."""

    def __init__(
        self, opened: Opened, options: StoreOptions, now_ms: int, post: Post | None
    ) -> None:
        """Use Store.open."""
        self.options = options
        self.folder = opened.folder
        self.layout = opened.layout
        self.state = opened.state
        self.producers = opened.producers
        self.producers.limit(options.producers_max)
        self.partitions = Partitions(self.layout, self.state, self.producers)
        self.copy = StateCopy(self.folder, self.state)
        self._listeners: list[Callable[[Committed], None]] = []
        self._resets: list[Callable[[LogError], None]] = []
        self._mailbox = None if post is None else Mailbox(post)
        send = None if self._mailbox is None else self._mailbox.send
        self.pipeline = Pipeline(
            self.folder,
            self.layout,
            opened.next_number,
            options,
            now_ms,
            self._mailbox,
            Effects(self._show, self.partitions.rollback, self._tell_reset, self._seal),
        )
        self._readers = Readers(send)
        #: One thread: the memory that such jobs take is that of one.
        self._helper = Readers(send, 1, "aside")
        self._maintenance = Maintenance(self, send)
        if self.layout.rolled:
            # As at any roll: what they changed is in the checkpoint soon, so they may be changed.
            self._maintenance.checkpoint()
        self._maintenance.seal()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        options: StoreOptions,
        now_ms: int,
        boot_id: str,
        post: Post | None = None,
        step: Step = no_step,
    ) -> Store:
        """Open or make the log in folder `path`; blocks while it is read.

        boot_id: a text that changes when the machine restarts. post: loop.call_soon_threadsafe;
        None does all inline (tests, tools). step: called before each file operation, for tests.
        Raises FolderLocked, NewerFormat, NotALog, UncleanFolder, Damaged, OSError.
        """
        folder = Folder(path, step, file_mode=options.file_mode)
        try:
            return cls(open_folder(folder, options, boot_id, now_ms), options, now_ms, post)
        except lmdb.Error as error:
            folder.close()
            raise LogError(f"{path}: {error}") from error
        except BaseException:
            folder.close()
            raise

    def close(self) -> None:
        """Commit what is pending, checkpoint, sync and write the clean mark; blocks. Twice is
        harmless. All tickets are done before it returns."""
        if self.pipeline.closed:
            return
        self.pipeline.close()
        self._readers.stop()
        self._helper.stop()
        self.deliver()
        self._maintenance.close()
        if self.refusing is None:
            # Under `os` names and files are on their way to the disk; the mark must not be first.
            for segment in self.layout.unsealed():
                segment.env.sync(True)
            self.folder.sync()
            self.state.sync()
        for segment in self.layout.unsealed():
            segment.env.close()
        self.state.close()
        mark = self.folder.mark
        if self.refusing is None and mark is not None:
            self.folder.write_mark(Mark(FORMAT, mark.durability, mark.boot_id, True))
        self.folder.close()

    def deliver(self) -> None:
        """Take what the log's threads have left for the loop; it comes by itself otherwise."""
        if self._mailbox is not None:
            self._mailbox.deliver()

    def tick(self, now_ms: int, steady_ms: int | None = None) -> None:
        """Time passes: call every 100 ms or so. Starts checkpoints, rolls by age, expiry.

        now_ms: the time of day, held against times of records and on the disk. steady_ms: what
        deadlines go by, the same at the start and never set; without it neither is the other.
        """
        steady_ms = now_ms if steady_ms is None else steady_ms
        self.producers.steady_ms = steady_ms
        self.pipeline.tick(now_ms, steady_ms)
        if not self.pipeline.closed:
            self._maintenance.tick(now_ms, steady_ms)

    @property
    def active_age_ms(self) -> int:
        """How long the active segment has been written, as of the last tick."""
        return self._maintenance.active_age_ms

    # ------------------------------------------------------------------------------------- state

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The committed row. Raises Damaged."""
        return self.state.get(table, key)

    def scan(self, table: Table, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Committed rows whose key starts with `prefix`, in key order; a snapshot. Raises
        Damaged."""
        return self.state.scan(table, prefix)

    def page(
        self, table: Table, prefix: bytes = b"", after: bytes = b"", limit: int = 1000
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """A scan in parts: at most `limit` committed rows behind key `after`, and the key to go on
        after, None at the end. Each part is a snapshot of its own. Raises Damaged."""
        return self.state.page(table, prefix, after, limit)

    # ----------------------------------------------------------------------------------- writing

    def append(
        self, partition: Partition, batch: Buffer, header: BatchHeader, now_ms: int
    ) -> Appended:
        """Admit one checked batch; its base offset and leader epoch are written into `batch`.

        `batch` must stay unchanged until its ticket is done (a copy is made if it is read-only).
        Whether a transactional batch may open a transaction here is the caller's to know. Raises
        KafkaError: what is judged of its producer (OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE), UNKNOWN_TOPIC_OR_PARTITION of a dropped
        partition, KAFKA_STORAGE_ERROR while writes are refused (`refusing` says why).
        """
        pipeline = self.pipeline
        pipeline.now_ms = now_ms
        if pipeline.shut:
            pipeline.refuse(appends=True)
        if partition.dropped:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "the topic is deleted")
        number = partition.number
        base = partition.log_end_offset
        flags = 0
        if header.producer_id >= 0:
            repeat = self.producers.judge(number, header)
            if repeat is not None:
                return Appended(repeat.base_offset, repeat.timestamp, self.settled(), True)
            flags = IDEMPOTENT
            committed = partition.high_watermark
            self.producers.record(number, header, base, committed, now_ms)
        try:
            patch(batch, 0, base, partition.leader_epoch)  # type: ignore[arg-type] # bytes: below
        except TypeError:
            batch = bytearray(batch)
            patch(batch, 0, base, partition.leader_epoch)
        last = base + header.last_offset_delta
        partition.log_end_offset = last + 1
        group = pipeline.group
        group.time_ms = now_ms
        timestamp = header.max_timestamp
        group.add(number, flags, base, last, timestamp, header.batch_length + 12, batch)
        if group.size >= self.options.max_commit_bytes:
            pipeline.flush()
        log_append_time = timestamp if header.attributes & LOG_APPEND_TIME else -1
        return _new_tuple(Appended, (base, log_append_time, group.ticket, False))

    def change(self, changes: Sequence[Change]) -> Ticket:
        """Admit one atomic group of changes. Raises KafkaError KAFKA_STORAGE_ERROR while writes
        are refused, ValueError for a key over 500 bytes."""
        return self.pipeline.change(changes)

    def write_markers(
        self, markers: Sequence[Marker], changes: Sequence[Change], now_ms: int
    ) -> Ticket:
        """Admit the end of transactions, one marker in each partition named, and the changes that
        go with it, as one atomic group.

        All markers are judged before anything is admitted. Raises MarkerRefused, which names all
        that may not be written (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED,
        UNKNOWN_TOPIC_OR_PARTITION of a dropped partition); KafkaError and ValueError as append and
        change do.
        """
        pipeline = self.pipeline
        pipeline.now_ms = now_ms
        if pipeline.shut:
            pipeline.refuse(appends=True)
        judged = [(marker, self._judge(marker)) for marker in markers]
        refused = [(marker, error) for marker, error in judged if error is not None]
        if refused:
            raise MarkerRefused(refused)
        ticket = pipeline.change(changes)
        aborted = [row for marker in markers if (row := self._mark(marker, now_ms)) is not None]
        pipeline.change(aborted)
        if pipeline.group.size >= self.options.max_commit_bytes:
            pipeline.flush()
        return ticket

    def _judge(self, marker: Marker) -> KafkaError | None:
        if marker.partition.dropped:
            return KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "the topic is deleted")
        return self.producers.judge_marker(marker)

    def _mark(self, marker: Marker, now_ms: int) -> Change | None:
        """Admit one marker; the row of the transaction that it aborts."""
        partition, producer_id, epoch, coordinator_epoch, committed, _ = marker
        number, offset = partition.number, partition.log_end_offset
        batch = marker_batch(marker, offset, partition.leader_epoch, now_ms)
        end = End(committed, coordinator_epoch)
        ended = self.producers.end_transaction(
            number, producer_id, epoch, end, offset, partition.high_watermark, now_ms
        )
        partition.log_end_offset = offset + 1
        self.pipeline.group.add(number, IDEMPOTENT, offset, offset, now_ms, len(batch), batch)
        if committed or ended is None:
            return None
        first, stable = ended
        return aborted_row(number, offset, producer_id, first, stable)

    def flush(self) -> None:
        """Hand what is pending to the writer: once per turn of the loop. Commits inline under
        durability `os`."""
        self.pipeline.flush()

    def roll(self) -> None:
        """Begin a new segment with the next commit, or now if none is pending."""
        self.pipeline.roll()

    def settled(self) -> Ticket:
        """Done when everything admitted so far is; at once when nothing is."""
        return self.pipeline.settled()

    @property
    def committed(self) -> int:
        """Number of the last commit that is true."""
        return self.pipeline.committed

    @property
    def steady_ms(self) -> int:
        """The time that deadlines go by, as of the last tick."""
        return self.pipeline.steady_ms

    @property
    def gathered_bytes(self) -> int:
        """Bytes of batches and changes admitted since the last flush."""
        return self.pipeline.group.size

    @property
    def committing(self) -> bool:
        """Something that was flushed is not true yet; the listeners will hear of it."""
        return self.pipeline.committing

    @property
    def pending_bytes(self) -> int:
        """Bytes of batches and changes admitted and not yet committed."""
        return self.pipeline.pending_bytes

    @property
    def refusing(self) -> LogError | None:
        """Why writes are refused at the moment (disk full, failed flush), or None."""
        return self.pipeline.refusing

    def _show(self, outcome: Outcome) -> None:
        """A commit is true."""
        number, time_ms, rows, changes, groups, rolled = outcome
        layout = self.layout
        if rolled is not None:
            layout.rolled.append(rolled.old)
            layout.active = rolled.new
        active = layout.active
        if rows or changes:
            active.index.add(number, rows)
            active.last = number
            active.time_ms = time_ms
        moved = self.partitions.advance(rows)
        if changes:
            self.state.apply(changes)
            if self.partitions.apply(changes):
                self._maintenance.sweep.soon()
        for group in groups:
            group.ticket.settle()
        if rows or changes:
            committed = Committed(moved, changes)
            for listener in self._listeners:
                listener(committed)
        if rolled is not None:
            self._maintenance.seal()
            self._maintenance.checkpoint()
        else:
            self._maintenance.committed()

    def _seal(self) -> None:
        self._maintenance.seal()

    def _tell_reset(self, error: LogError) -> None:
        for fn in self._resets:
            fn(error)

    # -------------------------------------------------------------------------------- partitions

    def new_partitions(
        self, count: int, settings: PartitionSettings
    ) -> tuple[list[int], list[Change]]:
        """Numbers for `count` partitions and the rows to put into the caller's change()."""
        return self.partitions.create(count, settings)

    def number_partitions(self, count: int) -> tuple[list[int], list[Change]]:
        """The same for who prepares a change over several turns: he admits the rows together with
        `partition_counter()` of then, and says the settings once they count. Numbers of what is
        never admitted are lost."""
        return self.partitions.number(count)

    def partition_counter(self) -> Change:
        """The row that says which numbers have been given out."""
        return self.partitions.counter()

    def drop_partitions(self, numbers: Iterable[int]) -> list[Change]:
        """The rows that, once committed, end these partitions for ever."""
        return [Change(Table.PARTITIONS, KEY.pack(number), None) for number in numbers]

    def configure(self, numbers: Iterable[int], settings: PartitionSettings) -> None:
        """Tell the log what the topic's configs say; not stored. At start and on every change."""
        self.partitions.configure(numbers, settings)

    def set_options(self, options: StoreOptions) -> None:
        """Other options, which differ only in those that may change while the log is open."""
        before, self.options = self.options, options
        self._maintenance.retime(before)

    def settings(self, number: int) -> PartitionSettings:
        """What was told of a partition last."""
        return self.partitions.settings(number)

    def partition(self, number: int) -> Partition:
        """The view of a committed partition. Raises KeyError for one that is not."""
        return self.partitions.get(number)

    def epoch_end(self, partition: Partition, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers: the largest epoch not above
        `epoch` and where it ends; (-1, -1) for one above ours or below 0. Source:
        LeaderEpochFileCache.endOffsetFor."""
        return self.partitions.epoch_end(partition, epoch)

    def delete_records(self, partition: Partition, offset: int) -> Ticket:
        """Move the log start to `offset` (-1: the high watermark); never back. Raises KafkaError:
        OFFSET_OUT_OF_RANGE above the high watermark, UNKNOWN_TOPIC_OR_PARTITION of one dropped."""
        if partition.dropped:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "the topic is deleted")
        if offset == -1:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(
                Error.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of 0 to {partition.high_watermark}",
            )
        if offset <= partition.start_admitted:
            return self.settled()
        before = partition.start_admitted
        partition.start_admitted = offset
        try:
            return self.change([partition.row()])
        except KafkaError:
            partition.start_admitted = before
            raise

    # -------------------------------------------------------------------------------- transactions

    def open_transaction(
        self, partition: Partition, producer_id: int, producer_epoch: int | None = None
    ) -> int | None:
        """First offset of the transaction that the producer (of this epoch) has open in what is
        admitted of the partition; None where it has none."""
        first = self.producers.open_transaction(partition.number, producer_id, producer_epoch)
        return None if first < 0 else first

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """All transactions that are open in what is admitted, by the partitions' own numbers."""
        return self.producers.open_transactions()

    def aborted(self, partition: Partition, start: int, end: int) -> tuple[array[int], array[int]]:
        """Producer ids and first offsets of the aborted transactions that touch the offsets from
        `start` up to `end` (exclusive), committed ones, in the order of their markers."""
        return self.partitions.aborted(partition.number).overlapping(start, end)

    def coordinator_epoch(self, partition: Partition, producer_id: int) -> int:
        """Of the producer's last marker in what is admitted of the partition; -1 without one."""
        return self.producers.coordinator_epoch(partition.number, producer_id)

    def producers_of(self, partition: Partition) -> Iterator[ProducerState]:
        """What DescribeProducers tells, each as of what is committed when its turn comes: they may
        be many, and who asks may give others a turn in between."""
        return self.producers.each(partition.number, lambda: partition.high_watermark)

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
        warm = self.options.warm_segments
        return read(self.layout, partition, offset, max_bytes, end, min_one, warm)

    def read_cold(self, cold: Cold, done: Callable[[Read | Exception], None]) -> None:
        """`done` is called on the loop with the batches or a LogError."""
        self._readers.submit(lambda: fetch(cold), done)

    def aside(self, job: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run a job that takes long and needs nothing of the store on a thread, behind those
        submitted before; `done` gets what it returns or raises, on the loop."""
        self._helper.submit(job, done)

    def offset_for_timestamp(
        self, partition: Partition, timestamp: int, done: Callable[[Found | Exception | None], None]
    ) -> None:
        """First record at or after `timestamp` (ms): `done((offset, timestamp))` on the loop, None
        if there is none, else a LogError. May call `done` before it returns."""
        search(find_first(self.layout, partition, timestamp), self._readers.submit, done)

    def offset_of_max_timestamp(
        self, partition: Partition, done: Callable[[Found | Exception | None], None]
    ) -> None:
        """The first record with the largest timestamp; None where no record has one."""
        search(find_latest(self.layout, partition), self._readers.submit, done)

    # ------------------------------------------------------------------------------------ notice

    def listen(self, fn: Callable[[Committed], None]) -> None:
        """`fn` is called on the loop after each commit, after its tickets are done."""
        self._listeners.append(fn)

    def on_reset(self, fn: Callable[[LogError], None]) -> None:
        """`fn` is called on the loop after a failed commit, when what was admitted and not
        committed is forgotten: whoever keeps admitted state in RAM reads it anew."""
        self._resets.append(fn)
