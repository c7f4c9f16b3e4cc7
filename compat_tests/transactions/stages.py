"""Stages of a pipeline: workers that come back under their own name whenever they end."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any

from compat_tests.apache import distribution
from compat_tests.clients.java import compiled

_ids = itertools.count(1)


class Worker:
    """A process of one stage. It is started again when it ends by itself, not when killed."""

    def __init__(self, client: str, **options: Any) -> None:
        self.client = client
        self.options = {
            "session_ms": 2_000,
            "transaction_timeout_ms": 10_000,
            "transactional_id": f"{options['stage']}-{client}-{next(_ids)}-{os.getpid()}",
            **options,
        }
        self.committed = 0
        """Records, over all lives."""
        self.failures: list[str] = []
        self._frozen = False
        self._wanted = False
        self._lock = threading.Lock()
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - goes with us
        self.start()

    def __repr__(self) -> str:
        self._stderr.seek(0)
        said = self._stderr.read()[-1000:]
        return f"<{self.client} committed {self.committed}, failed {self.failures[-3:]} {said}>"

    def start(self) -> None:
        with self._lock:
            self._wanted = True
            self._spawn()

    def _spawn(self) -> None:
        self.process = subprocess.Popen(
            _command(self.client, json.dumps(self.options)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._follow, args=(self.process,), daemon=True).start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "committed":
                self.committed += event["count"]
            elif event["event"] == "failed":
                self.failures.append(event["error"])
        process.wait()
        with self._lock:
            if self._wanted and process is self.process:
                self._spawn()

    def kill(self) -> None:
        """kill -9, for good or until `start`."""
        with self._lock:
            self._wanted = False
            process = self.process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self._frozen = False

    def freeze(self) -> None:
        """For longer than its session: when it wakes up it believes that it is still a member."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        if self._frozen:
            os.killpg(self.process.pid, signal.SIGCONT)
            self._frozen = False


def _command(client: str, options: str) -> list[str]:
    if client != "java":
        return [sys.executable, "-m", "compat_tests.transactions.stage_process", client, options]
    return [
        *distribution.jvm("96m"),
        *("-XX:TieredStopAtLevel=1", "-Xshare:auto"),
        "-Dottla.loglevel=fatal",
        *("-cp", f"{compiled()}:{distribution.libs()}/*"),
        *("Stage", options),
    ]
