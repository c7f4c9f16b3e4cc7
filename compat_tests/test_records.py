"""What is produced comes back as it was, with every client and between them."""

from __future__ import annotations

import time

import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Client, Failed, Message, Partition
from compat_tests.conftest import MakeTopic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NOW = int(time.time() * 1000)


def message(topic: str, i: int) -> Message:
    return Message(
        topic,
        value=b"value %d " % i + b"abc" * (i % 50),
        key=b"key %d" % (i % 7),
        timestamp=NOW + i,
        headers=[("trace", b"%d" % i), ("trace", b"twice"), ("empty", b"")],
    )


@for_clients()
def test_keys_headers_nulls_empty_values_and_timestamps(client: Client, topic: str) -> None:
    sent = [
        Message(topic, b"plain"),
        Message(topic, b"v", key=b"k", timestamp=NOW - 5000),
        Message(topic, b"", key=b""),
        Message(topic, None, key=b"tombstone"),
        Message(topic, b"\x00\xff" * 100, headers=[("h", b"1"), ("h", b"2"), ("ключ", b"")]),
        Message(topic, b"z" * 100_000),
    ]
    with client.producer() as producer:
        acks = producer.send_all(sent)
    assert [ack.offset for ack in acks] == list(range(len(sent)))
    got = client.read({Partition(topic, 0): 0}, len(sent))
    assert [r.offset for r in got] == list(range(len(sent)))
    for before, after in zip(sent, got, strict=True):
        assert (after.key, after.value) == (before.key, before.value)
        assert list(after.headers) == list(before.headers)
        assert after.timestamp_type == "CreateTime"
        if before.timestamp is not None:
            assert after.timestamp == before.timestamp
        else:
            assert abs(after.timestamp - time.time() * 1000) < 60_000


@for_clients(without=("kafka-python",))  # which refuses to send one
def test_a_header_may_be_null(client: Client, topic: str) -> None:
    headers = [("nothing", None), ("empty", b"")]
    with client.producer() as producer:
        producer.send_all([Message(topic, b"x", headers=headers)])
    (got,) = client.read({Partition(topic, 0): 0}, 1)
    assert list(got.headers) == headers


@for_clients()
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_by_every_client(
    client: Client, codec: str, topic: str, all_clients: list[Client]
) -> None:
    sent = [message(topic, i) for i in range(200)]
    with client.producer(compression=codec, linger_ms=50, batch_bytes=8000) as producer:
        producer.send_all(sent)
    for reader in all_clients:
        got = reader.read({Partition(topic, 0): 0}, len(sent))
        assert [(r.key, r.value) for r in got] == [(m.key, m.value) for m in sent], reader.name
        assert [r.timestamp for r in got] == [m.timestamp for m in sent], reader.name
        assert all(list(r.headers) == list(m.headers) for r, m in zip(got, sent, strict=True)), (
            reader.name
        )


@for_clients()
@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_topic_with_a_compression_type_of_its_own(
    client: Client, codec: str, new_topic: MakeTopic
) -> None:
    """The broker recompresses: what comes back is the same, whatever was sent."""
    topic = new_topic(compression_type=codec)
    sent = [message(topic, i) for i in range(100)]
    with client.producer(linger_ms=50, compression="gzip" if codec == "lz4" else "none") as one:
        one.send_all(sent)
    got = client.read({Partition(topic, 0): 0}, len(sent))
    assert [(r.key, r.value, r.timestamp) for r in got] == [
        (m.key, m.value, m.timestamp) for m in sent
    ]


@for_clients()
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(client: Client, acks: str, topic: str) -> None:
    sent = [message(topic, i) for i in range(20)]
    with client.producer(acks=acks) as producer:
        done = producer.send_all(sent)
    if acks != "0":
        assert [ack.offset for ack in done] == list(range(20))
    got = client.read({Partition(topic, 0): 0}, 20)
    assert [r.value for r in got] == [m.value for m in sent]


