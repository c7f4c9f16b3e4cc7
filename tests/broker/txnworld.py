"""Clients with transactions, a broker that fails and is killed under them, and what is true.

Requests are handed in without a turn of the loop, so that several share a commit; then the commit
happens, or fails, or the broker is killed before or after it. Whoever has had no answer asks again,
as stock clients do.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final

from tests.broker.harness import Harness, VirtualClock
from tests.broker.txnkit import TIMEOUT_MS, TxnProducer, group_offset, seen
from tests.log.logkit import crash_copy

from ottla.wire.errors import Error
from ottla.wire.schema import Message

TOPIC: Final = "t"
GROUP: Final = "g"
PARTITIONS: Final = 2
HOUR_MS: Final = 3_600_000
"""After this an id at rest is forgotten."""

FENCED: Final = {
    Error.INVALID_PRODUCER_EPOCH,
    Error.INVALID_PRODUCER_ID_MAPPING,
    Error.INVALID_TXN_STATE,
    Error.PRODUCER_FENCED,
}
"""What an instance may be told once another one, or its timeout, has fenced it."""


class Asked:
    """A request under way, and what it makes true when it is answered with NONE."""

    def __init__(
        self,
        request: Message,
        version: int,
        *,
        true: Callable[[Any], None],
        learn: Callable[[Any], None],
        once: bool,
    ) -> None:
        """true(answer): tells the world. learn(answer): tells the client. once: asked for again, it
        is answered and changes nothing."""
        self.request = request
        self.version = version
        self.true = true
        self.learn = learn
        self.once = once
        #: It is true; the answer was lost.
        self.done = False


class Instance:
    """One producer; it has one request under way at most."""

    def __init__(self, world: World, name: str, new: bool) -> None:
        self.name = name
        self.new = new
        self.kit = TxnProducer(world.harness, name, new)
        #: What the client believes: it may write; it has written something; what it has added.
        self.ready = False
        self.wrote = False
        self.added: set[int | str] = set()
        self.asked: Asked | None = None

    def is_now(self, answer: Any) -> None:
        """An answer told its id and epoch."""
        self.kit.id, self.kit.epoch, self.kit.sequences = (
            answer.producer_id,
            answer.producer_epoch,
            {},
        )
        self.begins()

    def begins(self) -> None:
        """The next transaction."""
        self.ready, self.wrote, self.added = True, False, set()


class Open:
    """What is true of a transactional id's open transaction."""

    def __init__(self, start_ms: float) -> None:
        self.start_ms = start_ms
        self.records: list[tuple[int, bytes]] = []
        #: By partition: when it was asked for (the later one wins), the offset.
        self.offsets: dict[int, tuple[int, int]] = {}


class Disk:
    broken = False

    def step(self, name: str) -> None:
        if self.broken and name == "commit: write":
            raise OSError(errno.EIO, "broken")


