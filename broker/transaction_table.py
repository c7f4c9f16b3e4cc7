"""The transactional ids as they are admitted: in memory by id, in the log a row each; deadlines.

Read in pages at start, and anew after a commit that failed: what was decided and not committed
never was.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.transaction_rows import decode_row, encode_row, row_key, row_number
from ottla.broker.transaction_states import Transaction
from ottla.group.timers import Timers
from ottla.log.errors import LogError
from ottla.log.options import Change, Table
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Broker
    from ottla.broker.timers import Timer
    from ottla.log.tickets import Ticket

_logger = logging.getLogger(__name__)

LOAD_PAGE: Final = 1000
"""Rows that are read before the broker listens: only one with more of them ever answers
COORDINATOR_LOAD_IN_PROGRESS."""
LOAD_SLICE: Final = 100
"""Rows that are read before the loop gets its turn again."""
DUE_SLICE: Final = 100
"""Deadlines served before the loop gets its turn again."""
REFUSED_MS: Final = 1000
"""What could not be written (a full disk) is tried again after so long."""


class _Entry:
    """One transactional id."""

    __slots__ = ("number", "ticket", "txn")

    def __init__(self, number: int, txn: Transaction, ticket: Ticket | None) -> None:
        self.number = number
        self.txn = txn
        #: The commit that makes it true; None when it was read from there.
        self.ticket = ticket


class TransactionTable:
    """What the coordinator knows, and when it has to do something by itself."""

    def __init__(self, broker: Broker, *, time_is_up: Callable[[Transaction], None]) -> None:
        """`time_is_up(txn)`: end or forget it; a KafkaError has it called again in a second."""
        self._broker = broker
        self._store = broker.store
        self._time_is_up = time_is_up
        self._loaded: Callable[[], None] = _nothing
        self._clock = broker.clock
        self._timer: Timer | None = None
        self._armed_ms = 0
        self._entries: dict[str, _Entry] = {}
        self._deadlines: Timers[str] = Timers()
        self._next_number = 0
        #: How often what was admitted was forgotten and the rows read anew.
        self.resets = 0
        #: The key behind which loading goes on; None when it is done.
        self._after: bytes | None = b""

    # -- what there is ----------------------------------------------------------------------------

    @property
    def loading(self) -> bool:
        return self._after is not None

    def get(self, transactional_id: str) -> Transaction | None:
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.txn

    def each(self) -> Iterator[Transaction]:
        """Those that are known now, each as it is when its turn comes: others may come and go in
        between."""
        for transactional_id in list(self._entries):
            txn = self.get(transactional_id)
            if txn is not None:
                yield txn

    def settled(self, transactional_id: str) -> bool:
        """Whether what is known of it is committed."""
        entry = self._entries.get(transactional_id)
        return entry is None or entry.ticket is None or entry.ticket.done

    def now_ms(self) -> int:
        """Like the time of day at start, but never set back or forward since."""
        return self._clock.steady_ms()

    # -- changes ----------------------------------------------------------------------------------

    def write(self, txn: Transaction) -> None:
        """Admit it alone. Raises KafkaError KAFKA_STORAGE_ERROR while the log takes no writes."""
        self.install(txn, self._store.change([self.row(txn)]))

    def row(self, txn: Transaction) -> Change:
        """What goes to the disk. Where the clock was set forward since the start, to the right time
        perhaps, so are its times: the next start must not find them old."""
        ahead_ms = self._clock.wall_ms() - self.now_ms()
        if ahead_ms > 0:
            start_ms = txn.start_ms + ahead_ms if txn.ongoing else txn.start_ms
            txn = replace(txn, start_ms=start_ms, updated_ms=txn.updated_ms + ahead_ms)
        return Change(Table.TRANSACTIONS, row_key(self._number_of(txn)), encode_row(txn))

    def install(self, txn: Transaction, ticket: Ticket) -> None:
        """Its row has been admitted."""
        self._put(self._number_of(txn), txn, ticket)
        self._arm()

    def forget(self, txn: Transaction) -> None:
        """Admit that it is gone. Raises KafkaError as `write` does."""
        key = row_key(self._number_of(txn))
        self._store.change([Change(Table.TRANSACTIONS, key, None)])
        del self._entries[txn.transactional_id]

    def _number_of(self, txn: Transaction) -> int:
        entry = self._entries.get(txn.transactional_id)
        return self._next_number if entry is None else entry.number

    def _put(self, number: int, txn: Transaction, ticket: Ticket | None) -> None:
        entry = self._entries.get(txn.transactional_id)
        if entry is None:
            self._entries[txn.transactional_id] = _Entry(number, txn, ticket)
            self._next_number = max(self._next_number, number + 1)
        else:
            entry.txn, entry.ticket = txn, ticket
        self._deadlines.at(txn.transactional_id, self._deadline(txn))

    # -- time -------------------------------------------------------------------------------------

    def _deadline(self, txn: Transaction) -> int:
        """When it has to end, or may go."""
        if txn.ongoing:
            return txn.start_ms + txn.timeout_ms + 1
        return txn.updated_ms + self._broker.config.transactional_id_expiration_ms

    def _arm(self) -> None:
        """One timer, for the nearest deadline."""
        deadline = self._deadlines.next()
        if deadline is None:
            return
        if self._timer is not None:
            if self._armed_ms <= deadline:
                return
            self._timer.cancel()
        self._armed_ms = deadline
        delay = max(0, deadline - self.now_ms())
        self._timer = self._broker.timers.after(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self.now_ms()
        for _ in range(DUE_SLICE):
            transactional_id = self._deadlines.due(now)
            if transactional_id is None:
                break
            try:
                self._time_is_up(self._entries[transactional_id].txn)
            except KafkaError:
                self._deadlines.at(transactional_id, now + REFUSED_MS)
        self._arm()

    # -- start and failure ------------------------------------------------------------------------

    def load(self, loaded: Callable[[], None]) -> None:
        """Begin to read what is committed; `loaded()` is called when that is done, now or later,
        and again after each failure. Raises LogError."""
        self._loaded = loaded
        self._begin()
        self._load_page(LOAD_PAGE)

    def reset(self, error: LogError) -> None:
        """A commit failed: begin anew with what is committed."""
        self.resets += 1
        self._begin()
        self._go_on_loading(self._entries)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._entries = {}
        self._deadlines = Timers()
        self._next_number = 0
        self._after = b""

    def _load_page(self, limit: int) -> None:
        assert self._after is not None
        rows, self._after = self._store.page(Table.TRANSACTIONS, b"", self._after, limit)
        now = self.now_ms()
        for key, value in rows:
            txn = decode_row(value)
            if txn.updated_ms > now:  # by a clock that was ahead
                txn = replace(txn, start_ms=min(txn.start_ms, now), updated_ms=now)
            self._put(row_number(key), txn, None)
        if self._after is not None:
            self._broker.timers.after(0, partial(self._go_on_loading, self._entries))
        else:
            self._arm()
            self._loaded()

    def _go_on_loading(self, entries: dict[str, _Entry]) -> None:
        if entries is not self._entries:
            return  # begun anew meanwhile
        try:
            self._load_page(LOAD_SLICE)
            # Rows live as long as the process: a collector that looks at 100,000 of them again and
            # again would hold up the loop for a tenth of a second each time.
            gc.freeze()
        except LogError:
            _logger.exception("the transactions cannot be read; trying again")
            self._broker.timers.after(REFUSED_MS, partial(self._go_on_loading, entries))


def _nothing() -> None:
    pass
