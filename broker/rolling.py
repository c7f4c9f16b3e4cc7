"""Topics' segment.ms, segment.bytes and max.compaction.lag.ms: when the log's file is closed for
the sake of one topic.

All topics share the file being written, and the log closes it by its own size and age. A topic may
ask for less: retention then has smaller parts to drop, and what takes closed files only
(compaction, readers from outside) comes sooner. As in Kafka the age counts only where the
partition has records in the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.broker.metadata import Topics
    from ottla.broker.timers import Timers
    from ottla.log.store import Store

#: How often the bounds are looked at: a file is never closed more often than this, in ms.
CHECK_MS: Final = 1000


class Bound(NamedTuple):
    """What a topic asks for that is less than what the log does anyhow."""

    partitions: tuple[int, ...]
    age_ms: int
    size_bytes: int


class Rolling:
    """Looks at the bounds from time to time and rolls the log."""

    def __init__(self, store: Store, topics: Topics, timers: Timers) -> None:
        self._store = store
        self._topics = topics
        self._timers = timers
        self._version = -1
        self._bounds: list[Bound] = []
        timers.after(CHECK_MS, self._check)

    def _gather(self) -> None:
        options = self._store.options
        self._version = self._topics.version
        self._bounds = [
            Bound(topic.partitions, topic.config.longest_open_ms, topic.config.segment_bytes)
            for topic in self._topics
            if topic.config.longest_open_ms < options.segment_ms
            or topic.config.segment_bytes < options.segment_bytes
        ]

    def _check(self) -> None:
        self._timers.after(CHECK_MS, self._check)
        if self._topics.version != self._version:
            self._gather()
        if self._bounds and self._store.refusing is None and self._due():
            self._store.roll()

    def _due(self) -> bool:
        active = self._store.layout.active
        held = active.index.partitions
        age_ms = self._store.active_age_ms
        for bound in self._bounds:
            for number in bound.partitions:
                extents = held.get(number)
                if extents is not None and (
                    age_ms >= bound.age_ms or extents.length >= bound.size_bytes
                ):
                    return True
        return False
