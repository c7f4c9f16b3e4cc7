"""Odd things that happen to groups of stock clients."""

from __future__ import annotations

import subprocess
import sys

import pytest

from compat_tests.apache import distribution
from compat_tests.clients.base import Message
from compat_tests.clients.kafka_python import KafkaPython
from compat_tests.conftest import MakeBroker, MakeTopic
from compat_tests.groups.conftest import Produce, Start, pairs
from compat_tests.groups.consumers import CLIENTS, Consumer, Refused, wait_shared
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire

for_members = pytest.mark.parametrize("client", CLIENTS)
for_two_clients = pytest.mark.parametrize("client", ["confluent-kafka", "java"])


def ottla(broker: Broker, *arguments: str) -> str:
    """What our own command prints; it works with any Kafka."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments, "--bootstrap-server", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def offsets_of(member: Consumer) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in member.records]


@for_members
def test_a_live_group_is_moved_and_late_commits_are_refused(
    broker: Broker, start: Start, four: str, produce: Produce, group: str, client: str
) -> None:
    """`ottla groups reset` fences all members, one that is asleep too, then writes the offsets."""
    produce(four, dict.fromkeys(range(4), 5))
    options = {"session_ms": 20_000, "max_poll_ms": 20_000}
    awake, asleep = start(client, four, **options), start(client, four, **options)
    wait_shared([awake, asleep], pairs(four), each=2)
    eventually(lambda: len(awake.records) + len(asleep.records) >= 20, "all is read")
    for member in (awake, asleep):
        member.commit()
    read = len(awake.records), len(asleep.records)
    asleep.freeze()
    printed = ottla(broker, "groups", "reset", group, "--to", "2", "--topic", four)
    assert "2 members removed first" in printed
    late = None
    asleep.thaw()
    try:
        asleep.commit({(four, partition): 5 for partition in range(4)})
    except Refused as error:
        late = error
    assert late is not None or asleep.history[-1] != ("owns", set()), "refused, or joined anew"
    wait_shared([awake, asleep], pairs(four), each=2, seconds=60)

    def again() -> set[tuple[int, int]]:
        return {*offsets_of(awake)[read[0] :], *offsets_of(asleep)[read[1] :]}

    expected = {(partition, offset) for partition in range(4) for offset in (2, 3, 4)}
    if late is not None:
        eventually(lambda: again() >= expected, "everybody has gone back", 60)
    assert all(offset >= 2 for _, offset in again())


@for_two_clients
def test_a_full_group_takes_nobody_more(make_broker: MakeBroker, client: str) -> None:
    """group.max.size."""
    broker = make_broker({"group.max.size": "2"})
    members: list[Consumer] = []
    try:
        with Wire(broker.host, broker.port, timeout=30) as wire:
            calls.create_topic(wire, "t", 4)
        for _ in range(3):
            members.append(
                Consumer(
                    *(client, broker.bootstrap, "full"),
                    topics=["t"],
                    session_ms=60_000,  # nobody's place may become free
                    max_poll_ms=60_000,
                )
            )
            wait_shared(members[:2], pairs("t"), 60, each=4 // len(members[:2]))
        third = members[2]
        third.wait(lambda: third.seen("error") or third.process.poll() is not None, "refused", 60)
        members[0].close()
        wait_shared(
            members[1:2] + ([third] if third.process.poll() is None else []), pairs("t"), 60
        )
        assert not third.records
    finally:
        for member in members:
            member.kill()
        broker.kill()


@pytest.fixture(scope="module")
def strict(make_broker: MakeBroker) -> Broker:
    """Makes no topics by itself: a member that asks for a deleted one would have it made again."""
    return make_broker({"auto.create.topics.enable": "false"})


@for_members
def test_a_topic_is_deleted_under_a_group_and_made_again(strict: Broker, client: str) -> None:
    """The new one starts without offsets: it is read from its beginning."""
    goes, stays = f"goes-{client}", f"stays-{client}"

    def send(topic: str, partitions: int, value: bytes) -> None:
        messages = [Message(topic, value, partition=n % partitions) for n in range(8)]
        with KafkaPython(strict.bootstrap).producer(linger_ms=5) as producer:
            producer.send_all(messages)

    def read(topic: str, value: str) -> list[tuple[int, int]]:
        found = (r for r in member.records if (r.topic, r.value) == (topic, value))
        return sorted((r.partition, r.offset) for r in found)

    member = Consumer(client, strict.bootstrap, f"group-{client}", topics=[goes, stays])
    try:
        with Wire(strict.host, strict.port, timeout=30) as wire:
            calls.create_topic(wire, goes, 4)
            calls.create_topic(wire, stays, 1)
            send(goes, 4, b"old")
            wait_shared([member], pairs(goes) | pairs(stays, 1), 60)
            member.wait(lambda: len(member.records) == 8, "all", 60)
            member.commit()
            calls.delete_topic(wire, goes)
            send(stays, 1, b"other")
            member.wait(lambda: len(read(stays, "other")) == 8, "the other topic goes on", 60)
            calls.create_topic(wire, goes, 2)
        send(goes, 2, b"new")
        everything = [(partition, offset) for partition in range(2) for offset in range(4)]
        member.wait(lambda: read(goes, "new") == everything, "from its beginning", 60)
    finally:
        member.kill()


@for_two_clients
def test_partitions_are_added_in_the_middle_of_a_rebalance(
    broker: Broker, start: Start, new_topic: MakeTopic, client: str
) -> None:
    topic = new_topic(2)
    first = start(client, topic)
    wait_shared([first], pairs(topic, 2))
    first.work(4)
    second = start(client, topic)
    second.wait_ready()
    with KafkaPython(broker.bootstrap).admin() as admin:
        admin.create_partitions(topic, 6)
    wait_shared([first, second], pairs(topic, 6), 60, each=3)


@for_two_clients
def test_a_member_closes_while_others_wait_for_a_slow_one(
    start: Start, four: str, client: str
) -> None:
    slow, leaving = start(client, four), start(client, four)
    wait_shared([slow, leaving], pairs(four), each=2)
    slow.work(4)
    newcomer = start(client, four)
    newcomer.wait_ready()
    leaving.close()
    wait_shared([slow, newcomer], pairs(four), 60, each=2)


@for_two_clients
def test_a_static_member_comes_back_with_another_assignor(
    start: Start, four: str, client: str
) -> None:
    """The choice of the group stays what all of them know."""
    options = {"session_ms": 30_000}
    stays = start(client, four, instance_id="stays", assignors=["range", "roundrobin"], **options)
    goes = start(client, four, instance_id="goes", assignors=["range", "roundrobin"], **options)
    wait_shared([stays, goes], pairs(four), each=2)
    goes.kill()
    back = start(client, four, instance_id="goes", assignors=["roundrobin"], **options)
    wait_shared([stays, back], pairs(four), 60, each=2)


@for_two_clients
def test_the_broker_is_killed_again_and_again(
    broker: Broker, start: Start, four: str, produce: Produce, client: str
) -> None:
    members = [start(client, four, session_ms=20_000), start(client, four, session_ms=20_000)]
    wait_shared(members, pairs(four), each=2)
    for number in range(3):
        produce(four, dict.fromkeys(range(4), 2))
        eventually(
            lambda expected=8 * (number + 1): (  # type: ignore[misc]
                len({pair for member in members for pair in offsets_of(member)}) == expected
            ),
            "every record is read",
            60,
        )
        broker.kill()
        broker.start()
    wait_shared(members, pairs(four), 60, each=2)


@pytest.mark.ottla_only
@pytest.mark.usefixtures("needs_java")
def test_the_consumer_protocol_is_refused_as_by_brokers_that_do_not_have_it(
    broker: Broker, topic: str, group: str
) -> None:
    """KIP-848: Java's client says what to set instead."""
    done = subprocess.run(
        distribution.command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group),
            *("--command-property", "group.protocol=consumer", "--timeout-ms", "20000"),
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Set group.protocol=classic on the consumer configs" in done.stdout + done.stderr