@for_clients()
def test_idempotent_producer(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(4)
    sent = [Message(topic, b"%d" % i, partition=i % 4) for i in range(2000)]
    with client.producer(idempotent=True, linger_ms=1, batch_bytes=1000) as producer:
        producer.send_all(sent)
    got = client.read({Partition(topic, p): 0 for p in range(4)}, len(sent))
    for p in range(4):
        values = [int(r.value or b"") for r in got if r.partition == p]
        assert values == list(range(p, 2000, 4))


@for_clients()
def test_log_append_time(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000) - 1
    with client.producer() as producer:
        (ack,) = producer.send_all([Message(topic, b"x", timestamp=12345)])
    (got,) = client.read({Partition(topic, 0): 0}, 1)
    assert got.timestamp_type == "LogAppendTime"
    assert before <= got.timestamp <= time.time() * 1000 + 1
    assert ack.timestamp == got.timestamp


@for_clients()
def test_timestamps_out_of_bounds_are_refused(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(message_timestamp_before_max_ms=60_000, message_timestamp_after_max_ms=60_000)
    with client.producer() as producer:
        for distance in (-100_000, 300_000):
            timestamp = int(time.time() * 1000) + distance
            with pytest.raises(Failed) as told:
                producer.send_all([Message(topic, b"x", timestamp=timestamp)])
            assert told.value.error == "INVALID_TIMESTAMP"
        producer.send_all([Message(topic, b"fine")])
    assert [r.value for r in client.read({Partition(topic, 0): 0}, 1)] == [b"fine"]


@for_clients()
def test_large_messages(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(max_message_bytes=20_000_000)
    big = bytes(range(256)) * 40_000  # 10 MB
    with client.producer(max_request_bytes=15_000_000) as producer:
        producer.send_all(
            [Message(topic, b"before"), Message(topic, big), Message(topic, b"after")]
        )
    got = client.read({Partition(topic, 0): 0}, 3, max_partition_bytes=12_000_000)
    assert [r.value for r in got] == [b"before", big, b"after"]


@for_clients(without=("confluent-kafka",))  # whose limits may not be under the largest message
def test_a_small_fetch_limit_does_not_stop_a_consumer(client: Client, topic: str) -> None:
    with client.producer(linger_ms=20) as producer:
        producer.send_all([Message(topic, b"x" * 50_000) for _ in range(5)])
    got = client.read({Partition(topic, 0): 0}, 5, max_partition_bytes=1000, max_bytes=1000)
    assert [r.offset for r in got] == [0, 1, 2, 3, 4]


@for_clients()
def test_a_message_that_is_too_large_is_refused(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(max_message_bytes=10_000)
    with client.producer() as producer:
        with pytest.raises(Failed) as told:
            producer.send_all([Message(topic, bytes(11_000))])
        assert told.value.error == "MESSAGE_TOO_LARGE"
        producer.send_all([Message(topic, b"fine")])
    assert [r.value for r in client.read({Partition(topic, 0): 0}, 1)] == [b"fine"]


@for_clients(without=("kafka-python", "confluent-kafka", "aiokafka"))
def test_java_splits_a_batch_that_is_too_large(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(max_message_bytes=10_000)
    sent = [Message(topic, b"%03d" % i + b"x" * 900) for i in range(40)]
    with client.producer(linger_ms=500, batch_bytes=40_000, idempotent=True) as producer:
        producer.send_all(sent)
    got = client.read({Partition(topic, 0): 0}, 40)
    assert [r.value for r in got] == [m.value for m in sent]


@for_clients()
def test_many_partitions(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(60)
    sent = [Message(topic, b"%d" % i, partition=i % 60) for i in range(600)]
    with client.producer(linger_ms=20) as producer:
        producer.send_all(sent)
    got = client.read({Partition(topic, p): 0 for p in range(60)}, 600)
    for p in range(60):
        values = [int(r.value or b"") for r in got if r.partition == p]
        assert values == list(range(p, 600, 60))


@for_clients()
def test_keys_choose_the_partition(client: Client, new_topic: MakeTopic) -> None:
    topic = new_topic(5)
    with client.producer() as producer:
        producer.send_all(
            [Message(topic, b"%d" % i, key=b"k%d" % (i % 20), partition=None) for i in range(200)]
        )
    got = client.read({Partition(topic, p): 0 for p in range(5)}, 200)
    where: dict[bytes | None, set[int]] = {}
    for record in got:
        where.setdefault(record.key, set()).add(record.partition)
    assert len(where) == 20
    assert all(len(partitions) == 1 for partitions in where.values())
