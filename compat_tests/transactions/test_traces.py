"""The same requests, the same answers: each trace was written down from Apache Kafka.

With OTTLA_RECORD_TRACES=1 and --target=apache the traces are written anew; look at the difference
before you keep it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.harness.brokers import Broker
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire
from compat_tests.transactions.ready import wait_for_coordinators
from compat_tests.transactions.scenarios import SCENARIOS
from compat_tests.transactions.scenarios.registry import LONG
from compat_tests.transactions.script import Script

TRACES = Path(__file__).parent / "traces"


NAMES = [
    pytest.param(name, marks=[pytest.mark.long, pytest.mark.timeout(900)]) if name in LONG else name
    for name in SCENARIOS
]


@pytest.mark.parametrize("name", NAMES)
def test_trace(
    name: str, broker: Broker, wire: Wire, new_name: Callable[[], str], target: str
) -> None:
    script = Script(broker.host, broker.port, new_name())
    wait_for_coordinators(wire, script.group)
    wait_for_coordinators(wire, script.prefix)
    calls.create_topic(wire, script.topic, 2)
    calls.create_topic(wire, script.other, 1)
    try:
        SCENARIOS[name](script)
    finally:
        script.close()
        print("\n".join(script.lines[-5:]))  # where it was when it went wrong
    path = TRACES / f"{name}.txt"
    if os.environ.get("OTTLA_RECORD_TRACES") and target == "apache":
        path.write_text("\n".join(script.lines) + "\n")
    wanted = path.read_text().splitlines()
    difference = difflib.unified_diff(wanted, script.lines, "Kafka", target, n=1, lineterm="")
    assert script.lines == wanted, "\n".join(difference)


def test_no_trace_without_a_scenario() -> None:
    assert {path.stem for path in TRACES.iterdir()} == set(SCENARIOS)
