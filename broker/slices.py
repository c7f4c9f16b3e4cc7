"""Long work in slices of about a millisecond, so that all others get a turn in between.

Work is a generator that yields after each small step. What it looks at may change between two
slices, so it looks again at each step. However much of it there is, a turn of the loop holds one
slice; ACTIVE jobs take turns, and the others wait, so that the memory they need is not taken by
all of them at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ottla.wire.compile import encode
from ottla.wire.primitives import encode_uvarint
from ottla.wire.schema import Message, array, message

if TYPE_CHECKING:
    from ottla.broker.clock import Clock
    from ottla.broker.context import Broker, Context, Parked
    from ottla.broker.timers import Timers

T = TypeVar("T")

SLICE_MS: Final = 1.0
#: Jobs that have begun and not ended, at most.
ACTIVE: Final = 4
_ROWS: Final = 200


class Later(NamedTuple):
    """Yielded by a step that waits, for a thread most likely: `begin` gets what is to be called,
    once, when the next step may be taken."""

    begin: Callable[[Callable[[], None]], None]


class Slices:
    """All long work of the broker."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._active: deque[Iterator[object]] = deque()
        self._waiting: deque[Iterator[object]] = deque()
        self._armed = False

    def __len__(self) -> int:
        """Jobs that have not ended."""
        return len(self._active) + len(self._waiting)

    def run(self, steps: Iterator[object]) -> bool:
        """Take all steps, the first slice of them now. Whether that was all. What a step raises is
        heard here, or later by the broker's timers."""
        end = _slice(self._clock, steps)
        if end is None:
            self.start(steps)
        elif end is not _ENDED:
            end.begin(lambda: self.start(steps))
        return end is _ENDED

    def start(self, steps: Iterator[object]) -> None:
        """Take all steps, the first slice of them in a later turn."""
        (self._active if len(self._active) < ACTIVE else self._waiting).append(steps)
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self._timers.after(0, self._turn)

    def _turn(self) -> None:
        self._armed = False
        steps = self._active.popleft()
        try:
            end = _slice(self._clock, steps)
            if end is None:
                self._active.append(steps)
            elif end is not _ENDED:
                end.begin(lambda: self.start(steps))
        finally:
            if self._waiting and len(self._active) < ACTIVE:
                self._active.append(self._waiting.popleft())
            if self._active:
                self._arm()


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
    if _slice(ctx.broker.clock, steps) is _ENDED:
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

    ctx.broker.slices.start(rest())
    return ctx.park()


_ENDED: Final = Later(lambda _: None)


def _slice(clock: Clock, steps: Iterator[object]) -> Later | None:
    """Take steps until the time is up (None), one waits (it is given), or there are no more
    (_ENDED)."""
    until = clock.monotonic_ms() + SLICE_MS
    for step in steps:
        if isinstance(step, Later):
            return step
        if clock.monotonic_ms() >= until:
            return None
    return _ENDED


class Rows:
    """An array of structs that is the last field of what it is in, written as its elements come:
    as many objects, written all at the end, would hold up the loop once more."""

    def __init__(self, element: type, version: int = 0, *, flexible: bool = True) -> None:
        """`version`: the message's, for an element whose fields depend on it. `flexible`: whether
        the message is, in that version."""
        self._message = _array_of(element, version, flexible)
        self._version = version
        self._flexible = flexible
        self._waiting: list[object] = []
        self._written: list[bytes] = []
        self._count = 0

    def add(self, row: object) -> None:
        self._waiting.append(row)
        if len(self._waiting) == _ROWS:
            self._write()

    def add_with(self, row: object, rows: Rows) -> None:
        """Add `row`, whose last field is an empty array, with `rows` in its place."""
        self._write()
        self.add(row)
        self._write()
        self._written.append(rows._in_place(self._written.pop()))

    def end_of(self, response: Message, version: int, behind: int = 0) -> bytes:
        """The response, whose last field is an empty array, with these in its place. `behind`:
        bytes of fields that follow the array."""
        return self._in_place(b"".join(encode(response, version)), behind)

    def _in_place(self, data: bytes, behind: int = 0) -> bytes:
        """`data`, which ends with an empty array, with these in its place."""
        self._write()
        end = len(data) - behind - len(self._tags())
        start = end - len(self._counted(0))
        return b"".join((data[:start], self._counted(self._count), *self._written, data[end:]))

    def _write(self) -> None:
        rows, self._waiting = self._waiting, []
        if rows:
            self._count += len(rows)
            (data,) = encode(self._message(elements=rows), self._version)
            end = len(data) - len(self._tags())
            self._written.append(bytes(data[len(self._counted(len(rows))) : end]))

    def _counted(self, count: int) -> bytes:
        """What is in front of so many elements."""
        return encode_uvarint(count + 1) if self._flexible else count.to_bytes(4, "big")

    def _tags(self) -> bytes:
        """What is behind the last field of a struct: no tagged fields."""
        return b"\0" if self._flexible else b""


@cache
def _array_of(element: type, version: int, flexible: bool) -> type[Any]:
    @message(versions=str(version), flexible=f"{version}+" if flexible else "none")
    class Elements(Message):
        elements: list[Any] = array(element)

    return Elements


def rows_for(ctx: Context, element: type) -> Rows:
    """Rows of an answer to the request of `ctx`, in its version."""
    version = ctx.header.api_version
    return Rows(element, version, flexible=version >= ctx.request.flexible)
