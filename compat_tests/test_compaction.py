"""cleanup.policy=compact: the latest value of each key stays where it was, deleted keys go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Client, Message, Partition, Received
from compat_tests.conftest import MakeBroker, MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import batch, calls
from compat_tests.raw.batch import Batch, Record
from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire

# A file that is being written is never compacted: close it soon, and look often.
SOON = {
    "cleanup_policy": "compact",
    "segment_ms": 200,
    "min_cleanable_dirty_ratio": "0.01",
    "delete_retention_ms": 500,
}
FILLER = b"filler"
SECONDS = 60
DELETE_HORIZON = 0x40  # KIP-534
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
            with client.consumer(max_partition_bytes=1) as reader:
                reader.assign({partition: asked})
                first: list[Received] = []
                while not first:  # pytest's time limit ends it
                    first = reader.poll(0.5)
            assert first[0].offset == there


@writers
def test_young_records_are_left(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(**SOON, min_compaction_lag_ms=3_600_000)
    hours_ago = int(time.time() * 1000) - 2 * 3_600_000
    with client.producer() as producer:
        producer.send_all(
            [Message(topic, b"%d" % i, key=b"old", timestamp=hours_ago) for i in range(3)]
        )
        time.sleep(5)  # the lag is judged by closed files: the young ones must not share one
        producer.send_all([Message(topic, b"%d" % i, key=b"young") for i in range(3)])
    found = compacted(client, topic, lambda found: [r.key for r in found].count(b"old") == 1)
    assert [r.key for r in found].count(b"young") == 3


def records_of(*pairs: str) -> list[Record]:
    """`k=v`, or `k` for a tombstone."""
    found = []
    for at, pair in enumerate(pairs):
        key, is_there, value = pair.partition("=")
        found.append(Record(value.encode() if is_there else None, key.encode(), at))
    return found


def test_what_is_left_of_batches(wire: Wire, new_topic: MakeTopic) -> None:
    """Headers as Kafka's cleaner leaves them: a batch goes on to stand for its offsets and its
    producer's sequences; one with a tombstone has its delete horizon for a base timestamp."""
    topic = new_topic(**SOON | {"delete_retention_ms": 3_600_000})
    producer, epoch = calls.new_producer(wire)
    of_it = {"producer_id": producer, "producer_epoch": epoch}
    began = int(time.time() * 1000)
    for data in (
        batch.build(records_of("a=1", "b=1", "c=1"), base_sequence=0, **of_it),
        batch.build(records_of("a=2"), base_sequence=3, **of_it),
        batch.build(records_of("d=1", "b=2", "a=3", "e=1"), attributes=batch.GZIP),
        batch.build(records_of("f=1", "e", "d=2")),
        batch.build(records_of("f=2")),
        batch.build(records_of("f=3")),
    ):
        calls.produced(wire, topic, data)
    found: list[Batch] = []

    def look() -> bool:
        now = int(time.time() * 1000)  # Apache takes a file's age from its records
        calls.produced(wire, topic, batch.build([Record(b"", FILLER)], base_timestamp=now))
        found[:] = calls.fetched_batches(wire, topic)
        time.sleep(0.25)
        return [b.base_offset for b in found[:5]] == [0, 3, 4, 8, 12]

    eventually(look, "compacted", SECONDS)
    first, second, third, fourth, last = found[:5]
    assert all(b.crc_ok for b in found)
    for left, offsets, sequence in ((first, (0, 2), 0), (second, (3, 3), 3)):
        assert (left.base_offset, left.last_offset) == offsets
        assert (left.producer_id, left.producer_epoch) == (producer, epoch)
        assert left.base_sequence == sequence
    assert [(r.key, r.value) for r in first.records] == [(b"c", b"1")]
    assert first.max_timestamp == batch.NOW + 2
    # its producer's last
    assert (second.record_count, second.payload, second.attributes) == (0, b"", 0)
    assert (second.base_timestamp, second.max_timestamp) == (-1, batch.NOW)
    assert (third.last_offset, third.codec) == (7, batch.GZIP)
    assert [(r.key, r.value) for r in third.records] == [(b"b", b"2"), (b"a", b"3")]
    assert (fourth.last_offset, fourth.attributes) == (10, DELETE_HORIZON)
    assert [(r.key, r.value) for r in fourth.records] == [(b"e", None), (b"d", b"2")]
    assert began <= fourth.base_timestamp - 3_600_000 <= int(time.time() * 1000)
    stamps = [fourth.base_timestamp + r.timestamp_delta for r in fourth.records]
    assert stamps == [batch.NOW + 1, batch.NOW + 2]
    assert fourth.max_timestamp == batch.NOW + 2
    assert [r.value for r in last.records] == [b"3"]


