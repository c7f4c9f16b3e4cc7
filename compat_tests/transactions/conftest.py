"""Names that nobody has used, and what a test may read of a topic with transactions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.clients.base import Client
from compat_tests.transactions.reading import Topic


@pytest.fixture
def group(new_name: Callable[[], str]) -> str:
    return f"group-{new_name()}"


@pytest.fixture
def transactional_id(new_name: Callable[[], str]) -> str:
    return f"txn-{new_name()}"


@pytest.fixture
def written(topic: str, all_clients: list[Client]) -> Topic:
    """A new topic of one partition, and its readers."""
    return Topic(topic, 1, all_clients)
