"""Two threads for reads that may wait for the disk.

What a read will need is brought into the page cache with plain reads first: they give the GIL
away while they wait, and fail with an error where a mapped page would end the process.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, TypeVar

from ottla.log.reading import Cold, Read, cold_ranges, read_cold
from ottla.log.segment import SealedSegment

T = TypeVar("T")
Job = Callable[[], None]

_logger = logging.getLogger(__name__)

#: Threads that read.
THREADS: Final = 2
_CHUNK: Final = 1 << 20


class Readers:
    """Runs reads on its threads and hands the results to the loop."""

    def __init__(
        self, post: Callable[[Job], object] | None, threads: int = THREADS, name: str = "read"
    ) -> None:
        """post: hands a call to the loop. None: reads run where they are submitted."""
        self._post = post
        self._most = threads
        self._name = name
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def submit(self, job: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run `job`; `done` gets what it returns or raises, on the loop."""

        def run() -> None:
            result: T | Exception
            try:
                result = job()
            except Exception as error:
                result = error
            if self._post is None:
                done(result)
            else:
                self._post(lambda: done(result))

        if self._post is None:
            run()
            return
        if len(self._threads) < self._most:
            # Made when there is something to read: most brokers never read a cold byte.
            name = f"ottla-{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put(run)

    def stop(self) -> None:
        """Finish what is queued and end; blocks."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _run(self) -> None:
        while True:
            run = self._queue.get()
            if run is None:
                return
            try:
                run()
            except RuntimeError:
                # The loop is closed already: there is nobody left to tell.
                _logger.debug("the loop is gone", exc_info=True)


def fetch(cold: Cold) -> Read:
    """Bring the range into memory, then cut and check it. Raises LogError, OSError."""
    for segment, start, stop in cold_ranges(cold):
        bring_in(segment, start, stop)
    return read_cold(cold)


def bring_in(segment: SealedSegment, start: int, stop: int) -> None:
    """Have these bytes of the file in the page cache. Raises OSError."""
    try:
        fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        # Rewritten or dropped meanwhile; its map still holds the bytes.
        return
    try:
        if hasattr(os, "posix_fadvise"):  # not on macOS: there the reads alone have to do
            os.posix_fadvise(fd, start, stop - start, os.POSIX_FADV_WILLNEED)
        for at in range(start, stop, _CHUNK):
            os.pread(fd, min(_CHUNK, stop - at), at)
    finally:
        os.close(fd)
