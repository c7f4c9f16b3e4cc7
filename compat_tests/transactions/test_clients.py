"""Transactions of each client, as readers of every client see them."""

from __future__ import annotations

import threading
import time

import pytest

from compat_tests.clients import CLIENTS, for_clients
from compat_tests.clients.base import Client, Failed, Partition, Received
from compat_tests.conftest import MakeTopic, make_client
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire
from compat_tests.transactions.reading import Topic
from compat_tests.transactions.script import LATEST, READ_COMMITTED

FENCED = {
    "PRODUCER_FENCED",
    "INVALID_PRODUCER_EPOCH",
    "_FENCED",  # librdkafka's name for both
    "ProducerFenced",  # aiokafka's
}
OPEN, CLOSED = 0, 1


def stable_end(wire: Wire, topic: str, partition: int = 0) -> int:
    answer = calls.list_offset(
        wire, topic, LATEST, partition=partition, isolation_level=READ_COMMITTED
    )
    return int(answer.offset)


@for_clients()
def test_committed(client: Client, written: Topic, transactional_id: str) -> None:
    values = [b"%d" % n for n in range(20)]
    with client.producer(transactional_id=transactional_id) as producer:
        producer.transaction(written.messages(*values))
    written.check([values], [values])


@for_clients()
def test_aborted(client: Client, written: Topic, transactional_id: str) -> None:
    values = [b"%d" % n for n in range(20)]
    with client.producer(transactional_id=transactional_id) as producer:
        producer.transaction(written.messages(*values), commit=False)
    written.check([[]], [values])


@for_clients()
def test_one_transaction_after_the_other(
    client: Client, written: Topic, transactional_id: str
) -> None:
    committed, everything = [], []
    with client.producer(transactional_id=transactional_id) as producer:
        for number in range(12):
            values = [b"%d-%d" % (number, n) for n in range(3)]
            commit = number % 3 != 1
            producer.transaction(written.messages(*values), commit=commit)
            everything += values
            committed += values if commit else []
    written.check([committed], [everything])


@for_clients()
def test_mixed_in_one_partition(
    broker: Broker, client: Client, written: Topic, transactional_id: str
) -> None:
    """A transaction of this client around one of every other client and plain records."""
    everything, committed = [b"first"], [b"first"]
    with client.producer(transactional_id=transactional_id) as outer:
        outer.begin()
        outer.send_all(written.messages(b"first"))
        for number, name in enumerate(CLIENTS):
            other = make_client(name, broker.bootstrap)
            with other.producer(transactional_id=f"{transactional_id}-{name}") as inner:
                for commit in (True, False):
                    value = f"{name} {commit}".encode()
                    inner.transaction(written.messages(value), commit=commit)
                    everything.append(value)
                    committed += [value] if commit else []
            with other.producer(idempotent=bool(number % 2)) as plain:
                value = f"{name} plain".encode()
                plain.send_all(written.messages(value))
            everything.append(value)
            committed.append(value)
        outer.send_all(written.messages(b"last"))
        outer.commit()
    everything.append(b"last")
    committed.append(b"last")
    written.check([committed], [everything])


@for_clients()
def test_many_partitions(
    client: Client, new_topic: MakeTopic, all_clients: list[Client], transactional_id: str
) -> None:
    topic = Topic(new_topic(16), 16, all_clients)
    with client.producer(transactional_id=transactional_id) as producer:
        for value, commit in ((b"lost", False), (b"kept", True)):
            producer.transaction(
                [topic.message(value + b" %d" % p, p) for p in range(16)], commit=commit
            )
    committed = [[b"kept %d" % p] for p in range(16)]
    everything = [[b"lost %d" % p, b"kept %d" % p] for p in range(16)]
    topic.check(committed, everything)


@for_clients()
def test_large_over_many_requests(client: Client, written: Topic, transactional_id: str) -> None:
    kept = [b"kept %d " % n + b"x" * 1000 for n in range(2_000)]
    lost = [b"lost %d " % n + b"x" * 1000 for n in range(2_000)]
    with client.producer(transactional_id=transactional_id, batch_bytes=50_000) as producer:
        producer.transaction(written.messages(*lost), commit=False)
        producer.transaction(written.messages(*kept))
    written.check([kept], [lost + kept])


@for_clients()
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed(client: Client, codec: str, written: Topic, transactional_id: str) -> None:
    lost, kept = ([b"%s %d" % (word, n) for n in range(100)] for word in (b"lost", b"kept"))
    with client.producer(
        transactional_id=transactional_id, compression=codec, linger_ms=20
    ) as producer:
        producer.transaction(written.messages(*lost), commit=False)
        producer.transaction(written.messages(*kept))
    written.check([kept], [lost + kept])


@for_clients()
def test_empty_and_idle(client: Client, written: Topic, transactional_id: str) -> None:
    """Ended without a record; a name that was taken and never used; used after a while."""
    with (
        client.producer(transactional_id=transactional_id) as producer,
        client.producer(transactional_id=f"{transactional_id}-idle") as idle,
    ):
        for commit in (True, False, True):
            producer.transaction([], commit=commit)
        producer.transaction(written.messages(b"something"))
        producer.transaction([])
        producer.transaction(written.messages(b"more"))
        idle.transaction(written.messages(b"idle until now"))
    with client.producer(transactional_id=f"{transactional_id}-idle"):
        pass
    values = [b"something", b"more", b"idle until now"]
    written.check([values], [values])


