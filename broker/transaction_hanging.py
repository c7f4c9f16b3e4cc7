"""Transactions that hang: open in a partition, and in no coordinator's row, so nobody is going to
end them, and readers of committed records wait (KIP-664).

They are looked for when the rows have been read, and every ten minutes; each is told once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ottla.broker.loggers import shown
from ottla.broker.slices import run_in_slices
from ottla.log.producers import OpenTransaction

if TYPE_CHECKING:
    from ottla.broker.context import Broker
    from ottla.broker.timers import Timer
    from ottla.broker.transaction_table import TransactionTable

_logger = logging.getLogger(__name__)

LOOK_MS: Final = 600_000
"""As often as Kafka looks for producers to forget (producer.id.expiration.check.interval.ms)."""
LINES: Final = 20
"""Log lines of one look."""


class Hanging:
    """What hangs, as it was found last."""

    def __init__(
        self, broker: Broker, table: TransactionTable, names: Callable[[Iterable[int]], str]
    ) -> None:
        """names: partitions, by the log's numbers, for a log line."""
        self._broker = broker
        self._table = table
        self._names = names
        #: Partition, producer id and first offset of those that were told.
        self._told: set[tuple[int, int, int]] = set()
        self._timer: Timer | None = None
        self._looks = 0

    def look(self) -> None:
        """Look now, a slice at a time, and again from time to time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._broker.timers.after(LOOK_MS, self.look)
        self._looks += 1
        if not self._table.loading:  # else it is called when that is done
            run_in_slices(self._broker, self._steps(self._looks), lambda: None)

    def _steps(self, number: int) -> Iterator[None]:
        """Each is judged in one step, by what is admitted then."""
        store, table, resets = self._broker.store, self._table, self._table.resets
        open_ones, producers = list[OpenTransaction](), set[int]()
        for found in store.open_transactions():
            open_ones.append(found)
            producers.add(found.producer_id)
            yield
        owners: dict[int, str] = {}
        if open_ones:
            for txn in table.each():
                if txn.producer_id in producers:
                    owners[txn.producer_id] = txn.transactional_id
                yield
        hanging: list[OpenTransaction] = []
        for found in open_ones:
            if number != self._looks or table.resets != resets:
                return  # another look has begun, or will
            if self._hangs(found, owners.get(found.producer_id)):
                hanging.append(found)
            yield
        self._tell(hanging, owners)

    def _hangs(self, found: OpenTransaction, owner: str | None) -> bool:
        number, producer_id, first, _ = found
        if self._broker.store.producers.open_transaction(number, producer_id) != first:
            return False  # it has ended meanwhile
        txn = None if owner is None else self._table.get(owner)
        return (
            txn is None
            or not txn.ongoing
            or txn.producer_id != producer_id
            or number not in txn.partitions
        )

    def _tell(self, hanging: list[OpenTransaction], owners: dict[int, str]) -> None:
        known, self._told = self._told, {found[:3] for found in hanging}
        news: dict[int, list[int]] = {}
        for number, producer_id, *_ in self._told - known:
            news.setdefault(producer_id, []).append(number)
        for producer_id, numbers in list(news.items())[:LINES]:
            _logger.warning(
                "transaction %s of producer %d hangs: no coordinator is going to end it; `ottla"
                " transactions abort` does: %s",
                shown(owners.get(producer_id, "?")),
                producer_id,
                self._names(numbers),
            )
        if len(news) > LINES:
            _logger.warning(
                "%d more producers have transactions that hang: see `ottla transactions list"
                " --hanging`",
                len(news) - LINES,
            )
