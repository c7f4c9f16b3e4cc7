"""What became of the transactions of a partition that is compacted: which records go with an abort,
and which markers nothing is left to mark.

Kafka's `CleanedTransactionMetadata` learns this while it goes through the log once. Here a batch
may be judged more than once, so it is learned beforehand: from the aborted transactions that the
log keeps, and from one look at the headers of all batches that have a producer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from ottla.log.transactions import Aborted
from ottla.wire.records import BatchHeader


class Outcomes:
    """For what lies below the last stable offset: there each transaction has ended. On the
    background thread."""

    def __init__(self, aborted: Aborted) -> None:
        """aborted: of the partition; a copy, since the loop goes on with its own."""
        #: By producer: first offsets and markers' offsets, both ascending.
        self._aborted: dict[int, tuple[list[int], list[int]]] = {}
        for producer_id, first, marker in aborted:
            firsts, markers = self._aborted.setdefault(producer_id, ([], []))
            firsts.append(first)
            markers.append(marker)
        #: Offsets of the markers of whose transaction no batch is left.
        self._alone: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        if not header.is_transactional or header.producer_id not in self._aborted:
            return False
        firsts, markers = self._aborted[header.producer_id]
        at = bisect_left(markers, header.base_offset)
        return at < len(markers) and firsts[at] <= header.base_offset

    def look_for_markers(
        self, headers: Iterable[BatchHeader], stands: Callable[[BatchHeader], bool]
    ) -> None:
        """Find the markers whose transaction has no batch any more, or none that stays. headers: of
        all batches with a producer, in order. stands: whether one stays without records too."""
        left: set[int] = set()
        for header in headers:
            if header.is_control:
                if header.producer_id not in left:
                    self._alone.add(header.base_offset)
                left.discard(header.producer_id)
            elif header.is_transactional and (not self.is_aborted(header) or stands(header)):
                left.add(header.producer_id)

    def is_alone(self, header: BatchHeader) -> bool:
        """Whether the marker has nothing to mark."""
        return header.base_offset in self._alone
