"""kill -9 of the broker in the middle of many transactions, byte by byte.

What was told to be committed is all there, what was told to be aborted is never seen, what nobody
was told of is there as a whole or not at all; and readers of what is committed wait for nobody.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from compat_tests.conftest import make_client
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import calls
from compat_tests.raw.wire import Closed, Silent, Wire
from compat_tests.transactions.protocols import NEW, OLD, Protocol
from compat_tests.transactions.raw_producer import RawProducer, Refused
from compat_tests.transactions.reading import Topic
from compat_tests.transactions.ready import wait_for_coordinators
from compat_tests.transactions.script import LATEST, READ_COMMITTED, READ_UNCOMMITTED

PARTITIONS = 3
KILLS = 3
GONE = (Closed, Silent, OSError, Refused)


@dataclass
class Writer:
    """Transaction after transaction, each into every partition, until told to stop."""

    broker: Broker
    topic: str
    name: str
    protocol: Protocol
    rng: random.Random
    committed: list[int] = field(default_factory=list)
    aborted: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    """Ends that were asked for and not answered."""
    failure: BaseException | None = None
    _next: int = 0

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(180)
        assert not self._thread.is_alive(), f"{self.name} still waits"
        if self.failure is not None:
            raise AssertionError(f"{self.name}: {self.failure!r}") from self.failure

    def values(self, number: int, partition: int) -> list[bytes]:
        return [b"%s %d %d %d" % (self.name.encode(), number, partition, n) for n in range(2)]

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with contextlib.suppress(*GONE), Wire(self.broker.host, self.broker.port) as wire:
                    self._serve(RawProducer(wire, self.name, self.protocol))
                time.sleep(0.05)
        except BaseException as error:
            self.failure = error

    def _serve(self, producer: RawProducer) -> None:
        producer.init()
        while not self._stop.is_set():
            number, self._next = self._next, self._next + 1
            for partition in range(PARTITIONS):
                producer.write(self.topic, partition, *self.values(number, partition))
            commit = self.rng.random() < 0.7
            if commit:
                self.unknown.append(number)
            producer.end(commit)
            if commit:
                self.unknown.remove(number)
            (self.committed if commit else self.aborted).append(number)


@pytest.mark.timeout(900)
def test_all_of_a_transaction_or_nothing(
    broker: Broker, new_name: Callable[[], str], transactional_id: str
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    name = new_name()
    with Wire(broker.host, broker.port) as wire:
        calls.create_topic(wire, name, PARTITIONS)
        wait_for_coordinators(wire, transactional_id)
    writers = [
        Writer(broker, name, f"{transactional_id}-{n}", protocol, random.Random(rng.random()))
        for n, protocol in enumerate((OLD, NEW, NEW))
    ]
    for writer in writers:
        writer.start()
    for _ in range(KILLS):
        await_progress(writers)
        time.sleep(rng.uniform(0, 0.3))
        broker.kill()
        broker.start()
    await_progress(writers)
    leave_one_open(broker, name, f"{transactional_id}-left")
    for writer in writers:
        writer.stop()
    broker.kill()
    broker.start()
    eventually(lambda: is_stable(broker, name), "everything has ended", seconds=120)

    topic = Topic(name, PARTITIONS, [make_client("confluent-kafka", broker.bootstrap)])
    seen = topic.values(topic.readers[0], "read_committed")
    known = set[bytes]()
    for writer in writers:
        known |= check(writer, seen)
        print(f"{writer.name}: {len(writer.committed)} committed, {len(writer.aborted)} aborted,"
              f" {len(writer.unknown)} unknown")  # fmt: skip
    assert {value for values in seen for value in values} <= known
    for values in seen:
        assert len(set(values)) == len(values), "doubled"


def await_progress(writers: list[Writer]) -> None:
    """Until each has been told of an end by the broker as it runs now."""
    before = [len(writer.committed) for writer in writers]

    def all_moved() -> bool:
        for writer in writers:
            assert writer.failure is None, writer.failure
        return all(len(w.committed) > b + 2 for w, b in zip(writers, before, strict=True))

    eventually(all_moved, "every producer goes on", seconds=180)


def leave_one_open(broker: Broker, topic: str, name: str) -> None:
    """A transaction that nobody is going to end but its timeout."""
    with Wire(broker.host, broker.port) as wire:
        producer = RawProducer(wire, name, NEW, timeout_ms=5_000)
        producer.init()
        for partition in range(PARTITIONS):
            producer.write(topic, partition, b"left")


def is_stable(broker: Broker, topic: str) -> bool:
    with Wire(broker.host, broker.port) as wire:
        for partition in range(PARTITIONS):
            ends = []
            for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
                answer = calls.list_offset(
                    wire, topic, LATEST, partition=partition, isolation_level=isolation
                )
                if answer.error_code:
                    return False
                ends.append(answer.offset)
            if ends[0] != ends[1]:
                return False
    return True


def check(writer: Writer, seen: list[list[bytes]]) -> set[bytes]:
    """What was told against what is seen, by partition; gives all that may be seen of it."""
    per_partition = [set(values) for values in seen]
    may_be_seen = set[bytes]()
    for number in writer.committed:
        for partition, found in enumerate(per_partition):
            assert set(writer.values(number, partition)) <= found, f"lost: {writer.name} {number}"
    for number in writer.aborted:
        for partition, found in enumerate(per_partition):
            assert not set(writer.values(number, partition)) & found, (
                f"back: {writer.name} {number}"
            )
    for number in writer.unknown:
        whole = [
            set(writer.values(number, partition)) <= found
            for partition, found in enumerate(per_partition)
        ]
        any_of_it = [
            bool(set(writer.values(number, partition)) & found)
            for partition, found in enumerate(per_partition)
        ]
        assert whole == any_of_it == [whole[0]] * PARTITIONS, f"in parts: {writer.name} {number}"
    for number in (*writer.committed, *writer.unknown):
        for partition in range(PARTITIONS):
            may_be_seen.update(writer.values(number, partition))
    order = [number for number in range(writer._next) if number in set(writer.committed)]
    for partition, values in enumerate(seen):
        mine = [value for number in order for value in writer.values(number, partition)]
        wanted = set(mine)
        assert [value for value in values if value in wanted] == mine, "out of order"
    return may_be_seen
