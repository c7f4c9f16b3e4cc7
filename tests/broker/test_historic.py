"""A warning for topics whose records are older than retention.ms when they are written."""

from __future__ import annotations

import pytest
from tests.broker.harness import START_MS, Harness, make_batch

from ottla.broker.historic import AT_ONCE, CHECK_MS, NAMED, Historic
from ottla.wire.records import read_header

DAY = 86_400_000


@pytest.fixture
def looking(harness: Harness) -> Harness:
    Historic(harness.store, harness.broker.topics, harness.broker.timers)
    return harness


def put(harness: Harness, topic: str, timestamp: int) -> None:
    batch = bytearray(make_batch(1, timestamp=timestamp))
    partition = harness.broker.topics.partition(topic, 0)
    harness.store.append(partition, batch, read_header(batch), harness.clock.wall_ms())
    harness.turn()


def rounds(harness: Harness, count: int = 2) -> None:
    for _ in range(count):
        harness.pass_time(CHECK_MS)


def test_historic_records_are_warned_of_once(
    looking: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    looking.topic("flights")
    put(looking, "flights", START_MS - 8 * DAY)
    rounds(looking, 5)
    (line,) = caplog.messages
    assert line.startswith("topic flights: records were written with timestamps of 20")
    assert "retention.ms=604800000" in line
    assert "ottla topics alter flights --config retention.ms=-1" in line


@pytest.mark.parametrize(
    ("settings", "age_ms"),
    [
        ({}, 6 * DAY),
        ({"retention_ms": "-1"}, 4000 * DAY),
        ({"cleanup_policy": "compact"}, 4000 * DAY),
    ],
)
def test_what_retention_keeps_is_not_warned_of(
    looking: Harness, caplog: pytest.LogCaptureFixture, settings: dict[str, str], age_ms: int
) -> None:
    looking.topic("kept", 1, **settings)
    put(looking, "kept", START_MS - age_ms)
    rounds(looking)
    assert caplog.messages == []


def test_records_that_grow_old_here_are_not_warned_of(
    looking: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    looking.topic("short", 1, retention_ms="5000")
    put(looking, "short", START_MS)
    rounds(looking, 20)
    assert caplog.messages == []


def test_of_many_topics_some_are_named_and_the_others_counted(
    looking: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(NAMED + 5):
        looking.topic(f"old-{number}")
        put(looking, f"old-{number}", START_MS - 8 * DAY)
    rounds(looking, 4)
    assert len(caplog.messages) == NAMED + 1
    assert caplog.messages[-1].startswith("5 more topics hold records")


def test_many_partitions_are_looked_at_in_several_turns(
    looking: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    looking.topic("large", AT_ONCE)
    looking.topic("old")
    put(looking, "old", START_MS - 8 * DAY)
    rounds(looking, 2)
    assert caplog.messages == []
    rounds(looking, 1)
    assert len(caplog.messages) == 1
