"""The same requests, the same answers: each trace was written down from Apache Kafka.

With OTTLA_RECORD_TRACES=1 and --target=apache the traces are written anew; look at the difference
before you keep it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from compat_tests.conftest import MakeTopic
from compat_tests.groups.scenarios import SCENARIOS
from compat_tests.groups.script import Script
from compat_tests.harness.brokers import Broker
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire

TRACES = Path(__file__).parent / "traces"


def wait_for_coordinator(wire: Wire, group: str) -> None:
    """Kafka makes the topic of its groups when the first one is asked for."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = wire.call("FindCoordinator", 4, coordinator_keys=[group]).coordinators[0]
        if found.error_code == 0:
            answer = wire.call("DescribeGroups", 6, groups=[group]).groups[0]
            if answer.error_code == 69:
                return
        time.sleep(0.2)
    raise AssertionError("no coordinator")


@pytest.mark.parametrize("name", SCENARIOS)
def test_trace(
    name: str, broker: Broker, wire: Wire, new_topic: MakeTopic, group: str, target: str
) -> None:
    topic = new_topic(2)
    wait_for_coordinator(wire, group)
    topic_id = calls.topic_metadata(wire, topic).topic_id
    path = TRACES / f"{name}.txt"
    records = bool(os.environ.get("OTTLA_RECORD_TRACES")) and target == "apache"
    wanted = [] if records else path.read_text().splitlines()
    script = Script(broker.host, broker.port, group, topic, topic_id, wanted)
    try:
        SCENARIOS[name](script)
    finally:
        script.close()
    if records:
        path.write_text("\n".join(script.lines) + "\n")
    assert script.lines == path.read_text().splitlines()


def test_no_trace_without_a_scenario() -> None:
    assert {path.stem for path in TRACES.iterdir()} == set(SCENARIOS)
