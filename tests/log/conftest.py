"""What most tests of the log begin with; a file that needs another one makes its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.log.compactkit import CompactedLog
from tests.log.logkit import new_partitions, open_store, scratch

from ottla.log.partition import Partition
from ottla.log.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "log")
    yield store
    store.close()


@pytest.fixture
def partition(store: Store) -> Partition:
    return new_partitions(store)[0]


@pytest.fixture
def folder() -> Iterator[Path]:
    path = scratch("ottla-compaction-")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def log(folder: Path) -> Iterator[CompactedLog]:
    log = CompactedLog(folder / "data")
    yield log
    log.store.close()
