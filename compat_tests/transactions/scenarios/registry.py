"""All scenarios by the names of their traces."""

from __future__ import annotations

from collections.abc import Callable

from compat_tests.transactions.protocols import Protocol
from compat_tests.transactions.script import Script

Scenario = Callable[[Script], None]
InEach = Callable[[Script, Protocol], None]
SCENARIOS: dict[str, Scenario] = {}
LONG: set[str] = set()
"""Names of those that take minutes."""


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def each(*protocols: Protocol) -> Callable[[InEach], InEach]:
    """The same conversation once in each of these protocols, a trace each."""

    def register(
        function: Callable[[Script, Protocol], None],
    ) -> Callable[[Script, Protocol], None]:
        for protocol in protocols:
            SCENARIOS[f"{function.__name__}-{protocol.name}"] = _speaking(function, protocol)
        return function

    return register


def _speaking(function: InEach, protocol: Protocol) -> Scenario:
    return lambda script: function(script, protocol)
