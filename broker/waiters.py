"""Long polls: fetches that wait for records, woken by the commits that bring them.

Nothing polls. A parked fetch is listed under each partition it reads; a commit looks only at the
fetches of the partitions it moved. One of very many partitions is asked about each that moves: to
list it under all of them would take longer. Its time limit is an entry on the broker's timer heap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from ottla.broker.timers import Timer, Timers
from ottla.log.partition import Partition

#: From so many partitions on a fetch is not listed under each.
WIDE: Final = 500


class Waiter:
    """One parked fetch. It ends once: woken, timed out, or cancelled."""

    __slots__ = ("_done", "_enough", "_timer", "_waiters", "numbers")

    def __init__(
        self,
        waiters: Waiters,
        numbers: Collection[int],
        enough: Callable[[Partition], bool],
        done: Callable[[], None],
    ) -> None:
        self._waiters = waiters
        #: The log's numbers of the partitions it reads.
        self.numbers = numbers
        self._enough = enough
        self._done = done
        self._timer: Timer | None = None

    def cancel(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._waiters._forget(self)

    def wake(self) -> None:
        """Stop waiting and go on with what there is."""
        if self._timer is not None:
            self.cancel()
            self._done()


class Waiters:
    """All parked fetches of the broker."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._by_number: dict[int, dict[Waiter, None]] = {}
        self._all: dict[Waiter, None] = {}
        self._wide: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def park(
        self,
        numbers: Collection[int],
        wait_ms: float,
        enough: Callable[[Partition], bool],
        done: Callable[[], None],
    ) -> Waiter:
        """Call `done` once: after a commit that moved a partition for which `enough` says so, or
        after `wait_ms`.

        `numbers`: the log's numbers of the partitions, quick to find one in. `enough` is asked
        after every commit that moved one of them and must be quick.
        """
        waiter = Waiter(self, numbers, enough, done)
        waiter._timer = self._timers.after(wait_ms, waiter.wake)
        self._all[waiter] = None
        if len(numbers) >= WIDE:
            self._wide[waiter] = None
        else:
            for number in numbers:
                self._by_number.setdefault(number, {})[waiter] = None
        return waiter

    def moved(self, partitions: Iterable[Partition]) -> None:
        """These partitions have more to read than before."""
        by_number = self._by_number
        wide = list(self._wide)
        for partition in partitions:
            number = partition.number
            waiting = by_number.get(number)
            if waiting:
                for waiter in list(waiting):
                    # an earlier one's answer may have ended a later one
                    if waiter._timer is not None and waiter._enough(partition):
                        waiter.wake()
            for waiter in wide:
                if (
                    waiter._timer is not None
                    and number in waiter.numbers
                    and waiter._enough(partition)
                ):
                    waiter.wake()

    def gone(self, exists: Callable[[int], bool]) -> None:
        """Partitions may have been deleted: whoever waits for one hears of it at once."""
        for number in [number for number in self._by_number if not exists(number)]:
            for waiter in list(self._by_number.get(number, ())):
                waiter.wake()
        for waiter in list(self._wide):
            waiter.wake()  # it looks by itself; topics are not deleted that often

    def wake_all(self) -> None:
        """Answer everybody with what there is: the broker stops."""
        for waiter in list(self._all):
            waiter.wake()

    def _forget(self, waiter: Waiter) -> None:
        self._all.pop(waiter, None)
        if self._wide.pop(waiter, waiter) is None:
            return
        for number in waiter.numbers:
            waiting = self._by_number.get(number)
            if waiting is not None:
                waiting.pop(waiter, None)
                if not waiting:
                    del self._by_number[number]