class World:
    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.numbers = count(1)
        self.clock = VirtualClock()
        self.disk = Disk()
        self.harness = self._start(self.root / "0")
        self.harness.topic(TOPIC, PARTITIONS)
        self.instances: list[Instance] = []
        #: In the order in which they were handed in.
        self.under_way: list[Instance] = []
        # What is true:
        self.owner: dict[str, Instance | None] = {}
        self.epochs: dict[str, tuple[int, int]] = {}
        self.open: dict[str, Open] = {}
        self.committed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.offsets: dict[int, tuple[int, int]] = {}

    def _start(self, path: Path) -> Harness:
        return Harness(
            path,
            clock=self.clock,
            step=self.disk.step,
            transactional_id_expiration_ms=str(HOUR_MS),
        )

    def close(self) -> None:
        self.harness.store.close()
        shutil.rmtree(self.root)

    # -- asking -----------------------------------------------------------------------------------

    def ask(self, instance: Instance, asked: Asked | None = None) -> None:
        """Hand a request in, or the one that was not answered once more."""
        instance.asked = asked or instance.asked
        assert instance.asked is not None
        client = instance.kit.client
        client.connection.feed(client.frame(instance.asked.request, instance.asked.version))
        self.under_way.append(instance)

    def turn(self, *, fails: bool = False, heard: bool = True) -> None:
        """A turn of the loop; the commit of it `fails`, or nobody has `heard` its answers."""
        self.disk.broken = fails
        self.harness.turn()
        self.disk.broken = False
        under_way, self.under_way = self.under_way, []
        for instance in under_way:
            answer = instance.kit.client.receive()
            assert answer is not None, f"{instance.asked} was not answered"
            self._answered(instance, answer, fails, heard)
        if fails:
            self.pass_time(2000)
            self.harness.store.tick(self.clock.wall_ms())

    def _answered(self, instance: Instance, answer: Any, fails: bool, heard: bool) -> None:
        asked, error = instance.asked, error_of(answer)
        assert asked is not None
        if error is Error.NONE:
            if not (asked.done and asked.once):
                asked.true(answer)
            if heard:
                asked.learn(answer)
                instance.asked = None
            asked.done = True
        elif error is Error.CONCURRENT_TRANSACTIONS:
            self.open.pop(instance.name)
            self.owner[instance.name] = None
        elif error in FENCED:
            assert fails or self.owner.get(instance.name) is not instance, f"told {error.name}"
            if heard:
                instance.asked, instance.ready = None, False
        else:
            assert fails, f"told {error.name}"

    def opened(self, instance: Instance) -> Open:
        """What is open, from now on at the latest."""
        return self.open.setdefault(instance.name, Open(self.clock.passed_ms))

    def raised(self, name: str, answer: Any) -> None:
        """An epoch was given: no second time."""
        now = answer.producer_id, answer.producer_epoch
        assert now > self.epochs.get(name, (-1, -1)), "an epoch goes back"
        self.epochs[name] = now

    # -- what happens -----------------------------------------------------------------------------

    def kill(self, *, committed: bool) -> None:
        """The broker is killed, before what is under way is committed or after it."""
        if committed:
            self.turn(heard=False)
        self.under_way.clear()
        path = self.root / f"{next(self.numbers)}"
        crash_copy(self.harness.store.folder.path, path)
        self.harness.store.close()
        self.harness = self._start(path)
        for instance in self.instances:
            instance.kit.client = self.harness.client()

    def pass_time(self, ms: float) -> None:
        self.harness.pass_time(ms)
        for name, transaction in list(self.open.items()):
            if self.clock.passed_ms > transaction.start_ms + TIMEOUT_MS:
                del self.open[name]
                self.owner[name] = None

    def rest(self) -> None:
        """Nobody does anything until all ids are forgotten."""
        self.turn()
        self.pass_time(TIMEOUT_MS + 1)
        assert not self.open
        self.pass_time(HOUR_MS + 1)
        assert not list(self.harness.broker.transactions.each())
        self.owner.clear()

    # -- what must be -----------------------------------------------------------------------------

    def check(self) -> None:
        """Readers see what is true, and nothing else."""
        for index in range(PARTITIONS):
            everything = seen(self.harness, TOPIC, index, committed=False)
            assert len(set(everything)) == len(everything), "a record came twice"
            committed = set(self.committed[index])
            still_open = {
                value
                for transaction in self.open.values()
                for at, value in transaction.records
                if at == index
            }
            assert committed | still_open <= set(everything), "a record is lost"
            stable = takewhile(lambda value: value not in still_open, everything)  # noqa: B023
            expected = [value for value in stable if value in committed]
            assert seen(self.harness, TOPIC, index) == expected
            self._check_offset(index)
        ongoing = {
            txn.transactional_id for txn in self.harness.broker.transactions.each() if txn.ongoing
        }
        assert ongoing == set(self.open)

    def _check_offset(self, index: int) -> None:
        _, offset = self.offsets.get(index, (0, -1))
        assert group_offset(self.harness, GROUP, TOPIC, index) == (Error.NONE, offset)
        pending = any(index in transaction.offsets for transaction in self.open.values())
        error, _ = group_offset(self.harness, GROUP, TOPIC, index, stable=True)
        assert error is (Error.UNSTABLE_OFFSET_COMMIT if pending else Error.NONE)


def error_of(answer: Any) -> Error:
    """The one error of an answer to one of our requests."""
    if hasattr(answer, "results_by_topic_v3_and_below"):
        (topic,) = answer.results_by_topic_v3_and_below
        return Error(topic.results_by_partition[0].partition_error_code)
    if hasattr(answer, "responses"):
        return Error(answer.responses[0].partition_responses[0].error_code)
    if hasattr(answer, "topics"):
        return Error(answer.topics[0].partitions[0].error_code)
    return Error(answer.error_code)
