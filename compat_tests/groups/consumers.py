"""Group members as the tests see them: processes that are told what to do and tell what happens."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from compat_tests.apache import distribution
from compat_tests.clients.java import compiled

Pair = tuple[str, int]

CLIENTS = ("kafka-python", "confluent-kafka", "aiokafka", "java")
COOPERATIVE = ("kafka-python", "confluent-kafka", "java")
"""aiokafka has no cooperative assignor."""
SESSION_MS = 6_000
"""Short, so that tests of crashes do not take long; the brokers allow it (conftest.py)."""

_ids = itertools.count(1)


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    value: str


class Refused(Exception):
    """The client raised this in answer to a command."""


class Consumer:
    """One stock consumer in its own process, polling all the time."""

    def __init__(self, client: str, bootstrap: str, group: str, **options: Any) -> None:
        self.name = f"{client}-{next(_ids)}"
        self.options: dict[str, Any] = {
            "bootstrap": bootstrap,
            "group": group,
            "client_id": self.name,
            "assignors": ["range"],
            "session_ms": SESSION_MS,
            "heartbeat_ms": 300,
            "max_poll_ms": 10_000,
            "metadata_ms": 500,
            "auto_commit": False,
            **options,
        }
        self.owns: set[Pair] = set()
        self.history: list[tuple[str, Any]] = []
        """Events other than records, in order."""
        self.records: list[Record] = []
        self._done: dict[int, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._frozen = False
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - goes with us
        self.process = subprocess.Popen(
            _command(client, json.dumps(self.options)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __repr__(self) -> str:
        return f"<{self.name} owns {sorted(self.owns)}{self._complaints()}>"

    def _complaints(self) -> str:
        """What it wrote to standard error, when it has ended by itself."""
        if self.process.poll() in (None, -signal.SIGKILL):
            return ""
        self._stderr.seek(0)
        return f", ended with {self.process.poll()}: {self._stderr.read()[-8000:]}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            name = event.pop("event")
            with self._changed:
                if name == "record":
                    self.records.append(Record(**event))
                elif name == "done":
                    self._done[event["id"]] = event
                else:
                    if "partitions" in event:
                        event = {(topic, partition) for topic, partition in event["partitions"]}
                    if name == "owns":
                        self.owns = event
                    self.history.append((name, event))
                self._changed.notify_all()

    # ------------------------------------------------------------------------------------- waiting

    def wait(self, is_so: Callable[[], object], what: str, seconds: float = 60) -> None:
        """Until it is so. Raises AssertionError."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not is_so():
                left = deadline - time.monotonic()
                assert left > 0, f"{self}: after {seconds} s still not: {what}; {self.history[-6:]}"
                self._changed.wait(min(left, 0.1))

    def wait_ready(self) -> None:
        self.wait(lambda: ("ready", {}) in self.history, "ready")

    def seen(self, name: str) -> list[Any]:
        """What came with the events of this name."""
        return [event for kind, event in self.history if kind == name]

    # ------------------------------------------------------------------------------------ commands

    def call(self, op: str, seconds: float = 60, **fields: Any) -> Any:
        """Raises Refused with the name of what the client raised."""
        number = self._tell(op, **fields)
        self.wait(lambda: number in self._done, f"{op} is done", seconds)
        answer = self._done.pop(number)
        if "error" in answer:
            raise Refused(f"{answer['error']}: {answer['message']}")
        return answer["result"]

    def _tell(self, op: str, **fields: Any) -> int:
        number = next(_ids)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": number, "op": op, **fields}) + "\n")
        self.process.stdin.flush()
        return number

    def work(self, seconds: float) -> None:
        """Begin to work on something for so long: no polls meanwhile, though heartbeats go on."""
        self._tell("work", seconds=seconds)

    def commit(self, offsets: dict[Pair, int] | None = None) -> None:
        """These offsets, or what has been consumed so far."""
        given = [[*pair, offset] for pair, offset in offsets.items()] if offsets else None
        self.call("commit", offsets=given)

    def committed(self, pair: Pair) -> int | None:
        found: int | None = self.call("committed", topic=pair[0], partition=pair[1])
        return found

    def on(self, pair: Pair, op: str, **fields: Any) -> Any:
        """position, seek (offset=), pause or resume."""
        return self.call(op, topic=pair[0], partition=pair[1], **fields)

    # -------------------------------------------------------------------------------------- ending

    def close(self) -> None:
        """Leave the group and end."""
        if self.process.poll() is None:
            self.thaw()
            self.call("close")
            self.process.wait(20)

    def kill(self) -> None:
        """kill -9: no goodbye to the group."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """Not a heartbeat from now on, but its connections stay."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        if self._frozen:
            os.killpg(self.process.pid, signal.SIGCONT)
            self._frozen = False


def _command(client: str, options: str) -> list[str]:
    if client != "java":
        return [sys.executable, "-m", "compat_tests.groups.member_process", client, options]
    return [
        *distribution.jvm("96m"),
        *("-XX:TieredStopAtLevel=1", "-Xshare:auto"),
        "-Dlog4j2.level=error",
        *("-cp", f"{compiled()}:{distribution.libs()}/*"),
        *("Member", options),
    ]


def wait_shared(
    consumers: Sequence[Consumer], pairs: Iterable[Pair], seconds: float = 90, *, each: int = 0
) -> None:
    """Until these consumers own all of `pairs` and nothing else, each pair one of them, and each
    consumer at least `each` of them."""
    wanted = sorted(pairs)
    deadline = time.monotonic() + seconds
    since = 0.0
    while True:
        owned = sorted(pair for consumer in consumers for pair in consumer.owns)
        shared = owned == wanted and all(len(c.owns) >= each for c in consumers)
        now = time.monotonic()
        since = (since or now) if shared else 0.0
        if shared and now - since > 0.5:  # it stays like that
            return
        told = [consumer.history[-6:] for consumer in consumers]
        assert now < deadline, f"after {seconds} s: {consumers}, wanted {wanted}; {told}"
        time.sleep(0.02)
