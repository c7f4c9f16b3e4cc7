"""All scenarios by the names of their traces, and the group that most of them begin with."""

from __future__ import annotations

from collections.abc import Callable

from compat_tests.groups.script import Script, Speaker

Scenario = Callable[[Script], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def two(script: Script, **options: object) -> tuple[Speaker, Speaker]:
    """Two members of a stable group; `a` leads."""
    a, b = script.member("a", **options), script.member("b", **options)
    a.come_in()
    a.sync(a)
    b.come_in()
    a.join()
    b.sync()
    a.sync(a, b)
    return a, b


def settle(a: Speaker, b: Speaker) -> None:
    """A stable group of members that differ; `a` leads, and syncs first."""
    a.come_in()
    a.sync(a)
    b.come_in()
    a.join()
    a.sync(a, b)
    b.sync()
