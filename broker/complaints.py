"""Log lines about what clients do wrong, few enough that no client can fill the disk with them; and
one line for a file that clients keep asking for."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.clock import Clock
from ottla.broker.loggers import shown
from ottla.log.errors import LogError
from ottla.wire.errors import Error, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context

_storage = logging.getLogger("ottla.broker.storage")
_connections = logging.getLogger("ottla.broker.connections")
_requests = logging.getLogger("ottla.broker.requests")

#: Lines about one client at once, and the time in ms after which there may be one more.
_EACH: Final = (20, 10_000)
#: The same of all clients together.
_ALL: Final = (200, 1000)
#: Clients whose lines are counted at a time.
_MOST_KEYS: Final = 1000

#: Refusals that belong to the ordinary course of a protocol: clients handle them by themselves.
_ROUTINE: Final = frozenset(
    (
        Error.CONCURRENT_TRANSACTIONS,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.FETCH_SESSION_ID_NOT_FOUND,
        Error.GROUP_ID_NOT_FOUND,
        Error.ILLEGAL_GENERATION,
        Error.INVALID_FETCH_SESSION_EPOCH,
        Error.MEMBER_ID_REQUIRED,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.REBALANCE_IN_PROGRESS,
        Error.UNKNOWN_MEMBER_ID,
    )
)


def about_read(error: LogError) -> None:
    """Name the file that could not be read, once: clients ask for it again and again."""
    _tell_once(str(error))


@functools.lru_cache(maxsize=1000)
def _tell_once(what: str) -> None:
    _storage.error("%s", what)


class _Bucket:
    """Fills up to `most` by one every `every_ms`; each line takes one out."""

    __slots__ = ("_at_ms", "_every_ms", "_most", "left", "untold")

    def __init__(self, most: int, every_ms: float, now_ms: float) -> None:
        self._most = most
        self._every_ms = every_ms
        self._at_ms = now_ms
        self.left = float(most)
        self.untold = 0

    def fill(self, now_ms: float) -> None:
        self.left = min(self._most, self.left + (now_ms - self._at_ms) / self._every_ms)
        self._at_ms = now_ms


class Allowance:
    """How many lines there may be about one subject, and about all."""

    def __init__(
        self, clock: Clock, each: tuple[int, int] = _EACH, total: tuple[int, int] = _ALL
    ) -> None:
        """each, total: lines at once, and ms until there may be one more."""
        self._clock = clock
        self._each = each
        self._all = _Bucket(*total, clock.monotonic_ms())
        self._buckets: dict[str, _Bucket] = {}

    def take(self, subject: str) -> str | None:
        """Words to end the line about `subject` with, mostly none; None: no line."""
        now_ms = self._clock.monotonic_ms()
        buckets = self._buckets
        bucket = buckets.pop(subject, None) or _Bucket(*self._each, now_ms)
        buckets[subject] = bucket
        if len(buckets) > _MOST_KEYS:
            del buckets[next(iter(buckets))]  # the one that was used longest ago
        bucket.fill(now_ms)
        self._all.fill(now_ms)
        if bucket.left < 1 or self._all.left < 1:
            bucket.untold += 1
            return None
        bucket.left -= 1
        self._all.left -= 1
        untold, bucket.untold = bucket.untold, 0
        return f" ({untold} more like it were not logged)" if untold else ""


class Complaints:
    """Rate-limited lines about what clients do."""

    def __init__(self, clock: Clock) -> None:
        self._closings = Allowance(clock)
        self._refusals = Allowance(clock)
        #: Connections that were closed, told or not.
        self.total = 0

    def about(self, host: str, client: str, what: str) -> None:
        """`client`: host and port. `what` completes "closed the connection of client: "."""
        self.total += 1
        more = self._closings.take(host)
        if more is not None:
            _connections.warning("closed the connection of %s: %s%s", client, shown(what), more)

    def refused(self, ctx: Context, error: KafkaError) -> None:
        """A request, or a part of it, is answered with `error`."""
        level = logging.DEBUG if error.error in _ROUTINE else logging.INFO
        if not _requests.isEnabledFor(level):
            return
        more = self._refusals.take(ctx.client_host)
        if more is not None:
            words = f": {shown(error.message)}" if error.message else ""
            name = error.error.name
            _requests.log(level, "refused %s of %s: %s%s%s", ctx.api, ctx.client, name, words, more)
