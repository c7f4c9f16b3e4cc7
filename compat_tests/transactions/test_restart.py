"""The broker goes away in the middle of a transaction and comes back."""

from __future__ import annotations

import contextlib

import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Client, Failed, Partition
from compat_tests.conftest import make_client
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire
from compat_tests.transactions.protocols import NEW, OLD
from compat_tests.transactions.reading import Topic
from compat_tests.transactions.ready import wait_for_coordinators
from compat_tests.transactions.script import READ_COMMITTED, Script


def crash(broker: Broker) -> None:
    broker.kill()
    broker.start()


@for_clients()
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_it_goes_on_or_fails_cleanly(
    broker: Broker, client: Client, end: str, written: Topic, transactional_id: str
) -> None:
    """All of it or nothing: what the client says happened is what readers see."""
    values = [b"%d" % n for n in range(20)]
    with contextlib.ExitStack() as stack:
        producer = stack.enter_context(
            client.producer(transactional_id=transactional_id, delivery_timeout_ms=60_000)
        )
        producer.transaction(written.messages(b"before"))
        producer.begin()
        producer.send_all(written.messages(*values[:10]))
        crash(broker)
        committed = False
        with contextlib.suppress(Failed):
            producer.send_all(written.messages(*values[10:]))
            producer.commit() if end == "commit" else producer.abort()
            committed = end == "commit"
    with client.producer(transactional_id=transactional_id) as again:
        again.transaction(written.messages(b"after"))
    kept = [b"before", *(values if committed else []), b"after"]
    for reader in written.readers:
        assert written.values(reader, "read_committed") == [kept], reader.name
        everything = written.values(reader, "read_uncommitted")[0]
        assert len(set(everything)) == len(everything), "doubled"
        assert {*kept, *values[:10]} <= set(everything)


@for_clients()
def test_who_comes_back_aborts_what_was_open(
    broker: Broker, client: Client, written: Topic, transactional_id: str
) -> None:
    """Broker and client are gone; only the transaction's name is left."""
    lost = client.producer(transactional_id=transactional_id)
    lost.begin()
    lost.send_all(written.messages(b"lost"))
    crash(broker)
    with client.producer(transactional_id=transactional_id) as producer:
        producer.transaction(written.messages(b"kept"))
    with contextlib.suppress(Failed):
        lost.close()
    written.check([[b"kept"]], [[b"lost", b"kept"]])


def test_what_was_committed_and_aborted_stays_so(broker: Broker, written: Topic) -> None:
    kept, everything = [], []
    for client in written.readers:
        with client.producer(transactional_id=f"{written.name}-{client.name}") as producer:
            for number in range(6):
                value = f"{client.name} {number}".encode()
                producer.transaction(written.messages(value), commit=bool(number % 2))
                everything.append(value)
                kept += [value] if number % 2 else []
    crash(broker)
    written.check([kept], [everything])
    broker.restart()
    written.check([kept], [everything])


def test_a_deadline_is_kept_over_a_restart(
    broker: Broker, written: Topic, transactional_id: str
) -> None:
    """A transaction that nobody ends is aborted in its time, also by the broker's next life."""
    client = make_client("confluent-kafka", broker.bootstrap)
    producer = client.producer(
        transactional_id=transactional_id, transaction_timeout_ms=8_000, delivery_timeout_ms=8_000
    )
    producer.begin()
    producer.send_all(written.messages(b"late"))
    crash(broker)

    def is_stable() -> bool:
        with Wire(broker.host, broker.port) as wire:
            answer = calls.list_offset(wire, written.name, -1, isolation_level=READ_COMMITTED)
            return bool(answer.error_code == 0 and answer.offset == 2)

    eventually(is_stable, "aborted")
    with contextlib.suppress(Failed):
        producer.close()
    written.check([[]], [[b"late"]])


def test_pending_offsets_are_there_after_a_restart(
    broker: Broker, topic: str, group: str, transactional_id: str
) -> None:
    client = make_client("java", broker.bootstrap)
    at = Partition(topic, 0)

    def committed(stable: bool) -> int | None:
        """None while the broker does not say."""
        wanted = [{"name": topic, "partition_indexes": [0]}]
        with Wire(broker.host, broker.port) as wire:
            answer = wire.call(
                "OffsetFetch",
                9,
                require_stable=stable,
                groups=[{"group_id": group, "topics": wanted}],
            ).groups[0]
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            return None
        return int(answer.topics[0].partitions[0].committed_offset)

    with client.producer(transactional_id=transactional_id) as producer:
        producer.begin()
        producer.send_offsets({at: 3}, group)
        producer.commit()
        eventually(lambda: committed(True) == 3, "committed")
        producer.begin()
        producer.send_offsets({at: 5}, group)
        crash(broker)
        eventually(lambda: committed(False) == 3, "still the old one")
        assert committed(True) is None
        producer.commit()
        eventually(lambda: committed(True) == 5, "committed after the restart")


def test_states_survive(broker: Broker, topic: str, transactional_id: str) -> None:
    """What DescribeTransactions and DescribeProducers told before, they tell after kill -9."""
    script = Script(broker.host, broker.port, transactional_id)
    script.topic = topic
    script.names[topic] = "TOPIC"
    wait_for_coordinators(script.wire, transactional_id)
    producers = []
    for protocol in (OLD, NEW):
        for state in ("empty", "ongoing", "commit", "abort"):
            one = script.producer(f"{protocol.name}-{state}", protocol)
            producers.append(one)
            one.init()
            if state != "empty":
                one.write(state)
            if state in ("commit", "abort"):
                one.finish(state)

    def told() -> list[str]:
        script.lines.clear()
        script.describe(*(one.name for one in producers))
        script.list_transactions(0, "all")
        script.list_transactions(0, state_filters=["Ongoing"])
        script.describe_producers(0)
        script.fetch()
        return list(script.lines)

    before = told()
    script.wire.close()
    crash(broker)
    script.wire = Wire(broker.host, broker.port, timeout=60)

    try:
        eventually(lambda: told() == before, "as before")
    except AssertionError:
        assert told() == before  # shows what differs
    finally:
        script.close()
