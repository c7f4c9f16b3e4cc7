"""Producers and a reader that go on through everything, and what they may hold against a broker."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from compat_tests.clients.base import (
    Client,
    Consumer,
    Failed,
    Message,
    Partition,
    Pending,
    Received,
)

IN_FLIGHT = 200


@dataclass
class Load:
    """One producer that numbers its records partition by partition until told to stop."""

    client: Client
    topic: str
    partitions: int
    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)
    """(partition, number) -> offset"""
    sent: list[int] = field(default_factory=list)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.sent = [0] * self.partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.client.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 120) -> None:
        """Stop sending, wait for what is under way. Raises what the producer raised."""
        self._stop.set()
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"{self.client.name} still waits for answers"
        if self.failure is not None:
            raise AssertionError(f"{self.client.name}: {self.failure!r}") from self.failure

    def value(self, partition: int, number: int) -> bytes:
        return f"{self.client.name} {partition} {number} ".encode().ljust(200, b".")

    def _run(self) -> None:
        try:
            with self.client.producer(
                idempotent=True, linger_ms=5, delivery_timeout_ms=120_000
            ) as producer:
                waiting: deque[tuple[int, int, Pending]] = deque()
                while not self._stop.is_set():
                    for partition in range(self.partitions):
                        number = self.sent[partition]
                        message = Message(
                            self.topic, self.value(partition, number), partition=partition
                        )
                        waiting.append((partition, number, producer.send(message)))
                        self.sent[partition] += 1
                    while len(waiting) > IN_FLIGHT:
                        self._settle(*waiting.popleft())
                    time.sleep(0.002)
                producer.flush()
                while waiting:
                    self._settle(*waiting.popleft())
        except BaseException as error:
            self.failure = error

    def _settle(self, partition: int, number: int, pending: Pending) -> None:
        self.acknowledged[partition, number] = pending.result(120).offset


@dataclass
class Watcher:
    """A consumer that reads along and remembers what it was shown."""

    client: Client
    partitions: list[Partition]
    seen: dict[tuple[Partition, int], bytes | None] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise AssertionError(f"watcher: {self.failure!r}") from self.failure

    def _run(self) -> None:
        try:
            with self.client.consumer(max_wait_ms=100) as consumer:
                consumer.assign(dict.fromkeys(self.partitions, 0))
                while not self._stop.is_set():
                    for record in self._poll(consumer):
                        self._note(record)
        except BaseException as error:
            self.failure = error

    @staticmethod
    def _poll(consumer: Consumer) -> list[Received]:
        try:
            return consumer.poll(0.1)
        except Failed as error:
            if error.error == "OFFSET_OUT_OF_RANGE":
                raise  # what it was shown is gone
            return []

    def _note(self, record: Received) -> None:
        at = (Partition(record.topic, record.partition), record.offset)
        if self.seen.setdefault(at, record.value) != record.value:
            self.changed.append(f"{at} was {self.seen[at]!r}, now {record.value!r}")


def check(load: Load, log: list[Received]) -> list[str]:
    """What is wrong with everything in the topic's log, given what was acknowledged."""
    wrong = []
    by_partition: dict[int, list[Received]] = {p: [] for p in range(load.partitions)}
    for record in log:
        by_partition[record.partition].append(record)
    for partition, records in by_partition.items():
        offsets = [r.offset for r in records]
        if offsets != list(range(len(offsets))):
            wrong.append(f"partition {partition}: offsets are not 0, 1, 2 ...")
        numbers = [int((r.value or b"").split()[2]) for r in records]
        if len(set(numbers)) != len(numbers):
            twice = sorted({n for n in numbers if numbers.count(n) > 1})
            wrong.append(f"partition {partition}: written twice: {twice[:10]}")
        if numbers != sorted(numbers):
            wrong.append(f"partition {partition}: out of order")
        where = dict(zip(numbers, offsets, strict=True))
        for (at, number), offset in load.acknowledged.items():
            if at == partition and where.get(number) != offset:
                wrong.append(
                    f"partition {partition}: record {number} was acknowledged at {offset}, "
                    f"and is at {where.get(number)}"
                )
    return wrong
