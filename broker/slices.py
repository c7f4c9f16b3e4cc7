"""Long work in slices of about a millisecond, so that everybody else gets a turn in between.

Work is a generator that yields after each small step. What it looks at may change between two
slices, so it looks anew at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ottla.wire.compile import encode
from ottla.wire.primitives import encode_uvarint
from ottla.wire.schema import Message, array, message

if TYPE_CHECKING:
    from ottla.broker.clock import Clock
    from ottla.broker.context import Broker, Context, Parked

SLICE_MS: Final = 1.0
_ROWS: Final = 200


def run_in_slices(broker: Broker, steps: Iterator[object], done: Callable[[], None]) -> None:
    """Take all steps, the first slice of them now, then call `done`; before this returns where
    they are few. What a step raises is heard by who called it: here, or the broker's timers."""
    if _slice(broker.clock, steps):
        done()
    else:
        broker.timers.after(0, lambda: run_in_slices(broker, steps, done))


def answer_in_slices(
    ctx: Context, steps: Iterator[object], finish: Callable[[], Message | Parked]
) -> Message | Parked:
    """Answer with what `finish` gives when all steps are taken: at once where they are few. Steps
    and `finish` may raise as a handler may, and `finish` may park."""
    if _slice(ctx.broker.clock, steps):
        return finish()

    def go_on() -> None:
        if ctx.over:
            return  # the client has gone
        try:
            if not _slice(ctx.broker.clock, steps):
                ctx.broker.timers.after(0, go_on)
                return
            response = finish()
        except Exception as error:
            ctx.fail(error)
            return
        if isinstance(response, Message):
            ctx.reply(response)

    ctx.broker.timers.after(0, go_on)
    return ctx.park()


def _slice(clock: Clock, steps: Iterator[object]) -> bool:
    """Take steps until the time is up. Whether there are no more."""
    until = clock.monotonic_ms() + SLICE_MS
    return all(clock.monotonic_ms() < until for _ in steps)


class Rows:
    """An array of structs that is the last field of what it is in, written as its elements come:
    as many objects, written all at the end, would hold up the loop once more. For flexible
    versions, and structs without fields of their own in some of them."""

    def __init__(self, element: type) -> None:
        self._message = _array_of(element)
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
        self._written.append(_filled(self._written.pop(), rows))

    def end_of(self, response: Message, version: int) -> bytes:
        """The response, whose last field is an empty array, with these in its place."""
        return _filled(b"".join(encode(response, version)), self)

    def _array(self) -> bytes:
        self._write()
        return b"".join((encode_uvarint(self._count + 1), *self._written))

    def _write(self) -> None:
        rows, self._waiting = self._waiting, []
        if rows:
            self._count += len(rows)
            (data,) = encode(self._message(elements=rows), 0)
            self._written.append(bytes(data[len(encode_uvarint(len(rows) + 1)) : -len(_NO_TAGS)]))


#: How a struct ends whose last field is an empty array: its count, no tagged fields.
_NO_TAGS: Final = b"\0"
_EMPTY: Final = b"\1" + _NO_TAGS


def _filled(data: bytes, rows: Rows) -> bytes:
    return b"".join((data[: -len(_EMPTY)], rows._array(), _NO_TAGS))


@cache
def _array_of(element: type) -> type[Any]:
    @message(versions="0", flexible="0+")
    class Elements(Message):
        elements: list[Any] = array(element)

    return Elements
