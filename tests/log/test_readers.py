"""What is read on which thread, and on which system."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.log.logkit import make_batch, new_partitions, open_store, put, read_batches, with_options

from ottla.log.segment import SealedSegment
from ottla.log.timestamps import find_first, find_latest, search

COLD = with_options(warm_segments=0)


def test_cold_reads_where_the_system_takes_no_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fadvise", raising=False)  # as on macOS
    store = open_store(tmp_path, options=COLD)
    (a,) = new_partitions(store)
    put(store, a, make_batch(3))
    store.roll()
    assert len(read_batches(store, a)) == 1
    store.close()


@pytest.mark.parametrize("find", [lambda lay, p: find_first(lay, p, 1000), find_latest])
def test_batches_of_sealed_files_are_looked_at_on_the_thread_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find: Callable[..., Any]
) -> None:
    store = open_store(tmp_path)
    (a,) = new_partitions(store)
    put(store, a, make_batch(3))
    store.roll()
    store.close()
    store = open_store(tmp_path)  # nothing of the file has been held against its CRCs yet
    on_thread = False
    extent = SealedSegment.extent

    def watched(segment: SealedSegment, row: int) -> memoryview:
        assert on_thread
        return extent(segment, row)

    monkeypatch.setattr(SealedSegment, "extent", watched)

    def submit(job: Callable[[], object], done: Callable[[Any], None]) -> None:
        nonlocal on_thread
        on_thread = True
        result = job()
        on_thread = False
        done(result)

    found: list[object] = []
    search(find(store.layout, store.partition(a.number)), submit, found.append)
    assert found in ([(0, 1000)], [(2, 1002)])
    store.close()
