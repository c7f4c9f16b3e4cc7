"""The one maintenance thread: seal, checkpoint, rewrite, one job at a time, in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
Job = Callable[[], None]

_logger = logging.getLogger(__name__)
#: A long job gives the loop this much after each slice, which takes about as long.
_PAUSE_S = 0.001


class Background:
    """Runs jobs on its thread and hands their results to the loop."""

    def __init__(self, post: Callable[[Job], object] | None) -> None:
        """post: hands a call to the loop. None: jobs run at once, where they are submitted."""
        self._post = post
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if post is not None:
            self._thread = threading.Thread(target=self._run, name="ottla-background", daemon=True)
            self._thread.start()

    def pause(self) -> None:
        """Called by long jobs between slices."""
        if self._thread is not None:
            time.sleep(_PAUSE_S)

    def submit(self, job: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run `job` after those submitted before; `done` gets what it returns or raises, on the
        loop."""

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

        if self._thread is None:
            run()
        else:
            self._queue.put(run)

    def stop(self) -> None:
        """Finish what is queued and end; blocks. Results are still posted."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()

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
