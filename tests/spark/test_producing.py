"""The writer of a target partition, as a Spark task calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from compat_tests.harness.brokers import Broker

from ottla.spark.cluster import Cluster
from ottla.spark.producing import ReplayFailed, Target, write

pytestmark = pytest.mark.timeout(300)

TIME = 1_700_000_000_000


def batch(first: int, count: int, ms: int = TIME) -> pa.RecordBatch:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.record_batch(
        {
            "partition": pa.array([0] * count, pa.int32()),
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array([b"%d" % n for n in range(first, first + count)], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": None}]] * count, header),
            "ms": pa.array([ms] * count, pa.int64()),
        }
    )


def sent(batches: Iterator[pa.RecordBatch], target: Target) -> list[tuple[int, int, int]]:
    (result,) = write(batches, target)
    return [tuple(row.values()) for row in result.to_pylist()]


def end(cluster: Cluster, topic: str) -> int:
    return cluster.offsets(topic, committed=False)[0][1]


def test_an_attempt_that_fails_half_way_leaves_a_prefix_and_the_next_one_goes_on(
    broker: Broker, cluster: Cluster, topic: Callable[..., str]
) -> None:
    name = topic(1)
    target = Target(name, {0: 0}, {"bootstrap.servers": broker.bootstrap}, resumed=True)

    def dies() -> Iterator[pa.RecordBatch]:
        yield batch(0, 5000)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        sent(dies(), target)
    held = end(cluster, name)
    assert held <= 5000
    assert sent(iter([batch(0, 5000), batch(5000, 1000)]), target) == [(0, 6000 - held, held)]
    assert end(cluster, name) == 6000
    assert sent(iter([batch(0, 6000)]), target) == [(0, 0, 6000)]


def test_what_the_target_held_before_is_not_counted(
    broker: Broker, cluster: Cluster, topic: Callable[..., str]
) -> None:
    name = topic(1)
    settings = {"bootstrap.servers": broker.bootstrap}
    sent(iter([batch(0, 7)]), Target(name, {0: 0}, settings))
    appended = Target(name, {0: 7}, settings, rate=1000)
    assert sent(iter([batch(0, 3)]), appended) == [(0, 3, 0)]
    assert end(cluster, name) == 10


def test_a_target_with_other_records_is_refused(broker: Broker, topic: Callable[..., str]) -> None:
    name = topic(1)
    target = Target(name, {0: 0}, {"bootstrap.servers": broker.bootstrap}, resumed=True)
    sent(iter([batch(100, 5)]), target)
    with pytest.raises(ReplayFailed, match="is not the one the archive has there"):
        sent(iter([batch(0, 9)]), target)
    with pytest.raises(ReplayFailed, match="which has only 3"):
        sent(iter([batch(100, 3)]), target)


def test_a_time_that_librdkafka_would_replace_is_an_error(
    broker: Broker, topic: Callable[..., str]
) -> None:
    target = Target(topic(1), {0: 0}, {"bootstrap.servers": broker.bootstrap})
    with pytest.raises(ReplayFailed, match="timestamp 0"):
        sent(iter([batch(0, 1, ms=0)]), target)
