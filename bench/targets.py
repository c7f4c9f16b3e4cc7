"""The brokers under measurement: how each variant is started, stopped, killed and looked at.

A variant is a broker with a durability. `ottla` (an acknowledged record is on disk) stands beside
`kafka-flush1` (Kafka told to do the same) and `kafka` (as people run it); `ottla-os` (survives the
process, not the machine) stands beside `kafka`, which promises no more.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from compat_tests.apache import distribution
from compat_tests.harness.ports import free_port

from bench import raw
from bench.process import Meter


class Software(Protocol):
    """What a kind of broker must tell the bench."""

    name: str

    def version(self) -> str:
        """The version, for the report."""

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""

    def prepare(self, folder: Path, port: int, settings: dict[str, str]) -> None:
        """Make a new data folder, once, outside every measurement."""

    def command(self, folder: Path, port: int, settings: dict[str, str]) -> list[str]:
        """The command line that serves `folder` on 127.0.0.1:`port`."""

    def data(self, folder: Path) -> Path:
        """Where the records lie."""


class OttlaSoftware:
    """This repository's broker, run by the Python that runs the bench."""

    name = "Ottla"

    def version(self) -> str:
        probe = "import ottla; print(ottla.__version__)"
        return subprocess.run(
            [sys.executable, "-c", probe], capture_output=True, text=True, check=True
        ).stdout.strip()

    def missing(self) -> str | None:
        probe = subprocess.run(
            [sys.executable, "-m", "ottla", "serve", "--help"],
            check=False,
            capture_output=True,
            text=True,
        )
        return None if probe.returncode == 0 else "`python -m ottla serve` does not run"

    def prepare(self, folder: Path, port: int, settings: dict[str, str]) -> None:
        folder.mkdir(parents=True)

    def command(self, folder: Path, port: int, settings: dict[str, str]) -> list[str]:
        command = [sys.executable, "-m", "ottla", "serve"]
        command += ["--port", str(port), "--data-dir", str(self.data(folder))]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        return command

    def data(self, folder: Path) -> Path:
        return folder / "data"


class KafkaSoftware:
    """Apache Kafka as the client tests get it: see compat_tests/apache."""

    name = "Apache Kafka"
    # What kafka-server-start.sh and kafka-run-class.sh of a release give the JVM, but for a heap
    # that starts small: it makes Kafka's memory look better, not worse.
    jvm = (
        "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 "
        "-XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true"
    )
    heap = "-Xms256m -Xmx1g"

    def version(self) -> str:
        for jar in sorted(distribution.libs().glob("kafka-clients-*.jar")):
            return jar.stem.removeprefix("kafka-clients-")
        return distribution.version()

    def missing(self) -> str | None:
        try:
            distribution.java()
            distribution.libs()
        except (distribution.Unavailable, subprocess.CalledProcessError) as reason:
            return str(reason)
        return None

    def prepare(self, folder: Path, port: int, settings: dict[str, str]) -> None:
        folder.mkdir(parents=True)
        self._configure(folder, port, settings)
        properties = str(folder / "server.properties")
        cluster = self._tool("random-uuid")
        self._tool("format", "--standalone", "--cluster-id", cluster, "--config", properties)

    def command(self, folder: Path, port: int, settings: dict[str, str]) -> list[str]:
        heap = os.environ.get("KAFKA_HEAP_OPTS", self.heap)
        log = f"-Dlog4j2.configurationFile={distribution.LOG4J.as_uri()}"
        classes = f"{distribution.libs()}/*"
        java = [distribution.java(), *heap.split(), *self.jvm.split(), log, "-cp", classes]
        return [*java, "kafka.Kafka", str(folder / "server.properties")]

    def data(self, folder: Path) -> Path:
        return folder / "data"

    def _configure(self, folder: Path, port: int, settings: dict[str, str]) -> None:
        controller = port + 1
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data(folder)),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **settings,
        }
        text = "".join(f"{key}={value}\n" for key, value in values.items())
        (folder / "server.properties").write_text(text)

    def _tool(self, *arguments: str) -> str:
        command = distribution.command("kafka-storage", *arguments)
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{arguments} failed: {done.stdout}{done.stderr}")
        return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


@dataclass(frozen=True)
class Variant:
    """A broker with a durability. `settings` are in the broker's own configuration names."""

    name: str
    title: str
    software: Software
    settings: dict[str, str]


OTTLA, OTTLA_OS, KAFKA, KAFKA_FLUSH1 = "ottla", "ottla-os", "kafka", "kafka-flush1"
ALL = (OTTLA, OTTLA_OS, KAFKA, KAFKA_FLUSH1)

# Equal rules: no wait before a group's first rebalance, or it would be all that a row shows.
BOTH = {"group.initial.rebalance.delay.ms": "0"}


def variants() -> dict[str, Variant]:
    """All variants by name."""
    ottla, kafka = OttlaSoftware(), KafkaSoftware()
    flush = {"log.flush.interval.messages": "1"}
    table = [
        Variant(OTTLA, "Ottla fsync", ottla, {"ottla.durability": "fsync", **BOTH}),
        Variant(OTTLA_OS, "Ottla os", ottla, {"ottla.durability": "os", **BOTH}),
        Variant(KAFKA, "Kafka", kafka, BOTH),
        Variant(KAFKA_FLUSH1, "Kafka flush=1", kafka, {**flush, **BOTH}),
    ]
    return {variant.name: variant for variant in table}


class Broker:
    """One running broker over a data folder of its own. `stop` and `kill` keep the folder."""

    def __init__(self, variant: Variant, folder: Path, on_start: Callable[[int], None]) -> None:
        self.variant = variant
        self.folder = folder
        self.port = free_port(2)  # the controller of Kafka takes the second
        self._on_start = on_start
        self._process: subprocess.Popen[bytes] | None = None
        variant.software.prepare(folder, self.port, variant.settings)

    @property
    def address(self) -> raw.Address:
        return ("127.0.0.1", self.port)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.variant.software.data(self.folder)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        """Start the process and return at once."""
        self._spawn()
        self._on_start(self.pid)

    def _spawn(self) -> None:
        command = self.variant.software.command(self.folder, self.port, self.variant.settings)
        with open(self.folder / "output.log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=Path(__file__).parent.parent, start_new_session=True,
            )  # fmt: skip
        self.meter = Meter(self.pid)

    def start(self) -> None:
        """Start the process and wait until it answers. Raises RuntimeError with its last lines.

        A profile begins only then: the start has a row of its own.
        """
        self._spawn()
        end = time.perf_counter() + 120
        while time.perf_counter() < end and self._process and self._process.poll() is None:
            try:
                raw.connect(self.address, 1).socket.close()
                raw.served(self.address)
                break
            except (OSError, IndexError):
                continue
        else:
            raise RuntimeError(f"{self.variant.title} did not start:\n{self.last_lines()}")
        # A misspelt setting would measure something else than the report says.
        if "unknown setting" in self.last_lines():
            raise RuntimeError(f"{self.variant.title} refused a setting:\n{self.last_lines()}")
        self._on_start(self.pid)

    def last_lines(self, count: int = 15) -> str:
        log = self.folder / "output.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join(lines[-count:])

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after 30 s."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """SIGKILL, as a crash of the process would be."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
