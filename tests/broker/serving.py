"""A broker in a process of its own, for tests of the command line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

READY = re.compile(
    r"ottla ready PLAINTEXT://(?P<address>[^ ]+) data (?P<data>.+) durability (?P<durability>\w+)"
    r" in (?P<seconds>[0-9.]+) s\n"
)
#: Nobody reads the log before the end.
QUIET = ("--log-level", "warning")


class Serving:
    """`ottla serve` on a free port; `ready` holds what its first line says."""

    def __init__(
        self,
        *args: str,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        descriptors: int | None = None,
    ) -> None:
        """`descriptors`: the most that the process may have."""
        command = (sys.executable, "-m", "ottla", "serve", "--port", "0", *QUIET, *args)
        if descriptors is not None:
            limits = f"ulimit -Sn {descriptors // 2}; ulimit -Hn {descriptors}"
            command = ("sh", "-c", f'{limits}; exec "$@"', "sh", *command)
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=os.environ | {"PYTHONUNBUFFERED": ""} | dict(environment or {}),
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = READY.fullmatch(line)
        if found is None:
            raise AssertionError(f"{line!r}, then {self.process.communicate()}")
        self.ready = found
        self.address: str = found["address"]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit status and standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


def ottla(*args: str, stdin: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        (sys.executable, "-m", "ottla", *args),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=cwd,
    )
