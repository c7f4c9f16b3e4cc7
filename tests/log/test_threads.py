"""The committing thread, and a loop that is a queue: groups form, order holds, failures reach
all."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest
from tests.log.logkit import BOOT, TINY, make_batch, open_store, read_batches, with_options

from ottla.log.errors import WriteFailed
from ottla.log.options import Change, PartitionSettings, Table
from ottla.log.reading import Cold, Read
from ottla.log.store import Store
from ottla.log.tickets import Ticket
from ottla.wire.records import read_header, walk

WAIT_S = 60
TINY_SETTINGS = PartitionSettings()


class Loop:
    """Runs what threads post, on the thread that asks for it."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def post(self, call: Callable[[], None]) -> None:
        self.calls.put(call)

    def run_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.calls.get(timeout=WAIT_S)()


class Gate:
    """Holds the committing thread at a step."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.reached = threading.Event()
        self.failing = False

    def step(self, name: str) -> None:
        if name != "commit: write":
            return
        self.reached.set()
        assert self.open.wait(WAIT_S)
        if self.failing:
            raise OSError(errno.EIO, "injected")


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def gate() -> Gate:
    return Gate()


def open_threaded(path: Path, loop: Loop, gate: Gate, **options: object) -> Store:
    return Store.open(
        path,
        options=with_options(**options),
        now_ms=0,
        boot_id=BOOT,
        post=loop.post,
        step=gate.step,
    )


def prepare(store: Store, loop: Loop, count: int) -> list[int]:
    numbers, changes = store.new_partitions(count, TINY_SETTINGS)
    ticket = store.change(changes)
    store.flush()
    loop.run_until(lambda: ticket.done)
    return numbers


def note(order: list[int], index: int, ticket: Ticket) -> None:
    assert ticket.done
    order.append(index)


def send(store: Store, number: int, fill: int = 0) -> Ticket:
    batch = make_batch(fill=fill)
    return store.append(store.partition(number), batch, read_header(batch), 1).ticket


def test_what_arrives_during_a_commit_forms_the_next(
    tmp_path: Path, loop: Loop, gate: Gate
) -> None:
    store = open_threaded(tmp_path, loop, gate)
    a, b = prepare(store, loop, 2)
    first_commit = store.committed
    gate.open.clear()
    gate.reached.clear()
    tickets = [send(store, a)]
    store.flush()
    assert gate.reached.wait(WAIT_S)
    order: list[int] = []
    for turn in range(20):
        tickets.append(send(store, (a, b)[turn % 2], turn))
        tickets.append(store.change([Change(Table.TOPICS, b"t", b"%d" % turn)]))
        store.flush()
    for index, ticket in enumerate(tickets):
        ticket.then(partial(note, order, index))
    assert not any(t.done for t in tickets)
    assert store.pending_bytes > 20 * 70
    assert store.partition(a).high_watermark == 0
    gate.open.set()
    loop.run_until(lambda: tickets[-1].done)
    assert all(t.done and t.error is None for t in tickets)
    assert order == list(range(len(tickets)))
    assert store.committed == first_commit + 2
    assert store.pending_bytes == 0
    assert store.get(Table.TOPICS, b"t") == b"19"
    assert len(read_batches(store, store.partition(a))) == 11
    store.close()


def test_settled_waits_for_everything_admitted(tmp_path: Path, loop: Loop, gate: Gate) -> None:
    store = open_threaded(tmp_path, loop, gate)
    (a,) = prepare(store, loop, 1)
    assert store.settled().done
    gate.open.clear()
    first = send(store, a)
    store.flush()
    flushed = store.settled()
    second = send(store, a)
    everything = store.settled()
    assert not flushed.done
    gate.open.set()
    store.flush()
    loop.run_until(lambda: everything.done)
    assert first.done
    assert second.done
    store.close()


def test_failure_reaches_everything_queued_behind(tmp_path: Path, loop: Loop, gate: Gate) -> None:
    store = open_threaded(tmp_path, loop, gate)
    a, b = prepare(store, loop, 2)
    gate.open.clear()
    gate.reached.clear()
    gate.failing = True
    tickets = [send(store, a)]
    store.flush()
    assert gate.reached.wait(WAIT_S)
    for turn in range(5):
        tickets.append(send(store, b, turn))
        store.flush()
    tickets.append(send(store, a))  # not even handed over
    gate.open.set()
    loop.run_until(lambda: tickets[-1].done)
    assert all(isinstance(t.error, WriteFailed) for t in tickets)
    assert store.pending_bytes == 0
    gate.failing = False
    assert store.refusing is None
    done = send(store, a, 9)
    store.flush()
    loop.run_until(lambda: done.done)
    assert done.error is None
    assert [base for base, _ in read_batches(store, store.partition(a))] == [0]
    assert read_batches(store, store.partition(b)) == []
    store.close()


def test_close_finishes_what_is_under_way(tmp_path: Path, loop: Loop, gate: Gate) -> None:
    """Nobody runs the loop any more: close does what is left."""
    store = open_threaded(tmp_path, loop, gate)
    numbers = prepare(store, loop, 3)
    tickets = []
    for turn in range(200):
        tickets.append(send(store, numbers[turn % 3], turn))
        if turn % 3:
            store.flush()
    store.close()
    assert all(t.done and t.error is None for t in tickets)
    while not loop.calls.empty():
        loop.calls.get()()  # late calls find nothing to do
    again = open_store(tmp_path)
    assert sum(again.partition(n).high_watermark for n in numbers) == 200
    again.close()


def test_loop_that_is_gone_does_not_hang_the_threads(tmp_path: Path, gate: Gate) -> None:
    gone = False

    def post(call: Callable[[], None]) -> None:
        if gone:
            raise RuntimeError("Event loop is closed")
        calls.put(call)

    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    store = Store.open(tmp_path, options=TINY, now_ms=0, boot_id=BOOT, post=post)
    numbers, changes = store.new_partitions(1, TINY_SETTINGS)
    ticket = store.change(changes)
    store.flush()
    while not ticket.done:
        calls.get(timeout=WAIT_S)()
    gone = True
    last = send(store, numbers[0])
    store.close()
    assert last.done
    assert last.error is None


def test_cold_reads_run_beside_the_loop(tmp_path: Path, loop: Loop, gate: Gate) -> None:
    store = open_threaded(tmp_path, loop, gate, warm_segments=0)
    (a,) = prepare(store, loop, 1)
    for turn in range(300):
        send(store, a, turn)
        if turn % 10 == 9:
            store.flush()
        if turn % 100 == 99:
            everything = store.settled()
            loop.run_until(lambda: everything.done)  # noqa: B023 - run before the next turn
            store.roll()
    loop.run_until(lambda: len(store.layout.sealed) >= 3)
    results: list[Read | Exception] = []
    partition = store.partition(a)
    for offset in range(0, 300, 10):
        cold = store.read(partition, offset, 500, end=300, min_one=True)
        assert isinstance(cold, Cold)
        store.read_cold(cold, results.append)
    loop.run_until(lambda: len(results) == 30)
    firsts = set()
    for result in results:
        assert isinstance(result, Read), result
        firsts.add(next(walk(result.buffers[0]))[1].base_offset)
    assert firsts == set(range(0, 300, 10))
    assert all(t.name.startswith("ottla-") for t in threading.enumerate() if t.daemon)
    store.close()


def test_commits_under_os_run_on_the_loop(tmp_path: Path, loop: Loop, gate: Gate) -> None:
    store = open_threaded(tmp_path, loop, gate, durability="os")
    numbers, changes = store.new_partitions(1, TINY_SETTINGS)
    ticket = store.change(changes)
    store.flush()
    assert ticket.done
    done = send(store, numbers[0])
    store.flush()
    assert done.done
    store.close()
