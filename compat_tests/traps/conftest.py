"""A group nobody has used, and members of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.conftest import Connect
from compat_tests.raw.wire import Wire
from compat_tests.traps.groupkit import MakeMember, Member, wait_for_coordinator


@pytest.fixture
def group(new_name: Callable[[], str], wire: Wire) -> str:
    """A group that nobody has used, whose coordinator is there."""
    name = f"group-{new_name()}"
    wait_for_coordinator(wire, name)
    return name


@pytest.fixture
def member(connect: Connect, group: str, topic: str) -> MakeMember:
    """`member(**options)`: one more member of the group, not joined yet."""
    return lambda **options: Member(connect(timeout=30), group, topic, **options)
