"""Handing calls from the log's threads to the loop, so that closing can wait for them too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress

Call = Callable[[], None]


class Mailbox:
    """Calls left by threads, run on the loop in order."""

    def __init__(self, post: Callable[[Call], object]) -> None:
        """post: loop.call_soon_threadsafe."""
        self._post = post
        self._calls: deque[Call] = deque()

    def send(self, call: Call) -> None:
        """From any thread."""
        self._calls.append(call)
        # RuntimeError: the loop is closed. Whoever closes the store delivers what is left.
        with suppress(RuntimeError):
            self._post(self.deliver)

    def deliver(self) -> None:
        """On the loop: run everything that was left so far."""
        calls = self._calls
        while calls:
            calls.popleft()()
