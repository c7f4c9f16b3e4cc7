"""Members come, go, crash and pause; each partition has one of them all the time."""

from __future__ import annotations

import time

import pytest

from compat_tests.conftest import MakeTopic
from compat_tests.groups.conftest import Produce, Start
from compat_tests.groups.consumers import (
    CLIENTS,
    COOPERATIVE,
    Refused,
    wait_shared,
)
from compat_tests.harness.brokers import Broker
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire

for_members = pytest.mark.parametrize("client", CLIENTS)

ASSIGNORS = [
    *[(client, "range") for client in CLIENTS],
    *[(client, "roundrobin") for client in CLIENTS],
    *[(client, "sticky") for client in CLIENTS if client != "confluent-kafka"],
    *[(client, "cooperative-sticky") for client in COOPERATIVE],
]


def pairs(topic: str, count: int = 4) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


@pytest.mark.parametrize(("client", "assignor"), ASSIGNORS)
def test_members_share_take_over_and_give_back(
    start: Start, four: str, produce: Produce, client: str, assignor: str
) -> None:
    """First join, join of a second, leave: what one commits the other goes on from."""
    produce(four, dict.fromkeys(range(4), 5))
    first = start(client, four, assignors=[assignor])
    wait_shared([first], pairs(four))
    first.wait(lambda: len(first.records) == 20, "all records")
    first.commit()
    second = start(client, four, assignors=[assignor])
    wait_shared([first, second], pairs(four), each=2)
    produce(four, dict.fromkeys(range(4), 5))
    second.wait(lambda: len(second.records) == 10, "its half of the new ones")
    assert {record.partition for record in second.records} == {p for _, p in second.owns}
    assert all(record.offset >= 5 for record in second.records), "read what was committed"
    second.commit()
    second.close()
    wait_shared([first], pairs(four))
    produce(four, dict.fromkeys(range(4), 1))
    first.wait(lambda: sum(r.offset == 10 for r in first.records) == 4, "the last ones")


@for_members
def test_what_is_committed_while_rebalancing_counts(
    start: Start, four: str, produce: Produce, client: str
) -> None:
    """In the listener, with the old generation, while the newcomer already waits."""
    produce(four, dict.fromkeys(range(4), 5))
    first = start(client, four, commit_when_revoked=True)
    wait_shared([first], pairs(four))
    first.wait(lambda: len(first.records) == 20, "all records")
    assert first.committed((four, 0)) is None
    second = start(client, four)
    wait_shared([first, second], pairs(four), each=2)
    assert {first.committed(pair) for pair in first.owns} == {5}
    assert {second.committed(pair) for pair in second.owns} == {5}
    produce(four, dict.fromkeys(range(4), 1))
    second.wait(lambda: len(second.records) == 2, "the new ones")
    assert {record.offset for record in second.records} == {5}


@pytest.mark.parametrize("client", COOPERATIVE)
def test_cooperative_members_keep_what_does_not_move(start: Start, four: str, client: str) -> None:
    first = start(client, four, assignors=["cooperative-sticky"])
    wait_shared([first], pairs(four))
    second = start(client, four, assignors=["cooperative-sticky"])
    wait_shared([first, second], pairs(four), each=2)
    revoked = set().union(*first.seen("revoked"), *first.seen("lost"))
    assert revoked == second.owns


@for_members
def test_a_killed_member_is_replaced_after_its_session(
    start: Start, four: str, produce: Produce, client: str
) -> None:
    first, second = start(client, four), start(client, four)
    wait_shared([first, second], pairs(four), each=2)
    produce(four, dict.fromkeys(range(4), 3))
    second.wait(lambda: len(second.records) == 6, "its half")
    second.commit()
    produce(four, dict.fromkeys(range(4), 2))
    second.wait(lambda: len(second.records) == 10, "its half")
    orphaned = set(second.owns)
    second.kill()
    wait_shared([first], pairs(four))
    first.wait(
        lambda: all(
            any((r.topic, r.partition) == p and r.offset == 4 for r in first.records)
            for p in orphaned
        ),
        "what the dead one had read and not committed",
    )
    taken_over = [r.offset for r in first.records if (r.topic, r.partition) in orphaned]
    assert min(taken_over) == 3, "from the committed offset, not from before it"


