"""What is admitted and not yet true: gathered into groups, committed, then shown or taken back.

The loop gathers a group, hands it to the committing thread (writer.py) at most once a turn, and
hears of its outcome in the order of the groups. A failure fails everything behind it, because
offsets and sequences were given out in order; docs/design/log.md says how the log goes on.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import lmdb

from ottla.log.commit import MAX_KEY, Group
from ottla.log.errors import DiskFull, LogError
from ottla.log.folder import Folder
from ottla.log.layout import Layout
from ottla.log.mailbox import Mailbox
from ottla.log.options import Change, StoreOptions
from ottla.log.segment import ActiveSegment
from ottla.log.tickets import Ticket, settled
from ottla.log.writer import CommitFailed, Committer, Outcome, Writer
from ottla.wire.errors import Error, KafkaError

_logger = logging.getLogger(__name__)

#: While writes are refused, look this often whether they work again.
RETRY_MS: Final = 1000
#: What a change costs in a journal beside key and value.
_ENTRY_BYTES: Final = 8


class Effects(NamedTuple):
    """What the store does when a commit has ended."""

    #: Show what is true now; the tickets of its groups are settled by it.
    show: Callable[[Outcome], None]
    #: Forget what was admitted and is not true.
    rollback: Callable[[], None]
    #: Tell those who keep admitted state of their own.
    reset: Callable[[LogError], None]
    #: Seal the segments that are not written any more.
    seal: Callable[[], None]


class Pipeline:
    """Groups on their way to the disk. All calls on the loop."""

    def __init__(
        self,
        folder: Folder,
        layout: Layout,
        next_number: int,
        options: StoreOptions,
        now_ms: int,
        mailbox: Mailbox | None,
        effects: Effects,
    ) -> None:
        """mailbox: how the committing thread reaches the loop; None commits inline."""
        self._folder = folder
        self._layout = layout
        self._mailbox = mailbox
        self._effects = effects
        self.options = options
        #: The time of day that was told last.
        self.now_ms = now_ms
        #: The time that deadlines go by, as of the last tick: nobody sets it. 0 before the first.
        self.steady_ms = 0
        #: Number of the last commit that is true.
        self.committed = next_number - 1
        #: What is being gathered.
        self.group = Group(options.large_extent_bytes)
        self._inflight: deque[Group] = deque()
        self._inflight_bytes = 0
        #: Why writes are refused at the moment (disk full, failed flush), or None.
        self.refusing: LogError | None = None
        #: Nothing is admitted just so: `refusing`, or closed.
        self.shut = False
        self._poisoned = False
        self._retry_ms = 0
        self.closed = False
        #: None after a failure, while the disk takes no writes at all.
        self.committer: Committer | None = Committer(folder, layout.active, next_number, options)
        #: The committing thread; None where commits do not wait for the disk, and in tests.
        self._writer: Writer | None = None
        self.start_writer()

    def start_writer(self) -> None:
        """Commit on a thread of its own from now on, where commits wait for the disk."""
        mailbox = self._mailbox
        if mailbox is None or self.committer is None or self.options.durability == "os":
            return

        def done(outcome: Outcome) -> None:
            mailbox.send(lambda: self._done(outcome))

        def failed(failure: CommitFailed) -> None:
            mailbox.send(lambda: self._failed(failure))

        self._writer = Writer(self.committer, self.options, done, failed)

    def close(self) -> None:
        """Commit what is pending and take no more; blocks. What the thread reports last is the
        mailbox's to deliver."""
        self.flush()
        self.closed = self.shut = True
        if self._writer is not None:
            self._writer.stop()

    def tick(self, now_ms: int, steady_ms: int) -> None:
        """Time passes."""
        self.now_ms = now_ms
        self.steady_ms = steady_ms
        if self.refusing is not None and steady_ms >= self._retry_ms:
            self._retry()

    # ----------------------------------------------------------------------------------- admission

    def change(self, changes: Sequence[Change]) -> Ticket:
        """See Store.change."""
        if self.shut:
            self.refuse(appends=False)
        size = size_of(changes)
        group = self.group
        group.time_ms = self.now_ms
        group.changes.extend(changes)
        group.size += size
        return group.ticket

    def flush(self) -> None:
        """See Store.flush."""
        if self.group.extents or self.group.changes:
            self._submit()

    def roll(self) -> None:
        """See Store.roll."""
        if self.committer is None:
            return
        self.committer.roll_due = True
        if not self._inflight:
            self.group.time_ms = self.now_ms
            self._submit()

    def try_roll(self) -> None:
        """Where no new segment could be begun, try it again with the next commit."""
        if self.committer is not None:
            self.committer.try_roll = True

    def settled(self) -> Ticket:
        """See Store.settled."""
        if self.group.extents or self.group.changes:
            return self.group.ticket
        return self._inflight[-1].ticket if self._inflight else settled()

    @property
    def committing(self) -> bool:
        """A group with something in it is on its way."""
        return self._inflight_bytes > 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of batches and changes admitted and not yet committed."""
        return self._inflight_bytes + self.group.size

    def refuse(self, *, appends: bool) -> None:
        """Raise while writes are refused; a change may go on when only room is missing."""
        if self.closed:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, "the broker is stopping")
        if self.steady_ms >= self._retry_ms:
            self._retry()
        if self.refusing is None or (self.committer is not None and not appends):
            return
        raise KafkaError(Error.KAFKA_STORAGE_ERROR, str(self.refusing))

    # ------------------------------------------------------------------------------------ outcomes

    def _submit(self) -> None:
        group = self.group
        self.group = Group(self.options.large_extent_bytes)
        self._inflight.append(group)
        self._inflight_bytes += group.size
        if self._writer is not None:
            self._writer.submit(group)
            return
        assert self.committer is not None, "what is refused is not submitted"
        try:
            outcome = self.committer.commit([group])
        except CommitFailed as failure:
            self._failed(failure)
        else:
            self._done(outcome)

    def _done(self, outcome: Outcome) -> None:
        for group in outcome.groups:
            self._inflight.popleft()
            self._inflight_bytes -= group.size
        self.committed = outcome.number
        self._effects.show(outcome)

    def _failed(self, failure: CommitFailed) -> None:
        """Forget all that was admitted and is not true; begin anew if the disk allows."""
        error = failure.error
        _logger.error("%s", error)
        groups = [*self._inflight, self.group]
        self._inflight.clear()
        self._inflight_bytes = 0
        self.group = Group(self.options.large_extent_bytes)
        self._effects.rollback()
        self.refusing = error
        self.shut = True
        self._poisoned = self._poisoned or failure.poisoned
        self.committer = None
        self._writer = None
        self._retry()
        self._effects.reset(error)
        for group in groups:
            group.ticket.settle(error)

    def _retry(self) -> None:
        """See whether the disk takes writes again."""
        self._retry_ms = self.steady_ms + RETRY_MS
        if self._poisoned:
            if not self._leave_segment():
                return
            self._poisoned = False
        if self.committer is None:
            number = self.committed + 1
            self.committer = Committer(self._folder, self._layout.active, number, self.options)
            self.start_writer()
        error = self.refusing
        if isinstance(error, DiskFull):
            # A little more than was missing, so as not to fail again at once.
            wanted = error.needed + self.options.disk_reserve_bytes // 4
            if self._folder.free_bytes() < wanted:
                return
        if error is not None:
            _logger.warning("%s takes writes again", self._folder.path)
        self.refusing = None
        self.shut = self.closed

    def _leave_segment(self) -> bool:
        """Never write the active segment again: begin the next with the number of the commit that
        failed. False when the disk does not take that either."""
        layout = self._layout
        old = layout.active
        old.env.close()
        try:
            new = ActiveSegment.create(self._folder, self.committed + 1, self.now_ms, self.options)
        except (lmdb.Error, OSError) as error:
            _logger.error("%s: no new segment can be begun: %s", self._folder.segments, error)
            self._reopen(old)
            return False
        layout.active = new
        if old.last >= old.first:
            self._reopen(old)
            layout.rolled.append(old)
            self._effects.seal()
        return True

    def _reopen(self, segment: ActiveSegment) -> None:
        """For reading; where that fails too it is tried again, or sealed, which does without."""
        try:
            segment.reopen(self.options)
        except lmdb.Error as error:
            _logger.error("%s cannot be opened again: %s", segment.path, error)


def size_of(changes: Sequence[Change]) -> int:
    """What changes take in a journal, about. Raises ValueError for a key over 500 bytes."""
    size = 0
    for _, key, value in changes:
        if len(key) > MAX_KEY:
            raise ValueError(f"a key of {len(key)} bytes; {MAX_KEY} are the most")
        size += _ENTRY_BYTES + len(key) + (0 if value is None else len(value))
    return size
