"""Compaction with the threads that a broker has."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from queue import SimpleQueue

from tests.log.compactkit import COMPACT, OPTIONS
from tests.log.logkit import open_store, read_batches, scratch

from ottla.log.compaction import read_cleaned
from ottla.log.options import Table
from ottla.log.partition import KEY
from ottla.log.reading import Cold, Read
from ottla.log.store import Store
from ottla.wire.records import Record, build_batch, read_header, records

#: By offset: what was written.
Written = dict[int, tuple[bytes | None, bytes | None]]


def test_beside_commits_and_reads_on_real_threads() -> None:
    """The background thread compacts and sweeps while the loop appends and reads."""
    path = scratch("ottla-compaction-")
    calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
    options = replace(OPTIONS, durability="fsync", retention_check_ms=20_000)
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
    settings = replace(COMPACT, delete_retention_ms=1 << 40)
    numbers, changes = store.new_partitions(4, settings)
    store.change(changes)
    turn()
    written: dict[int, Written] = {number: {} for number in numbers}

    def cleaned(number: int) -> int:
        return read_cleaned(store.get(Table.CLEANED, KEY.pack(number)))[0]

    def check() -> None:
        for number, rows in written.items():
            below = cleaned(number)
            found = {
                r.offset: (r.key, r.value)
                for _, batch in read_batches(store, store.partition(number))
                for r in records(batch)
            }
            assert found.items() <= rows.items()
            latest = {key: offset for offset, (key, _) in rows.items()}
            assert set(latest.values()) <= found.keys()
            done = [key for offset, (key, _) in found.items() if offset < below]
            assert len(done) == len(set(done)), "each key once in what is compacted"

    for now in range(1, 500):
        for number in numbers:
            items = [
                Record(
                    at,
                    now * 1000,
                    b"key %d" % rng.randrange(40),
                    rng.choice((None, rng.randbytes(rng.choice((5, 900))))),
                )
                for at in range(rng.randrange(1, 9))
            ]
            batch = build_batch(items)
            partition = store.partition(number)
            appended = store.append(partition, batch, read_header(batch), now * 1000)
            for item in items:
                written[number][appended.base_offset + item.offset] = item.key, item.value
        turn()
        store.tick(now * 1000)
        if now % 20 == 0:
            check()
    assert min(map(cleaned, numbers)) > 0
    check()
    store.close()
    store = open_store(path / "data", options=options)
    check()
    store.close()
    shutil.rmtree(path)
