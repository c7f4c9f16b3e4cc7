"""A promise that something admitted becomes true, or fails."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.log.errors import LogError

_logger = logging.getLogger(__name__)


class Ticket:
    """Done when its commit is. One ticket serves everything that was admitted into the commit."""

    __slots__ = ("_callbacks", "done", "error")

    def __init__(self) -> None:
        self.done = False
        #: Why the commit failed; None while it is not done, and when it succeeded.
        self.error: LogError | None = None
        self._callbacks: list[Callable[[Ticket], object]] = []

    def then(self, fn: Callable[[Ticket], object]) -> None:
        """Call `fn(ticket)` on the loop when done; at once when it is."""
        if self.done:
            fn(self)
        else:
            self._callbacks.append(fn)

    def settle(self, error: LogError | None = None) -> None:
        """The log's own: mark as done and call back, in the order of `then`."""
        self.done = True
        self.error = error
        callbacks, self._callbacks = self._callbacks, []
        for fn in callbacks:
            try:
                fn(self)
            except Exception:
                # One caller's bug must not keep the others from their answer.
                _logger.exception("callback of a commit failed")


def settled(error: LogError | None = None) -> Ticket:
    """A ticket that is done."""
    ticket = Ticket()
    ticket.settle(error)
    return ticket