@for_members
def test_a_member_paused_beyond_its_session_is_replaced_and_comes_back(
    start: Start, four: str, produce: Produce, client: str
) -> None:
    first, second = start(client, four), start(client, four)
    wait_shared([first, second], pairs(four), each=2)
    produce(four, dict.fromkeys(range(4), 3))
    second.wait(lambda: len(second.records) == 6, "its half")
    lost = set(second.owns)
    second.freeze()
    wait_shared([first], pairs(four))
    first.wait(lambda: len(first.records) >= 12, "everything")
    first.commit()
    second.thaw()
    wait_shared([first, second], pairs(four), each=2)
    assert first.committed(min(lost)) == 3 if min(lost) in first.owns else True
    produce(four, dict.fromkeys(range(4), 1))
    for consumer in (first, second):
        for pair in consumer.owns:
            consumer.wait(
                lambda c=consumer, p=pair: any(  # type: ignore[misc]
                    (r.topic, r.partition) == p and r.offset == 3 for r in c.records
                ),
                "the record after the pause",
            )


@for_members
def test_a_short_pause_costs_nothing(start: Start, four: str, client: str) -> None:
    first, second = (start(client, four, session_ms=30_000) for _ in range(2))
    wait_shared([first, second], pairs(four), each=2)
    events = len(first.history)
    second.freeze()
    time.sleep(2)  # several heartbeats
    second.thaw()
    second.call("committed", topic=four, partition=0)
    assert len(first.history) == events
    assert len(first.owns) == 2


@for_members
def test_a_slow_member_is_waited_for(start: Start, four: str, client: str) -> None:
    """Others join while it works on something: they get their share when it has come back."""
    first, second = start(client, four), start(client, four)
    wait_shared([first, second], pairs(four), each=2)
    events = len(second.history)
    second.work(3)
    third = start(client, four)
    wait_shared([first, second, third], pairs(four), each=1)
    assert second.owns
    assert len(second.history) > events


@for_members
def test_a_member_that_works_for_too_long_loses_its_partitions_and_comes_back(
    start: Start, four: str, client: str
) -> None:
    """Longer than its max.poll.interval.ms, which is also how long others wait for it."""
    first = start(client, four)
    second = start(client, four, max_poll_ms=5_000)
    wait_shared([first, second], pairs(four), each=2)
    second.work(25)
    first.wait(lambda: first.owns == pairs(four), "it has got all", 25)
    wait_shared([first, second], pairs(four), each=2)


@for_members
def test_late_commits_of_a_paused_member_are_refused(
    start: Start, four: str, produce: Produce, client: str
) -> None:
    produce(four, dict.fromkeys(range(4), 3))
    second = start(client, four)
    wait_shared([second], pairs(four))
    second.wait(lambda: len(second.records) == 12, "all")
    second.freeze()
    first = start(client, four)
    wait_shared([first], pairs(four))
    first.wait(lambda: len(first.records) == 12, "all")
    first.commit({(four, p): 2 for p in range(4)})
    second.thaw()
    refused = None
    try:
        second.commit({(four, p): 1 for p in range(4)})
    except Refused as error:
        refused = error
    committed = {p: first.committed((four, p)) for p in range(4)}
    assert refused is not None or committed == dict.fromkeys(range(4), 1)
    if refused is None:  # it had rejoined by then: a new generation's commit is as good as any
        assert second.history


def test_more_members_than_partitions(start: Start, new_topic: MakeTopic) -> None:
    topic = new_topic(2)
    members = [start("confluent-kafka", topic) for _ in range(4)]
    wait_shared(members, pairs(topic, 2))
    working = [member for member in members if member.owns]
    assert len(working) == 2
    working[0].close()
    wait_shared([m for m in members if m is not working[0]], pairs(topic, 2))


