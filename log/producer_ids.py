"""Producer ids: given out once, never again, whatever is killed in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from ottla.log.options import Change, Table
from ottla.log.tickets import Ticket

#: Row of Table.CLUSTER: the first id that no block holds, int64.
KEY: Final = b"next_producer_id"
#: Ids taken with one commit, as many as Kafka's controller gives a broker at a time.
BLOCK: Final = 1000
_VALUE: Final = Struct("<q")


class ProducerIds:
    """Hands out ids from blocks; a block is taken by writing down where the next one starts.

    A kill wastes what is left of a block, which costs nothing: there are 2^63 ids.
    """

    __slots__ = ("_change", "_end", "_next", "_ticket")

    def __init__(self, stored: bytes | None, change: Callable[[Sequence[Change]], Ticket]) -> None:
        """stored: the committed row (Store.get), change: Store.change."""
        self._change = change
        self.reset(stored)

    def reset(self, stored: bytes | None) -> None:
        """Begin behind what is committed: at start, and after a failed commit (Store.on_reset)."""
        self._next: int = 0 if stored is None else _VALUE.unpack(stored)[0]
        self._end = self._next
        self._ticket: Ticket | None = None

    def take(self) -> tuple[int, Ticket]:
        """An id, and the ticket to wait for before anybody is told of it.

        Raises KafkaError KAFKA_STORAGE_ERROR while the log refuses writes and a block is needed.
        """
        if self._ticket is None or self._next == self._end:
            end = self._end + BLOCK
            self._ticket = self._change([Change(Table.CLUSTER, KEY, _VALUE.pack(end))])
            self._end = end
        producer_id = self._next
        self._next += 1
        return producer_id, self._ticket
