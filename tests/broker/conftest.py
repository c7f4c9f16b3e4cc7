"""Fixtures of the broker's tests; what they give is in harness.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.harness import Client, Harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path / "data")
    yield made
    made.store.close()


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


@pytest.fixture
def topic(harness: Harness) -> str:
    """Two partitions."""
    harness.topic("t", 2)
    return "t"
