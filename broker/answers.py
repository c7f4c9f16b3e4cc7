"""Answers that are bytes already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.wire.primitives import Buffer
from ottla.wire.schema import Message

if TYPE_CHECKING:
    from ottla.broker.context import Context, Parked
    from ottla.broker.slices import Slices


class Encoded(Message):
    """An answer in the version of its request: for large answers, which are written piece by
    piece, or stay the same over many requests."""

    __slots__ = ("body",)

    def __init__(self, body: Sequence[Buffer]) -> None:
        """`body`: buffers to be sent one after another."""
        self.body = body


class Kept:
    """Large answers that are the same for all who ask, until something changes: each is made once,
    also for those who ask while it is made."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._answers: dict[object, Encoded] = {}
        self._asking: dict[object, list[Context]] = {}

    def clear(self) -> None:
        """What they tell has changed. Who has asked already may be answered as it was."""
        self._answers.clear()
        self._asking.clear()

    def answer(
        self,
        ctx: Context,
        key: object,
        steps: Callable[[], Iterator[object]],
        finish: Callable[[], Sequence[Buffer]],
    ) -> Message | Parked:
        """`key`: all that the answer depends on but what `clear` tells. `steps`: gives the steps
        that make it, `finish` what they have made; either may raise as a handler may."""
        kept = self._answers.get(key)
        if kept is not None:
            return kept
        asking = self._asking.get(key)
        if asking is not None:
            asking.append(ctx)
            return ctx.park()
        asking = self._asking[key] = [ctx]
        made: list[Encoded | Exception] = []

        def make() -> Iterator[object]:
            try:
                yield from steps()
                answer: Encoded | Exception = Encoded((b"".join(finish()),))
            except Exception as error:
                answer = error
            made.append(answer)
            if self._asking.get(key) is asking:
                del self._asking[key]
                if isinstance(answer, Encoded):
                    self._answers[key] = answer
            for waiting in asking:
                if not waiting.parked:
                    continue  # the first, still in `answer` below
                if isinstance(answer, Encoded):
                    waiting.reply(answer)
                else:
                    waiting.fail(answer)

        if not self._slices.run(make(), answer=True):
            return ctx.park()
        (answer,) = made
        if isinstance(answer, Encoded):
            return answer
        raise answer
