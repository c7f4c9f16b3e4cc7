"""What happens beside the commits: checkpoints, rolls by age, seals, expiry, sweeps.

Runs on the loop, in small steps, and hands the work to the background thread. Time comes from
`tick`: every deadline goes by `steady_ms`, which nobody sets; the time of day is for what is held
against times on the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.log.background import Background
from ottla.log.options import StoreOptions
from ottla.log.sealing import seal
from ottla.log.segment import ActiveSegment, SealedSegment
from ottla.log.sweep import Sweep

if TYPE_CHECKING:
    from ottla.log.store import Store

_logger = logging.getLogger(__name__)

#: After a failed checkpoint, roll or seal, try again this much later.
RETRY_MS: Final = 5_000
#: How often expired producers are looked for.
EXPIRY_MS: Final = 600_000
#: However short a retention is, segments are not rolled more often for it: a roll costs flushes.
LEAST_ROLL_MS: Final = 10_000


class Maintenance:
    """Keeps the checkpoint near and the segments sealed."""

    def __init__(self, store: Store, post: Callable[[Callable[[], None]], None] | None) -> None:
        self._store = store
        self._background = Background(post)
        self._checkpoint_ms = 0
        self._checkpointing = False
        self._forced = False
        self._sealing = False
        self._seal_again_ms = 0
        self._roll_again_ms = 0
        self._try_roll_ms = 0
        self._expire_ms = 0
        #: The active segment whose age is known, and when it was of age 0, by `steady_ms`.
        self._aging: ActiveSegment | None = None
        self._began_ms = 0
        #: How long the active segment has been written, as of the last tick.
        self.active_age_ms = 0
        self.sweep = Sweep(store, self._background)

    def close(self) -> None:
        """Finish what is under way and write a last checkpoint; blocks."""
        self.sweep.stop()
        self._background.stop()
        self._store.deliver()
        self._background = Background(None)
        self.checkpoint()

    def tick(self, now_ms: int, steady_ms: int) -> None:
        """Time passes."""
        store = self._store
        if steady_ms - self._checkpoint_ms >= store.options.checkpoint_ms:
            self._checkpoint_ms = steady_ms
            self.checkpoint(forced=False)
        if steady_ms >= self._seal_again_ms:
            self.seal()
        active = store.layout.active
        self._age(active, now_ms, steady_ms)
        if (
            active.last >= active.first
            and self.active_age_ms >= self._roll_ms()
            and steady_ms >= self._roll_again_ms
        ):
            self._roll_again_ms = steady_ms + RETRY_MS
            store.roll()
        if steady_ms >= self._try_roll_ms:
            self._try_roll_ms = steady_ms + RETRY_MS
            store.pipeline.try_roll()
        self._expire_producers(now_ms, steady_ms)
        self.sweep.tick(now_ms, steady_ms)

    def _age(self, active: ActiveSegment, now_ms: int, steady_ms: int) -> None:
        """The time of day is asked once: how old the segment is when it is first seen, that of an
        earlier start among them."""
        if active is not self._aging:
            self._aging = active
            self._began_ms = steady_ms - max(0, now_ms - active.created_ms)
        self.active_age_ms = steady_ms - self._began_ms

    def _expire_producers(self, now_ms: int, steady_ms: int) -> None:
        """A slice of a round; a round every ten minutes, as with Kafka, or sooner where they are
        to be forgotten sooner. The earlier of both times: a clock that was set forward for a while
        must not make anything old."""
        if steady_ms < self._expire_ms:
            return
        expiration_ms = self._store.options.producer_id_expiration_ms
        if not self._store.producers.expire(min(now_ms, steady_ms), expiration_ms):
            self._expire_ms = steady_ms + min(EXPIRY_MS, expiration_ms // 10)

    def retime(self, before: StoreOptions) -> None:
        """Options changed: move deadlines by as much as the intervals they end changed."""
        then = min(EXPIRY_MS, before.producer_id_expiration_ms // 10)
        now = min(EXPIRY_MS, self._store.options.producer_id_expiration_ms // 10)
        self._expire_ms += now - then
        self.sweep.retime(before)

    def _roll_ms(self) -> int:
        """At most a quarter of the shortest retention, so that space comes back in time."""
        options = self._store.options
        shortest = self._store.partitions.shortest_retention_ms()
        if shortest < 0:
            return options.segment_ms
        return min(options.segment_ms, max(shortest // 4, LEAST_ROLL_MS))

    # ------------------------------------------------------------------------------- checkpoints

    def committed(self) -> None:
        """A commit is true: do not let the next checkpoint become too large."""
        store = self._store
        if store.state.dirty >= store.options.checkpoint_rows:
            self.checkpoint()
        elif store.producers.changed >= store.options.checkpoint_producers:
            self.checkpoint(forced=False)

    def checkpoint(self, *, forced: bool = True) -> None:
        """Write what changed since the last one, if anything did and none is being written.

        forced: also when only batches were committed and no row changed. A start reads their
        directories anyway, so that is worth its flushes only where a segment is done.
        """
        store = self._store
        state = store.state
        applied = store.committed
        self._forced = self._forced or forced
        if self._checkpointing or applied == state.applied:
            return
        state.apply(store.producers.take_changed(store.partitions.committed_end))
        if not (self._forced or state.dirty):
            return
        self._forced = False
        rows = state.freeze()
        self._checkpointing = True

        def write() -> None:
            store.folder.step("checkpoint: write")
            state.write(rows, applied)
            store.folder.step("checkpoint: written")

        def done(result: Exception | None) -> None:
            self._checkpointing = False
            if result is None:
                state.thaw(applied)
                _logger.debug("checkpoint at commit %d: %d rows", applied, len(rows))
                return
            state.refreeze()
            self._forced = True
            self._checkpoint_ms += RETRY_MS
            _logger.error("checkpoint into %s failed: %s", state.path, result)

        self._background.submit(write, done)

    # -------------------------------------------------------------------------------------- seal

    def seal(self) -> None:
        """Seal the rolled segments, one behind the other, unless that is under way.

        Oldest first, and none behind one that cannot be sealed: reads look at sealed files before
        unsealed ones.
        """
        store = self._store
        if self._sealing or not store.layout.rolled:
            return
        self._sealing = True
        segment = store.layout.rolled[0]

        def job() -> SealedSegment:
            return seal(store.folder, segment, self._background.pause)

        def done(result: SealedSegment | Exception) -> None:
            self._sealing = False
            if isinstance(result, Exception):
                self._seal_again_ms = store.steady_ms + RETRY_MS
                _logger.error("sealing %s failed: %s", segment.path, result)
                return
            held = len(result.index.numbers())
            _logger.info("sealed %s: %d bytes of %d partitions", result.name, result.size, held)
            store.layout.replace([], [result], segment)
            # Unmapping a large file takes its time.
            self._background.submit(segment.env.close, lambda _: None)
            self.seal()

        self._background.submit(job, done)
