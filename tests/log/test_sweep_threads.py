"""Sweeps with the threads that a broker has."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from queue import SimpleQueue

from tests.log.logkit import make_batch, open_store, read_batches, scratch, with_options

from ottla.log.options import PartitionSettings
from ottla.log.reading import Cold, Read
from ottla.log.store import Store
from ottla.wire.records import read_header

KEEP_ALL = PartitionSettings(retention_ms=-1, retention_bytes=-1)


def test_beside_commits_and_reads_on_real_threads() -> None:
    """The background thread rewrites while the loop appends, reads, deletes and drops."""
    path = scratch("ottla-sweep-")
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    options = with_options(durability="fsync")
    store = Store.open(path / "data", options=options, now_ms=1, boot_id="b", post=calls.put)
    rng = random.Random(5)

    def turn() -> None:
        store.flush()
        while not store.settled().done:
            calls.get(timeout=60)()

    really = store.read_cold

    def read_cold(cold: Cold, done: Callable[[Read | Exception], None]) -> None:
        """Wait for it, as nobody else turns the loop."""
        box: list[Read | Exception] = []
        really(cold, box.append)
        while not box:
            calls.get(timeout=60)()
        done(box[0])

    store.read_cold = read_cold  # type: ignore[method-assign]
    numbers, changes = store.new_partitions(6, KEEP_ALL)
    store.change(changes)
    turn()
    expected: dict[int, list[tuple[int, bytes]]] = {number: [] for number in numbers}
    generations: set[int] = set()

    def check() -> None:
        for number, batches in expected.items():
            assert read_batches(store, store.partition(number)) == batches

    for now in range(1, 600):
        for number in expected:
            partition = store.partition(number)
            batch = make_batch(size=rng.choice((50, 500, 9000)), fill=now)
            appended = store.append(partition, batch, read_header(batch), now)
            expected[number].append((appended.base_offset, bytes(batch)))
        turn()
        if now % 20 == 0:
            number = rng.choice(list(expected))
            at = rng.choice(expected[number])[0]
            store.delete_records(store.partition(number), at)
            expected[number] = [row for row in expected[number] if row[0] >= at]
            turn()
        if now == 300:
            store.change(store.drop_partitions([numbers[0]]))
            del expected[numbers[0]]
            turn()
        store.tick(now * 1000)
        generations |= {segment.name.generation for segment in store.layout.sealed}
        if now % 50 == 0:
            check()
    assert max(generations) >= 1
    check()
    store.close()
    store = open_store(path / "data", options=options)
    check()
    store.close()
    shutil.rmtree(path)
