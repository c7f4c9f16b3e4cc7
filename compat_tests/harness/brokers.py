"""The broker under test as a process: Ottla or Apache Kafka, behind one interface.

Both get the same settings (Kafka's names), listen on loopback on a free port that they keep over
restarts, and die with the test run: at its end by their pid, and by the kernel should the run
itself be killed.
"""

from __future__ import annotations

import abc
import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from compat_tests.apache import distribution
from compat_tests.harness.ports import free_port

READY_LINE = re.compile(r"^ottla ready.*PLAINTEXT://([^:\s]+):(\d+)", re.MULTILINE)


class BrokerFailed(Exception):
    """The broker did not come up, or went away; the text ends with the tail of its log."""


class Broker(abc.ABC):
    """One broker process and its data folder.

    `start` may follow `stop` or `kill`: the same port, the same data.
    """

    target: ClassVar[str]
    start_seconds: ClassVar[float]

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, *, port: int | None = None
    ) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.log_path = folder / "broker.log"
        self.settings = dict(settings or {})
        self.host = "127.0.0.1"
        self.port = free_port(2) if port is None else port
        self.environment = dict(os.environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._printed_before = 0

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def log(self) -> str:
        """What the broker has printed so far, over all its starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def start(self) -> None:
        """Start and wait until it serves. Raises BrokerFailed."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        assert not self.alive, "already running"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.prepare()
        self._printed_before = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one prctl call, no lock
            )

    def wait_ready(self) -> None:
        """Wait until it serves; killed when it does not in its time. Raises BrokerFailed."""
        deadline = time.monotonic() + self.start_seconds
        while not self.is_ready(self._log_from(self._printed_before)):
            if not self.alive:
                raise BrokerFailed(f"{self.target} ended with {self.returncode}:\n{self._tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerFailed(
                    f"{self.target} not ready after {self.start_seconds} s:\n{self._tail()}"
                )
            time.sleep(0.02)

    def stop(self, seconds: float = 30) -> None:
        """Ask it to stop (SIGTERM) and wait; killed when it does not, which is a failure."""
        if not self.alive:
            return
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(
                f"{self.target} did not stop in {seconds} s:\n{self._tail()}"
            ) from None

    def kill(self) -> None:
        """kill -9, the process and whatever it started."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def _log_from(self, position: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")

    def _tail(self, lines: int = 40) -> str:
        return "\n".join(self.log().splitlines()[-lines:])

    @abc.abstractmethod
    def prepare(self) -> None:
        """Whatever must be there before the process starts."""

    @abc.abstractmethod
    def command(self) -> list[str]: ...

    @abc.abstractmethod
    def is_ready(self, printed: str) -> bool:
        """True once it serves; `printed` is what this start has printed so far."""


class OttlaBroker(Broker):
    target = "ottla"
    start_seconds = 60

    def prepare(self) -> None:
        """Nothing: `ottla serve` makes its data folder."""

    def command(self) -> list[str]:
        overrides = [
            part
            for key, value in self.settings.items()
            for part in ("--override", f"{key}={value}")
        ]
        return [
            sys.executable,
            *("-m", "ottla", "serve"),
            *("--port", str(self.port)),
            *("--data-dir", str(self.data_dir)),
            *overrides,
        ]

    def is_ready(self, printed: str) -> bool:
        return READY_LINE.search(printed) is not None


class ApacheBroker(Broker):
    target = "apache"
    start_seconds = 120
    heap = "512m"

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def prepare(self) -> None:
        template = (distribution.HERE / "server.properties").read_text()
        for name, value in {
            "@PORT@": str(self.port),
            "@CONTROLLER_PORT@": str(self.port + 1),
            "@DATA_DIR@": str(self.data_dir),
        }.items():
            template = template.replace(name, value)
        overrides = "".join(f"{key}={value}\n" for key, value in self.settings.items())
        self._properties.write_text(template + overrides)
        if not (self.data_dir / "meta.properties").exists():
            formatted = subprocess.run(
                distribution.command(
                    *("kafka-storage", "format", "--cluster-id", "b3R0bGEtY29tcGF0LXRlc3Q"),
                    *("--config", str(self._properties)),
                ),
                capture_output=True,
                text=True,
                check=False,
            )
            if formatted.returncode:
                raise BrokerFailed(f"kafka-storage format: {formatted.stdout}{formatted.stderr}")

    def command(self) -> list[str]:
        return distribution.command("kafka-server-start", str(self._properties), heap=self.heap)

    def is_ready(self, printed: str) -> bool:
        # Kafka says so on standard output too, but only at a log level that drowns everything else.
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
        except OSError:
            return False
        return True


BROKERS: dict[str, type[Broker]] = {broker.target: broker for broker in (OttlaBroker, ApacheBroker)}


def _die_with_parent() -> None:
    """In the child: SIGKILL when the test run dies, however it dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
