"""What the broker has to know of the machine it runs on."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

#: What to ask for where the system knows no bound of its own; macOS gives no more than the second.
_DESCRIPTORS = (1 << 20, 10_240)
_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """A text that is another one after the machine has restarted, "" where there is none to be had.

    The log compares it with the one of the last start: files that were not flushed are trusted
    only within one boot.
    """
    try:
        return _LINUX_BOOT_ID.read_text("ascii").strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        asked = subprocess.run(
            ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"),
            capture_output=True,
            text=True,
            check=False,
        )
        return asked.stdout.strip()
    return ""


#: Kept back for the log, at least; of few descriptors no more than half.
_KEPT_BACK = 64


def descriptors_for_connections() -> int:
    """A connection may have a file descriptor below this number; those from here up are for files.

    The system gives out the lowest number that is free. So clients, however many connections they
    open and leave idle, never hold a number from here up, and the log can go on: a segment that is
    begun takes a few for a moment, every sealed one takes one. An eighth of all is kept back.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return soft - min(max(_KEPT_BACK, soft // 8), soft // 2)


def allow_descriptors() -> None:
    """Raise the limit of open files to the most that the system allows, as Java does for Kafka.

    Every connection and every sealed segment takes one. Shells start programs with 1024, or 256 on
    macOS.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in _DESCRIPTORS if hard == resource.RLIM_INFINITY else (hard,):
        if soft == resource.RLIM_INFINITY or soft >= wanted:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            continue  # less, then
        return