@for_clients()
def test_what_is_open_is_not_read_and_wakes_readers_at_its_end(
    broker: Broker, client: Client, topic: str, all_clients: list[Client], transactional_id: str
) -> None:
    """A fetch that may wait for half a minute is answered when the marker comes."""
    at = Partition(topic, 0)
    got: dict[str, list[Received]] = {}

    def read(reader: Client) -> None:
        with reader.consumer(isolation_level="read_committed", max_wait_ms=25_000) as consumer:
            consumer.assign({at: 0})
            got[reader.name] = consumer.take(2, seconds=60)

    with client.producer(transactional_id=transactional_id) as producer:
        producer.begin()
        producer.send_all([Topic(topic, 1, ()).message(b"in it")])
        with client.producer() as plain:
            plain.send_all([Topic(topic, 1, ()).message(b"behind it")])
        threads = [threading.Thread(target=read, args=(reader,)) for reader in all_clients]
        for thread in threads:
            thread.start()
        time.sleep(1)  # for readers to come and wait
        assert not got
        producer.commit()
        eventually(lambda: len(got) == len(all_clients), "all are woken", seconds=20)
        while any(thread.is_alive() for thread in threads):
            # some close only when their next fetch is answered
            producer.transaction([Topic(topic, 1, ()).message(b"goodbye")])
            threads[0].join(0.05)
    assert {name: [r.value for r in records] for name, records in got.items()} == {
        reader.name: [b"in it", b"behind it"] for reader in all_clients
    }


@for_clients(without=("confluent-kafka",))  # whose position is that of the last record
def test_readers_go_past_what_was_aborted(
    client: Client, written: Topic, transactional_id: str
) -> None:
    """A position moves over aborted records and markers, to the end that the broker tells."""
    with client.producer(transactional_id=transactional_id) as producer:
        producer.transaction(written.messages(b"kept"))
        producer.transaction(written.messages(b"lost", b"lost too"), commit=False)
    at = Partition(written.name, 0)
    with client.consumer(isolation_level="read_committed", max_wait_ms=50) as consumer:
        consumer.assign({at: 0})
        assert [r.value for r in consumer.take(1)] == [b"kept"]
        assert consumer.end_offsets([at]) == {at: 5}

        def moved() -> bool:
            assert consumer.poll(0.1) == []
            return consumer.position(at) == 5

        eventually(moved, "the position is the end")


@for_clients()
def test_offsets_of_a_group(
    client: Client, written: Topic, wire: Wire, group: str, transactional_id: str
) -> None:
    at = Partition(written.name, 0)

    def committed() -> int:
        wanted = [{"name": written.name, "partition_indexes": [0]}]
        while True:
            answer = wire.call(
                "OffsetFetch",
                9,
                require_stable=True,
                groups=[{"group_id": group, "topics": wanted}],
            )
            part = answer.groups[0].topics[0].partitions[0]
            if not part.error_code:
                return int(part.committed_offset)
            time.sleep(0.02)

    with client.producer(transactional_id=transactional_id) as producer:
        for offset, commit, then in ((3, True, 3), (5, False, 3), (7, True, 7)):
            producer.begin()
            producer.send_all(written.messages(b"%d" % offset))
            producer.send_offsets({at: offset}, group)
            producer.commit() if commit else producer.abort()
            assert committed() == then
        producer.begin()
        producer.send_offsets({at: 9}, group)
        producer.commit()
        assert committed() == 9
    written.check([[b"3", b"7"]], [[b"3", b"5", b"7"]])


@for_clients()
def test_fenced_by_a_second_instance(client: Client, written: Topic, transactional_id: str) -> None:
    """It comes while the first has a transaction open, which is aborted."""
    with client.producer(transactional_id=transactional_id) as first:
        first.transaction(written.messages(b"before"))
        first.begin()
        first.send_all(written.messages(b"lost"))
        with client.producer(transactional_id=transactional_id) as second:
            second.transaction(written.messages(b"of the second"))
            with pytest.raises(Failed) as refused:
                first.commit()
            assert refused.value.error in FENCED
            second.transaction(written.messages(b"goes on"))
    kept = [b"before", b"of the second", b"goes on"]
    written.check([kept], [[b"before", b"lost", *kept[1:]]])


@for_clients()
def test_fenced_by_another_client(
    broker: Broker, client: Client, written: Topic, transactional_id: str
) -> None:
    """One name, handed from client to client: the last that came is the one."""
    kept, everything = [], []
    for name in CLIENTS:
        with client.producer(transactional_id=transactional_id) as producer:
            producer.begin()
            producer.send_all(written.messages(b"lost"))
            everything.append(b"lost")
            other = make_client(name, broker.bootstrap)
            value = f"of {name}".encode()
            with other.producer(transactional_id=transactional_id) as second:
                second.transaction(written.messages(value))
            kept.append(value)
            everything.append(value)
            with pytest.raises(Failed) as refused:
                producer.commit()
            assert refused.value.error in FENCED
    written.check([kept], [everything])


@for_clients()
def test_timed_out(client: Client, written: Topic, wire: Wire, transactional_id: str) -> None:
    """The broker aborts what takes too long, which its producer hears when it ends it."""
    with client.producer(
        transactional_id=transactional_id, transaction_timeout_ms=5_000, delivery_timeout_ms=5_000
    ) as slow:
        slow.transaction(written.messages(b"before"))
        slow.begin()
        slow.send_all(written.messages(b"late"))
        assert stable_end(wire, written.name) == 2
        eventually(lambda: stable_end(wire, written.name) == 4, "aborted by the broker")
        with pytest.raises(Failed) as refused:
            slow.commit()
        assert refused.value.error in FENCED | {"INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"}
    with client.producer(transactional_id=transactional_id) as again:
        again.transaction(written.messages(b"again"))
    written.check([[b"before", b"again"]], [[b"before", b"late", b"again"]])
