"""The recorder: how it is built and started, and what its trace says."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import pytest

SOURCE: Final = Path(__file__).with_name("recorder.c")
_RECORD: Final = Struct("<6I3Q")
_MAGIC: Final = 0x7472436F


class Op(IntEnum):
    """As in recorder.c."""

    OPEN = 1
    WRITE = 2
    TRUNCATE = 3
    FLUSH = 4
    FLUSHED = 5
    SYNCED = 6
    RENAME = 7
    UNLINK = 8
    MKDIR = 9
    RMDIR = 10
    LINK = 11
    CLOSE = 12
    MAPPED = 13
    MARK = 14


#: In `flags` of OPEN.
CREATE: Final = 1
CUT: Final = 2


class Event(NamedTuple):
    """One record of the trace."""

    op: Op
    #: Of an open file; one that is opened twice has two.
    handle: int
    flags: int
    path: str
    path2: str
    #: Where it was written, the new size, or the number of a flush.
    offset: int
    #: SYNCED: how many bytes.
    extra: int
    data: bytes


def why_not() -> str | None:
    """Why nothing can be recorded here; None where it can."""
    if not sys.platform.startswith("linux"):
        return "what a process writes is recorded through LD_PRELOAD, which Linux has"
    if shutil.which("cc") is None:
        return "there is no C compiler (Debian: apt-get install gcc libc6-dev)"
    return None


@cache
def _built(folder: Path) -> Path:
    library = folder / "recorder.so"
    command = ("cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-lpthread")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return library


def recorder(folder: Path) -> Path:
    """The library to be preloaded, built in `folder`; skips the test where that cannot be."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    return _built(folder)


class Recorder:
    """In a process that was started with the library: what is recorded, and from when on."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)

    def start(self, folder: Path, trace: Path) -> None:
        """Record what happens below `folder` from now on."""
        found = self._library.recorder_start(os.fsencode(folder), os.fsencode(trace))
        assert found == 0, f"{trace} cannot be written"

    def stop(self) -> None:
        self._library.recorder_stop()

    def mark(self, text: str) -> None:
        """A word between what is recorded."""
        data = text.encode()
        self._library.recorder_mark(data, ctypes.c_size_t(len(data)))


def append_mark(trace: int, text: str) -> None:
    """The same from another process: `trace` is the file, opened with O_APPEND."""
    data = text.encode()
    head = _RECORD.pack(_MAGIC, Op.MARK, 0, 0, 0, 0, 0, 0, len(data))
    os.write(trace, head + data)


def read(trace: Path) -> Iterator[Event]:
    """All records of a trace, in order; half a record at its end is left out."""
    data = trace.read_bytes()
    at = 0
    while at + _RECORD.size <= len(data):
        magic, op, handle, flags, path, path2, offset, extra, size = _RECORD.unpack_from(data, at)
        assert magic == _MAGIC, f"byte {at} of {trace} is no record"
        at += _RECORD.size
        end = at + path + path2 + size
        if end > len(data):
            return
        yield Event(
            Op(op),
            handle,
            flags,
            os.fsdecode(data[at : at + path]),
            os.fsdecode(data[at + path : at + path + path2]),
            offset,
            extra,
            data[at + path + path2 : end],
        )
        at = end
