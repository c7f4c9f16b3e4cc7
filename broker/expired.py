"""Says in the log which topics retention has deleted records of: a line for each topic and pass,
with an end to the number of lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.complaints import Allowance

if TYPE_CHECKING:
    from ottla.broker.clock import Clock
    from ottla.broker.metadata import Topics
    from ottla.broker.timers import Timer, Timers
    from ottla.log.store import Store

_logger = logging.getLogger(__name__)

#: What retention deletes within this time, in ms, becomes one line.
GATHER_MS: Final = 5000
#: Topics that are named at a time; the others are counted.
NAMED: Final = 50
#: Lines of one topic and of all: at once, and the ms until one more.
_TOPIC_LINES: Final = (3, 600_000)
_ALL_LINES: Final = (1000, 1000)


class Expired:
    """Gathers what retention deletes, by topic."""

    def __init__(self, store: Store, topics: Topics, timers: Timers, clock: Clock) -> None:
        self._topics = topics
        self._timers = timers
        self._allowance = Allowance(clock, _TOPIC_LINES, _ALL_LINES)
        #: Offsets and partitions by topic.
        self._gathered: dict[str, tuple[int, int]] = {}
        self._timer: Timer | None = None
        store.partitions.on_expired(self._note)

    def _note(self, number: int, before: int, start: int) -> None:
        place = self._topics.place(number)
        if place is None:
            return
        offsets, partitions = self._gathered.get(place.topic, (0, 0))
        self._gathered[place.topic] = offsets + start - before, partitions + 1
        if self._timer is None:
            self._timer = self._timers.after(GATHER_MS, self._tell)

    def _tell(self) -> None:
        self._timer = None
        gathered, self._gathered = self._gathered, {}
        for count, (name, (offsets, partitions)) in enumerate(gathered.items()):
            if count == NAMED:
                _logger.info("retention deleted records of %d more topics", len(gathered) - NAMED)
                return
            more = self._allowance.take(name)
            if more is not None:
                _logger.info(
                    "retention deleted records of %s: %d offsets in %d partition%s%s",
                    name,
                    offsets,
                    partitions,
                    "" if partitions == 1 else "s",
                    more,
                )
