"""The store: one folder, opened by one process. All calls on one thread, the loop's.

Nothing here blocks over a millisecond unless its docstring says so. What is admitted (append,
change) is given its offsets at once and becomes true when its ticket is done; get, scan, read and
the partitions' high watermarks show only what is true.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from ottla.log.commit import IDEMPOTENT, MAX_KEY, Group
from ottla.log.errors import DiskFull, LogError
from ottla.log.folder import FORMAT, Folder, Mark, Step, no_step
from ottla.log.mailbox import Mailbox
from ottla.log.maintenance import Maintenance
from ottla.log.options import Change, PartitionSettings, StoreOptions, Table
from ottla.log.partition import KEY, Partition
from ottla.log.partitions import Partitions
from ottla.log.readers import Readers, fetch
from ottla.log.reading import Cold, Read, read
from ottla.log.recovery import Opened, open_folder
from ottla.log.segment import ActiveSegment
from ottla.log.statecopy import StateCopy
from ottla.log.tickets import Ticket, settled
from ottla.log.timestamps import Found, find_first, find_latest, search
from ottla.log.writer import CommitFailed, Committer, Outcome, Writer
from ottla.wire.codecs import Buffer
from ottla.wire.errors import Error, KafkaError
from ottla.wire.records import BatchHeader, patch

_logger = logging.getLogger(__name__)

Post = Callable[[Callable[[], None]], object]

#: While writes are refused, look this often whether they work again.
RETRY_MS: Final = 1000
#: What a change costs in a journal beside key and value.
_ENTRY_BYTES: Final = 8


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
        #: Number of the last commit that is true.
        self.committed = opened.next_number - 1
        #: The last time that was told.
        self.now_ms = now_ms
        self.partitions = Partitions(self.layout, self.state, self.producers)
        self.copy = StateCopy(self.folder, self.state)
        self._group = Group(options.large_extent_bytes)
        self._inflight: deque[Group] = deque()
        self._inflight_bytes = 0
        self._listeners: list[Callable[[Committed], None]] = []
        self._resets: list[Callable[[LogError], None]] = []
        self._refusing: LogError | None = None
        self._poisoned = False
        self._retry_ms = 0
        self._closed = False
        self._mailbox = None if post is None else Mailbox(post)
        send = None if self._mailbox is None else self._mailbox.send
        #: None after a failure, while the disk takes no writes at all.
        self._committer: Committer | None = Committer(
            self.folder, self.layout.active, opened.next_number, options
        )
        #: The committing thread; None where commits do not wait for the disk, and in tests.
        self._writer: Writer | None = None
        self._start_writer()
        self._readers = Readers(send)
        self._maintenance = Maintenance(self, send)
        for segment in list(self.layout.rolled):
            self._maintenance.seal(segment)

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
        folder = Folder(path, step)
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
        if self._closed:
            return
        self.flush()
        self._closed = True
        if self._writer is not None:
            self._writer.stop()
        self._readers.stop()
        self.deliver()
        self._maintenance.close()
        if self._refusing is None:
            # Under `os` names and files are on their way to the disk; the mark must not be first.
            for segment in self.layout.unsealed():
                segment.env.sync(True)
            self.folder.sync()
            self.state.sync()
        for segment in self.layout.unsealed():
            segment.env.close()
        self.state.close()
        mark = self.folder.mark
        if self._refusing is None and mark is not None:
            self.folder.write_mark(Mark(FORMAT, mark.durability, mark.boot_id, True))
        self.folder.close()

    def deliver(self) -> None:
        """Take what the log's threads have left for the loop; it comes by itself otherwise."""
        if self._mailbox is not None:
            self._mailbox.deliver()

    def tick(self, now_ms: int) -> None:
        """Time passes: call every 100 ms or so. Starts checkpoints, rolls by age, expiry."""
        self.now_ms = now_ms
        if self._refusing is not None and now_ms >= self._retry_ms:
            self._retry()
        if not self._closed:
            self._maintenance.tick(now_ms)

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
        """A scan in parts: about `limit` committed rows behind key `after`, and the key to go on
        after, None at the end. Each part is a snapshot of its own. Raises Damaged."""
        return self.state.page(table, prefix, after, limit)

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
        self.now_ms = now_ms
        if self._refusing is not None or self._closed:
            self._refuse(appends=True)
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
        group = self._group
        group.time_ms = now_ms
        timestamp = header.max_timestamp
        group.add(number, flags, base, last, timestamp, header.batch_length + 12, batch)
        if group.size >= self.options.max_commit_bytes:
            self.flush()
        return Appended(base, timestamp if header.log_append_time else -1, group.ticket, False)

    def change(self, changes: Sequence[Change]) -> Ticket:
        """Admit one atomic group of changes. Raises KafkaError KAFKA_STORAGE_ERROR while writes
        are refused, ValueError for a key over 500 bytes."""
        if self._refusing is not None or self._closed:
            self._refuse(appends=False)
        group = self._group
        group.time_ms = self.now_ms
        size = 0
        for _, key, value in changes:
            if len(key) > MAX_KEY:
                raise ValueError(f"a key of {len(key)} bytes; {MAX_KEY} are the most")
            size += _ENTRY_BYTES + len(key) + (0 if value is None else len(value))
        group.changes.extend(changes)
        group.size += size
        return group.ticket

    def flush(self) -> None:
        """Hand what is pending to the writer: once per turn of the loop. Commits inline under
        durability `os`."""
        if self._group.extents or self._group.changes:
            self._submit()

    def roll(self) -> None:
        """Begin a new segment with the next commit, or now if none is pending."""
        if self._committer is None:
            return
        self._committer.roll_due = True
        if not self._inflight:
            self._group.time_ms = self.now_ms
            self._submit()

    def settled(self) -> Ticket:
        """Done when everything admitted so far is; at once when nothing is."""
        if self._group.extents or self._group.changes:
            return self._group.ticket
        return self._inflight[-1].ticket if self._inflight else settled()

    @property
    def pending_bytes(self) -> int:
        """Bytes of batches and changes admitted and not yet committed."""
        return self._inflight_bytes + self._group.size

    @property
    def refusing(self) -> LogError | None:
        """Why writes are refused at the moment (disk full, failed flush), or None."""
        return self._refusing

    def _submit(self) -> None:
        group = self._group
        self._group = Group(self.options.large_extent_bytes)
        self._inflight.append(group)
        self._inflight_bytes += group.size
        if self._writer is not None:
            self._writer.submit(group)
            return
        assert self._committer is not None, "what is refused is not submitted"
        try:
            outcome = self._committer.commit([group])
        except CommitFailed as failure:
            self._failed(failure)
        else:
            self._done(outcome)

    def _done(self, outcome: Outcome) -> None:
        """A commit is true: show it."""
        number, time_ms, rows, changes, groups, rolled = outcome
        for group in groups:
            self._inflight.popleft()
            self._inflight_bytes -= group.size
        layout = self.layout
        if rolled is not None:
            layout.rolled.append(rolled.old)
            layout.active = rolled.new
        self.committed = number
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
            self._maintenance.seal(rolled.old)
        if rolled is not None or self.state.dirty >= self.options.checkpoint_rows:
            self._maintenance.checkpoint()

    # ---------------------------------------------------------------------------------- failures

    def _start_writer(self) -> None:
        mailbox = self._mailbox
        if mailbox is None or self._committer is None or self.options.durability == "os":
            return

        def done(outcome: Outcome) -> None:
            mailbox.send(lambda: self._done(outcome))

        def failed(failure: CommitFailed) -> None:
            mailbox.send(lambda: self._failed(failure))

        self._writer = Writer(self._committer, self.options, done, failed)

    def _failed(self, failure: CommitFailed) -> None:
        """Forget all that was admitted and is not true; begin anew if the disk allows."""
        error = failure.error
        _logger.error("%s", error)
        groups = [*self._inflight, self._group]
        self._inflight.clear()
        self._inflight_bytes = 0
        self._group = Group(self.options.large_extent_bytes)
        self.partitions.rollback()
        self._refusing = error
        self._poisoned = self._poisoned or failure.poisoned
        self._committer = None
        self._writer = None
        self._retry()
        for fn in self._resets:
            fn(error)
        for group in groups:
            group.ticket.settle(error)

    def _retry(self) -> None:
        """See whether the disk takes writes again."""
        self._retry_ms = self.now_ms + RETRY_MS
        if self._poisoned:
            if not self._leave_segment():
                return
            self._poisoned = False
        if self._committer is None:
            number = self.committed + 1
            self._committer = Committer(self.folder, self.layout.active, number, self.options)
            self._start_writer()
        error = self._refusing
        if isinstance(error, DiskFull):
            # A little more than was missing, so as not to fail again at once.
            wanted = error.needed + self.options.disk_reserve_bytes // 4
            if self.folder.free_bytes() < wanted:
                return
        if error is not None:
            _logger.warning("%s takes writes again", self.folder.path)
        self._refusing = None

    def _leave_segment(self) -> bool:
        """Never write the active segment again: begin the next with the number of the commit that
        failed. False when the disk does not take that either."""
        old = self.layout.active
        old.env.close()
        try:
            new = ActiveSegment.create(self.folder, self.committed + 1, self.now_ms, self.options)
        except (lmdb.Error, OSError) as error:
            _logger.error("%s: no new segment can be begun: %s", self.folder.segments, error)
            old.reopen(self.options)
            return False
        self.layout.active = new
        if old.last >= old.first:
            old.reopen(self.options)
            self.layout.rolled.append(old)
            self._maintenance.seal(old)
        return True

    def _refuse(self, *, appends: bool) -> None:
        """Raise while writes are refused; a change may go on when only room is missing."""
        if self._closed:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, "the broker is stopping")
        if self.now_ms >= self._retry_ms:
            self._retry()
        if self._refusing is None or (self._committer is not None and not appends):
            return
        raise KafkaError(Error.KAFKA_STORAGE_ERROR, str(self._refusing))

    # -------------------------------------------------------------------------------- partitions

    def new_partitions(
        self, count: int, settings: PartitionSettings
    ) -> tuple[list[int], list[Change]]:
        """Numbers for `count` partitions and the rows to put into the caller's change()."""
        return self.partitions.create(count, settings)

    def drop_partitions(self, numbers: Iterable[int]) -> list[Change]:
        """The rows that, once committed, end these partitions for ever."""
        return [Change(Table.PARTITIONS, KEY.pack(number), None) for number in numbers]

    def configure(self, numbers: Iterable[int], settings: PartitionSettings) -> None:
        """Tell the log what the topic's configs say; not stored. At start and on every change."""
        self.partitions.configure(numbers, settings)

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
        """Move the log start to `offset` (-1: the high watermark); never back. Raises KafkaError
        OFFSET_OUT_OF_RANGE above the high watermark."""
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
