"""A request of thousands of partitions, handled as several of some hundred.

What each of these admits is a commit of its own perhaps, so that others' requests come between
them. They are answered together when the last is. Kafka writes them all in one batch; either way a
client that hears of an error, or of nothing, asks again for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from ottla.broker.context import Context, Parked
from ottla.broker.slices import Later
from ottla.wire.schema import Message

#: Partitions of one part.
PART: Final = 200


class Topic(Protocol):
    """A topic of a request."""

    partitions: list[Any]


T = TypeVar("T", bound=Topic)


def is_long(topics: Sequence[Topic]) -> bool:
    """Whether a request of these topics is to be handled in parts."""
    return len(topics) > PART or any(len(topic.partitions) > PART for topic in topics)


def parts(topics: Sequence[T], alike: Callable[[T, list[Any]], T]) -> Iterator[list[T]]:
    """The topics in lists of about PART partitions; `alike` makes a topic with other partitions."""
    part: list[T] = []
    size = 0
    for topic in topics:
        for start in range(0, max(len(topic.partitions), 1), PART):
            partitions = topic.partitions[start : start + PART]
            part.append(alike(topic, partitions))
            size += len(partitions) + 1
            if size >= PART:
                yield part
                part, size = [], 0
    if part:
        yield part


class Part(Context):
    """The context of one part: keeps what it is answered."""

    __slots__ = ("answered", "failed", "outcome")

    def __init__(self, ctx: Context, request: Message) -> None:
        super().__init__(ctx._route, ctx.broker, ctx.connection, ctx.header, request)
        self.outcome: Message | None = None
        self.failed: Exception | None = None
        #: Called when it is answered.
        self.answered: Callable[[], None] | None = None

    def park(self) -> Parked:
        return self

    def reply(self, response: Message) -> None:
        self._end(response, None)

    def fail(self, error: Exception) -> None:
        self._end(None, error)

    def _end(self, response: Message | None, error: Exception | None) -> None:
        if self.outcome is None and self.failed is None:
            self.outcome, self.failed = response, error
            if self.answered is not None:
                self.answered()


def handle_parts(
    ctx: Context,
    requests: Iterator[Message],
    handle: Callable[[Context, Any], Message | Parked],
    whole: Callable[[list[Any]], Message],
) -> Generator[Later | None, None, Message]:
    """Handle the requests one after the other; answered with what `whole` makes of the answers when
    the last is there. The first that fails is raised, when all are done."""
    made: list[Part] = []
    for request in requests:
        part = Part(ctx, request)
        made.append(part)
        try:
            response = handle(part, request)
        except Exception as error:
            part.fail(error)
            break  # so would the others
        if isinstance(response, Message):
            part.reply(response)
        yield None
    for part in made:
        if part.outcome is None and part.failed is None:
            yield Later(partial(_when_answered, part))
    for part in made:
        if part.failed is not None:
            raise part.failed
    return whole([part.outcome for part in made])


def _when_answered(part: Part, go_on: Callable[[], None]) -> None:
    part.answered = go_on
