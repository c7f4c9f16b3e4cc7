"""cleanup.policy=compact: the latest value of each key stays where it was, deleted keys go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Client, Message, Partition, Received
from compat_tests.conftest import MakeBroker, MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually

# A file that is being written is never compacted: close it soon, and look often.
SOON = {
    "cleanup_policy": "compact",
    "segment_ms": 200,
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": 500,
}
FILLER = b"filler"
SECONDS = 60
writers = for_clients(without=("aiokafka", "java"))


@pytest.fixture(scope="module")
def _compacting(make_broker: MakeBroker) -> Iterator[Broker]:
    broker = make_broker({"log.cleaner.backoff.ms": "200"})
    yield broker
    broker.stop()


@pytest.fixture
def broker(_compacting: Broker) -> Broker:
    return _compacting


def read_all(client: Client, topic: str) -> list[Received]:
    """From offset 0 to the end, which is a filler."""
    partition = Partition(topic, 0)
    got: list[Received] = []
    with client.consumer(max_wait_ms=100) as consumer:
        consumer.assign({partition: 0})
        (end,) = consumer.end_offsets([partition]).values()
        deadline = time.monotonic() + SECONDS
        while not got or got[-1].offset + 1 < end:
            got += consumer.poll(0.5)
            assert time.monotonic() < deadline, f"stuck at {got[-1:]} of {end}"
    return got


def compacted(
    client: Client, topic: str, is_so: Callable[[list[Received]], bool]
) -> list[Received]:
    """Write fillers (Apache closes a file when the next record comes) until it is so; what is
    there then, without them."""
    found: list[Received] = []

    def look() -> bool:
        nonlocal found
        with client.producer() as producer:
            producer.send_all([Message(topic, b"", key=FILLER)])
        found = [r for r in read_all(client, topic) if r.key != FILLER]
        time.sleep(0.25)
        return is_so(found)

    eventually(look, "compacted", SECONDS)
    return found


def no_key_twice(found: list[Received]) -> bool:
    return len({r.key for r in found}) == len(found)


@writers
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_latest_of_each_key_stays_as_it_was(
    client: Client, codec: str, new_topic: MakeTopic, all_clients: list[Client]
) -> None:
    topic = new_topic(**SOON)
    now = int(time.time() * 1000)
    sent = [
        Message(
            topic,
            b"value %d" % i + b"x" * (i % 40),
            key=b"key %d" % (i * i % 17),
            timestamp=now + i,
            headers=[("trace", b"%d" % i)],
        )
        for i in range(300)
    ]
    with client.producer(
        idempotent=True, compression=codec, linger_ms=20, batch_bytes=1000
    ) as producer:
        producer.send_all(sent)
    latest = {message.key: (i, message) for i, message in enumerate(sent)}
    wanted = sorted(latest.values(), key=lambda one: one[0])
    compacted(client, topic, no_key_twice)
    for reader in [client, *all_clients]:
        found = [r for r in read_all(reader, topic) if r.key != FILLER]
        assert [(r.offset, r.key, r.value, r.timestamp) for r in found] == [
            (offset, m.key, m.value, m.timestamp) for offset, m in wanted
        ], reader.name
        assert all(
            list(r.headers) == list(m.headers) for r, (_, m) in zip(found, wanted, strict=True)
        ), reader.name


@writers
def test_a_deleted_key_goes_and_its_tombstone_after_it(
    client: Client, new_topic: MakeTopic
) -> None:
    topic = new_topic(**SOON)
    with client.producer() as producer:
        producer.send_all(
            [
                Message(topic, b"1", key=b"gone"),
                Message(topic, b"1", key=b"kept"),
                Message(topic, None, key=b"gone"),
            ]
        )
    found = compacted(client, topic, lambda found: [r.key for r in found] == [b"kept"])
    assert [(r.offset, r.value) for r in found] == [(1, b"1")]


@writers
def test_offsets_and_times_of_records_that_are_gone(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(**SOON)
    partition = Partition(topic, 0)
    now = int(time.time() * 1000)
    for i in range(6):
        with client.producer() as producer:
            key = b"last" if i == 3 else b"k"
            producer.send_all([Message(topic, b"%d" % i, key=key, timestamp=now + i)])
    compacted(client, topic, no_key_twice)
    with client.consumer() as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        for asked, there in [(0, 3), (2, 3), (3, 3), (4, 5), (5, 5)]:
            assert consumer.offsets_for_times({partition: now + asked}) == {partition: there}
            (first, *_) = client.read({partition: asked}, 1, max_partition_bytes=1)
            assert first.offset == there


@writers
def test_young_records_are_left(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(**SOON, min_compaction_lag_ms=3_600_000)
    hours_ago = int(time.time() * 1000) - 2 * 3_600_000
    with client.producer() as producer:
        producer.send_all(
            [Message(topic, b"%d" % i, key=b"old", timestamp=hours_ago) for i in range(3)]
        )
        time.sleep(0.3)
        producer.send_all([Message(topic, b"%d" % i, key=b"young") for i in range(3)])
    found = compacted(client, topic, lambda found: [r.key for r in found].count(b"old") == 1)
    assert [r.key for r in found].count(b"young") == 3
