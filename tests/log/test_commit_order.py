"""What the loop learns of a commit comes later than the commit: what may happen in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from tests.log.logkit import BOOT, TINY, append, make_batch

from ottla.log.options import PartitionSettings
from ottla.log.store import Store


def test_batches_admitted_behind_a_deletion_do_not_keep_others_from_their_answer(
    tmp_path: Path,
) -> None:
    told: SimpleQueue[Callable[[], None]] = SimpleQueue()
    store = Store.open(tmp_path, options=TINY, now_ms=0, boot_id=BOOT, post=told.put)
    numbers, changes = store.new_partitions(2, PartitionSettings())
    store.change(changes)
    store.flush()
    told.get(timeout=60)()
    doomed, other = map(store.partition, numbers)
    deleted = store.change(store.drop_partitions([doomed.number]))
    store.flush()
    hears_of_deletion = told.get(timeout=60)
    late = append(store, doomed, make_batch(producer=(5, 0, 0)))
    beside = append(store, other, make_batch())
    store.flush()
    hears_of_batches = told.get(timeout=60)
    hears_of_deletion()
    assert deleted.done
    hears_of_batches()
    for ticket in (late.ticket, beside.ticket):
        assert ticket.done
        assert ticket.error is None
    assert other.high_watermark == 1
    assert len(store.producers) == 0
    store.close()