def test_all_clients_in_one_group(start: Start, new_topic: MakeTopic, produce: Produce) -> None:
    """Every client reads the others' subscriptions and assignments."""
    topic = new_topic(8)
    members = []
    for client in CLIENTS:
        members.append(start(client, topic))
        wait_shared(members, pairs(topic, 8), each=8 // len(members))
    produce(topic, dict.fromkeys(range(8), 2))
    for member in members:
        member.wait(lambda m=member: len(m.records) == 4, "its share")  # type: ignore[misc]
        member.commit()
    # each of them leads once: the leader goes, another one assigns
    for gone in range(len(members) - 1):
        members[gone].close()
        wait_shared(members[gone + 1 :], pairs(topic, 8), each=8 // (len(members) - gone - 1))


def test_cooperative_clients_in_one_group(start: Start, new_topic: MakeTopic) -> None:
    topic = new_topic(6)
    members = []
    for client in COOPERATIVE:
        members.append(start(client, topic, assignors=["cooperative-sticky"]))
        wait_shared(members, pairs(topic, 6), each=6 // len(members))
    members[0].close()
    wait_shared(members[1:], pairs(topic, 6), each=3)


@for_members
def test_mixed_assignors_meet_at_the_one_that_all_know(
    start: Start, four: str, client: str
) -> None:
    first = start(client, four, assignors=["roundrobin", "range"])
    wait_shared([first], pairs(four))
    second = start(client, four, assignors=["range"])
    wait_shared([first, second], pairs(four), each=2)


@for_members
def test_without_a_common_assignor_the_newcomer_is_refused(
    start: Start, four: str, client: str
) -> None:
    first = start(client, four, assignors=["range"])
    wait_shared([first], pairs(four))
    second = start(client, four, assignors=["roundrobin"])
    second.wait(
        lambda: second.process.poll() is not None or second.seen("error") or second.history,
        "it was told",
    )
    wait_shared([first], pairs(four))
    assert not second.owns


@for_members
def test_new_partitions_are_found_and_shared(
    broker: Broker, start: Start, new_topic: MakeTopic, produce: Produce, client: str
) -> None:
    from compat_tests.clients.kafka_python import KafkaPython

    topic = new_topic(2)
    members = [start(client, topic), start(client, topic)]
    wait_shared(members, pairs(topic, 2), each=1)
    with KafkaPython(broker.bootstrap).admin() as admin:
        admin.create_partitions(topic, 4)
    wait_shared(members, pairs(topic, 4), each=2)
    produce(topic, {3: 1})
    owner = next(member for member in members if (topic, 3) in member.owns)
    owner.wait(lambda: len(owner.records) == 1, "the record in the new partition")


@for_members
def test_a_pattern_takes_in_topics_that_come_later(
    start: Start, wire: Wire, group: str, client: str
) -> None:
    first, second = f"{group}.a", f"{group}.b"
    calls.create_topic(wire, first, 2)
    member = start(client, pattern=f"^{group}[.].*")
    wait_shared([member], pairs(first, 2))
    calls.create_topic(wire, second, 2)
    wait_shared([member], pairs(first, 2) | pairs(second, 2))


@for_members
def test_the_broker_restarts_under_a_group(
    broker: Broker, start: Start, four: str, produce: Produce, client: str
) -> None:
    members = [start(client, four), start(client, four)]
    wait_shared(members, pairs(four), each=2)
    produce(four, dict.fromkeys(range(4), 3))
    for member in members:
        member.wait(lambda m=member: len(m.records) == 6, "its half")  # type: ignore[misc]
        member.commit()
    broker.kill()
    broker.start()
    produce(four, dict.fromkeys(range(4), 2))
    for member in members:
        member.wait(
            lambda m=member: sum(r.offset >= 3 for r in m.records) >= 4,  # type: ignore[misc]
            "what was produced after the restart",
            90,
        )
    wait_shared(members, pairs(four), each=2)
    for member in members:
        member.commit()
    owned = min(members[0].owns)
    assert members[0].committed(owned) == 5
