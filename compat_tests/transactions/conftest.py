"""Names that nobody has used, for transactions and the groups they commit for."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def group(new_name: Callable[[], str]) -> str:
    return f"group-{new_name()}"


@pytest.fixture
def transactional_id(new_name: Callable[[], str]) -> str:
    return f"txn-{new_name()}"