class Transactional:
    """A transactional producer, byte by byte. `implicit`: it writes without adding the partition
    first, and each end raises its epoch (KIP-890)."""

    def __init__(self, wire: Wire, topic: str, name: str, *, implicit: bool) -> None:
        self.wire = wire
        self.topic = topic
        self.name = name
        self.implicit = implicit
        self.sequence = 0
        self.added = False
        fields = {"transactional_id": name, "transaction_timeout_ms": 60_000}
        answer = self._again("InitProducerId", 5, producer_id=-1, producer_epoch=-1, **fields)
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        self.who = {"producer_id": self.id, "producer_epoch": self.epoch}

    def _again(self, api: str, version: int, **fields: Any) -> Struct:
        """Ask until there is another answer than to come again."""
        answer: Struct | None = None

        def asked() -> bool:
            nonlocal answer
            answer = self.wire.call(api, version, **fields)
            code = getattr(answer, "error_code", 0)
            for topic in getattr(answer, "results_by_topic_v3_and_below", []):
                code = topic.results_by_partition[0].partition_error_code
            again = ("CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE",
                     "COORDINATOR_LOAD_IN_PROGRESS")  # fmt: skip
            assert code == 0 or name_of(code) in again, name_of(code)
            return code == 0

        if api == "InitProducerId":
            self.wire.call(
                "FindCoordinator", 4, key_type=1, coordinator_keys=[self.name]
            )  # Kafka makes its topic of transactions when it is first asked for
        eventually(asked, f"{api} is done", SECONDS)
        assert answer is not None
        return answer

    def send(self, *pairs: str) -> None:
        if not self.implicit and not self.added:
            topics = [{"name": self.topic, "partitions": [0]}]
            ids = {f"v3_and_below_{key}": value for key, value in self.who.items()}
            self._again("AddPartitionsToTxn", 3, v3_and_below_transactional_id=self.name,
                        v3_and_below_topics=topics, **ids)  # fmt: skip
            self.added = True
        now = int(time.time() * 1000)
        data = batch.build(
            records_of(*pairs),
            attributes=batch.TRANSACTIONAL,
            base_sequence=self.sequence,
            base_timestamp=now,
            **self.who,
        )
        self.sequence += len(pairs)
        fields = calls.produce_fields(self.topic, data)
        answer = self.wire.call(
            "Produce", 12 if self.implicit else 9, transactional_id=self.name, **fields
        )
        code = answer.responses[0].partition_responses[0].error_code
        assert code == 0, name_of(code)

    def end(self, committed: bool) -> None:
        version = 5 if self.implicit else 3
        answer = self._again(
            "EndTxn", version, transactional_id=self.name, committed=committed, **self.who
        )
        self.added = False
        if self.implicit:
            self.who = {
                "producer_id": answer.producer_id,
                "producer_epoch": answer.producer_epoch,
            }
            self.sequence = 0

        def ended() -> bool:
            (found,) = self.wire.call(
                "DescribeTransactions", 0, transactional_ids=[self.name]
            ).transaction_states
            return str(found.transaction_state).startswith("Complete")

        eventually(ended, "markers are written", SECONDS)


def test_what_is_left_of_transactions(
    wire: Wire, new_topic: MakeTopic, new_name: Callable[[], str]
) -> None:
    """What was aborted goes at once; markers when nothing is left to mark and their time is over. A
    marker that raised its producer's epoch then stays as a header, as its last batch would."""
    topic = new_topic(**SOON)
    old = Transactional(wire, topic, new_name(), implicit=False)
    new = Transactional(wire, topic, new_name(), implicit=True)
    old.send("a=1", "b=1")  # 0
    old.end(False)  # 2
    old.send("a=2")  # 3
    old.end(True)  # 4
    new.send("b=2")  # 5
    new.end(False)  # 6
    new.send("c=1")  # 7
    new.end(False)  # 8
    now = int(time.time() * 1000)
    last = calls.produced(wire, topic, batch.build(records_of("a=3"), base_timestamp=now))
    found: list[Batch] = []

    def look() -> bool:
        now = int(time.time() * 1000)
        calls.produced(wire, topic, batch.build([Record(b"", FILLER)], base_timestamp=now))
        found[:] = calls.fetched_batches(wire, topic)
        time.sleep(0.25)
        shown = [(one.base_offset, one.record_count) for one in found[:4]]
        return shown == [(3, 0), (4, 1), (8, 0), (last, 1)]

    eventually(look, "compacted", SECONDS)
    data, commit, abort, plain = found[:4]
    assert (data.producer_id, data.base_sequence) == (old.id, 2)
    assert data.attributes == batch.TRANSACTIONAL
    assert commit.producer_id == old.id
    assert (abort.producer_id, abort.producer_epoch) == (new.id, new.epoch + 2)
    assert abort.attributes == commit.attributes == batch.TRANSACTIONAL | batch.CONTROL
    assert [(r.key, r.value) for r in plain.records] == [(b"a", b"3")]
    answer = calls.fetch(wire, topic, 0, isolation_level=1)
    assert answer.last_stable_offset == answer.high_watermark
    # Who goes on is known still: its epoch, its sequences.
    old.send("d=1")
    new.send("e=1")
