"""Waiting for what the other side does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(is_so: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Ask until it is so. Raises AssertionError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"after {seconds} s still not: {what}"
        time.sleep(0.02)
