"""segment.ms and segment.bytes of one topic close the log's file for all."""

from __future__ import annotations

from tests.broker.harness import Harness, make_batch

from ottla.broker.metadata import ResourceType
from ottla.broker.rolling import CHECK_MS, Rolling
from ottla.log.store import Store
from ottla.wire.records import read_header


def rolling(harness: Harness) -> Store:
    broker = harness.broker
    Rolling(harness.store, broker.topics, broker.timers)
    return harness.store


def pass_time(harness: Harness, ms: float) -> None:
    clock = harness.clock
    clock.passed_ms += ms
    harness.store.tick(clock.wall_ms(), clock.steady_ms())
    harness.pass_time(0)


def put(harness: Harness, topic: str, size: int) -> None:
    batch = bytearray(make_batch(1, size=size))
    partition = harness.broker.topics.partition(topic, 0)
    harness.store.append(partition, batch, read_header(batch), harness.clock.wall_ms())
    harness.turn()


def segments(store: Store) -> int:
    return 1 + len(store.layout.sealed) + len(store.layout.rolled)


def test_a_file_is_closed_when_a_topics_part_of_it_is_too_old(harness: Harness) -> None:
    store = rolling(harness)
    harness.topic("slow")
    harness.topic("quick", 1, segment_ms="5000")
    put(harness, "slow", 10)
    pass_time(harness, 6000)
    assert segments(store) == 1, "the topic that asks has no records in it"
    put(harness, "quick", 10)
    pass_time(harness, CHECK_MS)
    assert segments(store) == 2
    pass_time(harness, 20_000)
    assert segments(store) == 2, "nothing of it in the new file"


def test_a_file_is_closed_when_a_topics_part_of_it_is_too_large(harness: Harness) -> None:
    store = rolling(harness)
    harness.topic("a", 1, segment_bytes=str(1 << 20), max_message_bytes=str(1 << 20))
    put(harness, "a", 600_000)
    pass_time(harness, CHECK_MS)
    assert segments(store) == 1
    put(harness, "a", 600_000)
    pass_time(harness, CHECK_MS)
    assert segments(store) == 2


def test_a_setting_that_changes_counts_from_then_on(harness: Harness) -> None:
    store = rolling(harness)
    harness.topic("a")
    put(harness, "a", 10)
    pass_time(harness, 10_000)
    assert segments(store) == 1
    harness.broker.topics.set_configs([(ResourceType.TOPIC, "a", {"segment.ms": "1"})])
    harness.turn()
    pass_time(harness, CHECK_MS)
    assert segments(store) == 2


def test_a_compacted_topics_longest_lag_closes_a_file(harness: Harness) -> None:
    store = rolling(harness)
    lag = {"max_compaction_lag_ms": "5000"}
    harness.topic("plain", 1, **lag)
    put(harness, "plain", 10)
    pass_time(harness, 10_000)
    assert segments(store) == 1, "it is not compacted"
    harness.topic("compacted", 1, cleanup_policy="compact", **lag)
    put(harness, "compacted", 10)
    pass_time(harness, CHECK_MS)
    assert segments(store) == 2
