"""A process of its own that runs what it is given: with the recorder, and allowed to crash.

`Worker` is the side of the tests; the other side is this module run as a program. Calls and results
are pickled; a function must be importable by its name.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final, TypeVar

T = TypeVar("T")

_SIZE: Final = struct.Struct("<Q")
_ROOT: Final = Path(__file__).parents[2]


class Died(AssertionError):
    """The process ended in the middle of a call."""


class Failed(AssertionError):
    """A call raised: the text is its traceback."""


class Worker:
    """Runs one call at a time; is started again after it died."""

    def __init__(self, library: Path) -> None:
        """library: the recorder, which does nothing before it is started."""
        self._library = library
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """`function(*args)`, there. Raises Failed, Died."""
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        _send(process.stdin, (function, args))
        answer = _receive(process.stdout)
        if answer is None:
            status = process.wait()
            self._process = None
            name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise Died(f"the process ended by {name}")
        done, result = answer
        if not done:
            raise Failed(result)
        return result  # type: ignore[no-any-return] # what the function gives

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tests.powercut.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env=os.environ | {"LD_PRELOAD": str(self._library), "PYTHONPATH": str(_ROOT)},
        )
        return self._process

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()


def _send(out: IO[bytes], what: object) -> None:
    data = pickle.dumps(what)
    out.write(_SIZE.pack(len(data)) + data)
    out.flush()


def _receive(source: IO[bytes]) -> Any:
    """None at the end."""
    head = source.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    return pickle.loads(source.read(_SIZE.unpack(head)[0]))


def _serve() -> None:
    calls, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed must not come between
    while (call := _receive(calls)) is not None:
        function, args = call
        try:
            answer = True, function(*args)
        except BaseException:
            answer = False, traceback.format_exc()
        _send(results, answer)


if __name__ == "__main__":
    _serve()
