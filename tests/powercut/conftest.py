"""A place in memory, and a worker that can record."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.log.logkit import scratch
from tests.powercut.trace import recorder
from tests.powercut.worker import Worker


@pytest.fixture
def root() -> Iterator[Path]:
    path = scratch("ottla-cuts-")
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorder(tmp_path_factory.mktemp("recorder"))


@pytest.fixture
def worker(library: Path) -> Iterator[Worker]:
    worker = Worker(library)
    yield worker
    worker.stop()
