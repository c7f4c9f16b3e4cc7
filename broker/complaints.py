"""One log line for a connection that had to be closed, and not a thousand for a thousand of
them; the same for files that clients keep asking for."""

from __future__ import annotations

import functools
import logging

from ottla.broker.clock import Clock
from ottla.log.errors import LogError

_storage = logging.getLogger("ottla.broker.storage")
_logger = logging.getLogger("ottla.broker.connections")

#: Lines a second; what is more is counted and told with the next line.
_PER_SECOND = 10


def about_read(error: LogError) -> None:
    """Name the file that could not be read, once: clients ask for it again and again."""
    _tell_once(str(error))


@functools.lru_cache(maxsize=1000)
def _tell_once(what: str) -> None:
    _storage.error("%s", what)


class Complaints:
    """Rate-limited warnings about what clients do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._left = 0
        self._untold = 0
        #: All of them, told or not.
        self.total = 0

    def about(self, client: str, what: str) -> None:
        """`client`: an address. `what` completes "closed the connection of client: "."""
        self.total += 1
        second = int(self._clock.monotonic_ms()) // 1000
        if second != self._second:
            self._second, self._left = second, _PER_SECOND
        if self._left <= 0:
            self._untold += 1
            return
        self._left -= 1
        more = f" ({self._untold} more like it were not logged)" if self._untold else ""
        self._untold = 0
        _logger.warning("closed the connection of %s: %s%s", client, what, more)
