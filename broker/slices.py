"""Long work in slices of about a millisecond, so that all others get a turn in between.

Work is a generator that yields after each small step. What it looks at may change between two
slices, so it looks again at each step. However much of it there is, a turn of the loop holds one
slice; ACTIVE jobs take turns, and the others wait, so that the memory they need is not taken by
all of them at once. Long answers wait also while clients do not take those that are made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.broker.clock import Clock
    from ottla.broker.context import Broker, Context, Parked
    from ottla.broker.limits import Unsent
    from ottla.broker.timers import Timers
    from ottla.log.tickets import Ticket

T = TypeVar("T")

SLICE_MS: Final = 1.0
#: Jobs that have begun and not ended, at most.
ACTIVE: Final = 4
#: Beside jobs that have not ended the first slice of another is shorter, and with many there is
#: none: as many as come in a turn would be as many slices.
BESIDE_MS: Final = SLICE_MS / 4
MANY: Final = 8
#: How long answers wait before they look again whether clients have taken theirs.
FULL_MS: Final = 50.0
#: Names sorted in one step.
SORTED: Final = 1000


class Later(NamedTuple):
    """Yielded by a step that waits, for a thread most likely: `begin` gets what is to be called,
    once, when the next step may be taken."""

    begin: Callable[[Callable[[], None]], None]


_ENDED: Final = Later(lambda _: None)


class Slices:
    """All long work of the broker."""

    def __init__(self, clock: Clock, timers: Timers, unsent: Unsent) -> None:
        self._clock = clock
        self._timers = timers
        self._unsent = unsent
        self._active: deque[Iterator[object]] = deque()
        self._waiting: deque[Iterator[object]] = deque()
        #: The same for answers that have only just begun.
        self._answers: deque[Iterator[object]] = deque()
        self._armed = False
        #: Called after each slice that is not the last of its job (garbage.py).
        self.after_slice: Callable[[], None] = _nothing

    def __len__(self) -> int:
        """Jobs that have not ended."""
        return len(self._active) + len(self._waiting) + len(self._answers)

    def first(self, steps: Iterator[object]) -> bool:
        """Take the first slice of a job none of whose steps waits. Whether that was all of it."""
        return self._first(steps) is _ENDED

    def _first(self, steps: Iterator[object]) -> Later | None:
        others = len(self)
        if not others:
            return self._take(steps, SLICE_MS)
        return self._take(steps, BESIDE_MS) if others < MANY else None

    def run(self, steps: Iterator[object], *, answer: bool = False) -> bool:
        """Take all steps, the first slice of them now. Whether that was all. What a step raises is
        heard here, or later by the broker's timers."""
        end = self._first(steps)
        if end is None:
            self.start(steps, answer=answer)
        elif end is not _ENDED:
            end.begin(lambda: self.start(steps))
        return end is _ENDED

    def start(self, steps: Iterator[object], *, answer: bool = False) -> None:
        """Take all steps, the first slice of them in a later turn. `answer`: what comes of them
        takes memory until a client has read it."""
        (self._answers if answer else self._waiting).append(steps)
        self._choose()
        self._arm()

    def _choose(self) -> None:
        """Let jobs begin."""
        active, waiting, answers = self._active, self._waiting, self._answers
        while len(active) < ACTIVE:
            if waiting:
                active.append(waiting.popleft())
            elif answers and self._unsent.room:
                active.append(answers.popleft())
            else:
                break

    def _arm(self) -> None:
        if not self._armed and len(self):
            self._armed = True
            self._timers.after(0 if self._active else FULL_MS, self._turn)

    def _turn(self) -> None:
        self._armed = False
        self._choose()
        try:
            if self._active:
                steps = self._active.popleft()
                end = self._take(steps, SLICE_MS)
                if end is None:
                    self._active.append(steps)
                elif end is not _ENDED:
                    end.begin(lambda: self.start(steps))
        finally:
            self._choose()
            self._arm()

    def _take(self, steps: Iterator[object], ms: float) -> Later | None:
        """Take steps until the time is up (None), one waits (it is given), or there are no more
        (_ENDED)."""
        clock = self._clock
        until = clock.monotonic_ms() + ms
        for step in steps:
            if isinstance(step, Later):
                return step
            if clock.monotonic_ms() >= until:
                self.after_slice()
                return None
        return _ENDED


def _nothing() -> None:
    pass


def whole(steps: Generator[None, None, T]) -> T:
    """What few steps lead to, all taken in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def run_in_slices(broker: Broker, steps: Iterator[object], done: Callable[[], None]) -> None:
    """Take all steps, the first slice of them now, then call `done`; before this returns where
    they are few. What a step raises is heard by who called it: here, or the broker's timers."""

    def job() -> Generator[object, None, None]:
        yield from steps
        done()

    broker.slices.run(job())


def answer_in_slices(
    ctx: Context, steps: Iterator[object], finish: Callable[[], Message | Parked]
) -> Message | Parked:
    """Answer with what `finish` gives when all steps are taken: at once where they are few. Steps
    and `finish` may raise as a handler may, and `finish` may park."""
    slices = ctx.broker.slices
    if slices.first(steps):
        return finish()

    def rest() -> Generator[object, None, None]:
        try:
            while not ctx.over:  # else the client has gone
                try:
                    yield next(steps)
                except StopIteration:
                    break
            else:
                return
            response = finish()
        except Exception as error:
            ctx.fail(error)
            return
        if isinstance(response, Message):
            ctx.reply(response)

    slices.start(rest(), answer=True)
    return ctx.park()


def reply_in_slices(
    ctx: Context, steps: Iterator[object], finish: Callable[[], Message | Parked]
) -> None:
    """The same for a request that is parked already."""
    try:
        response = answer_in_slices(ctx, steps, finish)
    except Exception as error:
        ctx.fail(error)
    else:
        if isinstance(response, Message):
            ctx.reply(response)


def reply_in_slices_after(
    ticket: Ticket, ctx: Context, steps: Iterator[object], finish: Callable[[], Message | Parked]
) -> Parked:
    """The same once what was admitted is true, as `ctx.after` does."""

    def settled(ticket: Ticket) -> None:
        if ticket.error is not None:
            ctx.fail(ticket.error)
        else:
            reply_in_slices(ctx, steps, finish)

    ctx.park()
    ticket.then(settled)
    return ctx


def in_order(names: Iterable[str]) -> Generator[None, None, Iterator[str]]:
    """Steps, and the names sorted: all at once, a hundred thousand take a tenth of a second."""
    runs = []
    rest = iter(names)
    while run := sorted(islice(rest, SORTED)):
        runs.append(run)
        yield
    return merge(*runs)
