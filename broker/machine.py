"""What the broker has to know of the machine it runs on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
