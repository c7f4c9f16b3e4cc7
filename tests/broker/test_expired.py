"""What retention deletes, in the log."""

from __future__ import annotations

import pytest
from tests.broker.harness import START_MS, Harness, make_batch

from ottla.broker.expired import GATHER_MS, NAMED, Expired
from ottla.wire.records import read_header

HOUR = 3_600_000


@pytest.fixture
def told(harness: Harness, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    broker = harness.broker
    Expired(harness.store, broker.topics, broker.timers, harness.clock)
    caplog.set_level("INFO", "ottla.broker.expired")
    return caplog


def put(harness: Harness, topic: str, index: int = 0) -> None:
    batch = bytearray(make_batch(4, timestamp=START_MS - HOUR))
    partition = harness.broker.topics.partition(topic, index)
    harness.store.append(partition, batch, read_header(batch), harness.clock.wall_ms())
    harness.turn()


def sweep(harness: Harness) -> None:
    """A pass of retention, and the time until it is told."""
    tick(harness)  # from here on it waits for the first pass
    harness.pass_time(HOUR)
    for _ in range(50):
        tick(harness)
    harness.pass_time(GATHER_MS)


def tick(harness: Harness) -> None:
    harness.store.tick(harness.clock.wall_ms(), harness.clock.steady_ms())
    harness.turn()


def test_a_topic_is_named_with_its_figures_and_not_again_and_again(
    harness: Harness, told: pytest.LogCaptureFixture
) -> None:
    harness.topic("orders", 3, retention_ms="1000")
    harness.topic("kept", 1, retention_ms="-1")
    put(harness, "kept")
    put(harness, "orders", 0)
    put(harness, "orders", 2)
    sweep(harness)
    assert told.messages == ["retention deleted records of orders: 8 offsets in 2 partitions"]
    sweep(harness)
    assert len(told.messages) == 1, "nothing more was deleted"


def test_many_topics_are_counted(harness: Harness, told: pytest.LogCaptureFixture) -> None:
    for number in range(NAMED + 2):
        harness.topic(f"t{number}", 1, retention_ms="1000")
        put(harness, f"t{number}")
    sweep(harness)
    assert len(told.messages) == NAMED + 1
    assert told.messages[-1] == "retention deleted records of 2 more topics"
