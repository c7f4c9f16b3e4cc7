"""Lines of standard input as they arrive, and signals that end the reading but not the sending."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Final

from ottla.broker.cli_errors import ClientError

LONGEST_LINE: Final = 100 << 20
"""Bytes: socket.request.max.bytes, the largest request that a broker takes."""
_CHUNK: Final = 1 << 16


class Stop:
    """From here on SIGINT, SIGTERM and SIGHUP end the reading; a second one raises
    KeyboardInterrupt. Usable in the main thread only."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The signal that came."""
        self.fd, self._write_fd = os.pipe()
        self._before = {
            number: signal.signal(number, self._stop)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }

    def __enter__(self) -> Stop:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.fd)
        os.close(self._write_fd)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)
        os.write(self._write_fd, b"\0")


def arriving(fd: int, linger_s: float, stop: Stop) -> Iterator[list[bytes]]:
    """Lines without their ends, in lists as they arrive. An empty list comes `linger_s` after the
    first line that follows the one before: time to send.

    Ends with the input, whose last line needs no end, and when `stop` has its signal. Raises
    ClientError for a line longer than LONGEST_LINE and an input that cannot be read.
    """
    parts: list[bytes] = []  # of the line that has no end yet
    size = 0
    deadline: float | None = None
    while stop.signal is None:
        wait_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        if wait_s == 0.0:
            deadline = None
            yield []
            continue
        ready, _, _ = select.select([fd, stop.fd], [], [], wait_s)
        if fd not in ready or stop.signal is not None:
            continue
        try:
            data = os.read(fd, _CHUNK)
        except OSError as error:
            raise ClientError(f"the input cannot be read: {error.strerror}") from None
        if not data:
            break
        first, *rest = data.split(b"\n")
        parts.append(first)
        size += len(first)
        if size > LONGEST_LINE:
            raise ClientError(f"a line is longer than {LONGEST_LINE:,} bytes")
        if rest:
            lines = [b"".join(parts), *rest[:-1]]
            parts, size = [rest[-1]], len(rest[-1])
            if deadline is None:
                deadline = time.monotonic() + linger_s
            yield lines
    if any(parts) and stop.signal is None:
        yield [b"".join(parts)]
