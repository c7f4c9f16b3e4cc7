"""CPU, memory and written bytes of a broker: the process and everything it started."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes resident, and the part of them that is not backed by a file."""

    rss: int
    anonymous: int


class Meter:
    """Reads the figures of one broker process and its children."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def _all(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def cpu(self) -> float:
        """CPU seconds used since the start, user and system, ended children included."""
        total = 0.0
        for process in self._all():
            times = process.cpu_times()
            total += _cpu_clock(process.pid) or times.user + times.system
            total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        return total

    def memory(self) -> Memory:
        rss = anonymous = 0
        for process in self._all():
            rss += process.memory_info().rss
            anonymous += _anonymous(process.pid)
        return Memory(rss, anonymous)

    def written(self) -> int:
        """Bytes sent towards the disk (write_bytes); 0 where the system does not count them."""
        if not hasattr(self._process, "io_counters"):
            return 0
        return sum(int(process.io_counters().write_bytes) for process in self._all())


def _cpu_clock(pid: int) -> float | None:
    """A process's CPU seconds to the nanosecond; None where the system cannot tell.

    /proc/PID/stat counts the same in ticks of 10 ms, too coarse for a group that forms in 20. The
    number of the clock is what clock_getcpuclockid(3) answers on Linux.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None


def _anonymous(pid: int) -> int:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    for line in status.read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def raise_file_limit() -> int:
    """Lift the soft limit of open files to the hard one, for us and the brokers we start."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def load_average() -> float:
    """Processes wanting the CPU over the last minute: what else the machine was doing."""
    return os.getloadavg()[0]
