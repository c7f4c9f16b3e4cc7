"""What clients do with positions: all of it needs nothing of the broker but right answers."""

from __future__ import annotations

import threading

import kafka
import pytest

from compat_tests.conftest import MakeTopic
from compat_tests.groups.conftest import Produce, Start
from compat_tests.groups.consumers import CLIENTS, wait_shared
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually

for_members = pytest.mark.parametrize("client", CLIENTS)


def pairs(topic: str, count: int = 4) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


@for_members
def test_seek_pause_and_resume(start: Start, four: str, produce: Produce, client: str) -> None:
    produce(four, dict.fromkeys(range(4), 5))
    member = start(client, four)
    wait_shared([member], pairs(four))
    member.wait(lambda: len(member.records) == 20, "all")
    assert member.on((four, 2), "position") == 5
    member.on((four, 2), "seek", offset=3)
    member.wait(lambda: len(member.records) == 22, "two of them again")
    assert [(r.partition, r.offset) for r in member.records[20:]] == [(2, 3), (2, 4)]
    member.on((four, 1), "pause")
    produce(four, {1: 3, 2: 1})
    member.wait(lambda: len(member.records) == 23, "the one that is not paused")
    member.wait(lambda: member.call("committed", topic=four, partition=0) is None, "a while")
    assert len(member.records) == 23
    assert member.owns == pairs(four), "paused partitions stay"
    member.on((four, 1), "resume")
    member.wait(lambda: len(member.records) == 26, "the paused ones")
    assert [r.offset for r in member.records if r.partition == 1] == list(range(8))


@for_members
def test_offsets_kept_outside_kafka(start: Start, four: str, produce: Produce, client: str) -> None:
    """Every assignment is followed by a seek to what the application has stored."""
    produce(four, dict.fromkeys(range(4), 10))
    store = [[four, partition, 2 * partition] for partition in range(4)]
    first = start(client, four, start_at=store)
    wait_shared([first], pairs(four))
    first.wait(lambda: len(first.records) == 40 - 12, "everything behind what is stored")
    for partition in range(4):
        offsets = [r.offset for r in first.records if r.partition == partition]
        assert offsets == list(range(2 * partition, 10))
    second = start(client, four, start_at=[[four, p, 9] for p in range(4)])
    wait_shared([first, second], pairs(four), each=2)
    second.wait(lambda: len(second.records) == 2, "the last of each of its partitions")
    assert {r.offset for r in second.records} == {9}


@for_members
def test_a_whole_group_is_rewound_in_the_listener(
    start: Start, four: str, produce: Produce, client: str
) -> None:
    produce(four, dict.fromkeys(range(4), 3))
    before = start(client, four)
    wait_shared([before], pairs(four))
    before.wait(lambda: len(before.records) == 12, "all")
    before.commit()
    before.close()
    rewound = [start(client, four, start_at=[[four, p, 0] for p in range(4)]) for _ in range(2)]
    wait_shared(rewound, pairs(four), each=2)
    for member in rewound:
        member.wait(
            lambda m=member: (
                {(r.partition, r.offset) for r in m.records}  # type: ignore[misc]
                >= {(p, o) for _, p in m.owns for o in range(3)}
            ),
            "its partitions from the beginning",
        )


def test_a_group_without_commits_starts_where_it_is_told_to(
    start: Start, four: str, produce: Produce
) -> None:
    """auto.offset.reset counts only where nothing is committed."""
    produce(four, dict.fromkeys(range(4), 3))
    first = start("kafka-python", four)
    wait_shared([first], pairs(four))
    first.wait(lambda: len(first.records) == 12, "all from the earliest on")
    first.commit({(four, 0): 1})
    first.close()
    second = start("kafka-python", four)
    second.wait(lambda: len(second.records) == 11, "partition 0 from 1, the others from 0")


def test_one_consumer_a_thread(
    broker: Broker, new_topic: MakeTopic, produce: Produce, group: str
) -> None:
    topic = new_topic(4)
    produce(topic, dict.fromkeys(range(4), 50))
    got: list[tuple[int, int, int]] = []
    owned: dict[int, set[int]] = {}
    stop = threading.Event()

    def consume(number: int) -> None:
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            client_id=f"thread-{number}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=60_000,
        )
        while not stop.is_set():
            for records in consumer.poll(timeout_ms=500).values():
                got.extend((number, one.partition, one.offset) for one in records)
            owned[number] = {tp.partition for tp in consumer.assignment()}
            if owned[number]:
                consumer.commit()
        consumer.close()

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    eventually(
        lambda: {(p, o) for _, p, o in got} == {(p, o) for p in range(4) for o in range(50)},
        "every record is read",
        60,
    )
    # once more, with everybody in: each thread its partition
    eventually(lambda: sorted(map(sorted, owned.values())) == [[0], [1], [2], [3]], "shared")
    first = len(got)
    produce(topic, dict.fromkeys(range(4), 10))
    eventually(lambda: len(got) >= first + 40, "the new ones too", 60)
    stop.set()
    for thread in threads:
        thread.join(30)
    owners: dict[int, set[int]] = {}
    for number, partition, _ in got[first:]:
        owners.setdefault(partition, set()).add(number)
    assert all(len(numbers) == 1 for numbers in owners.values()), owners
    assert len(got[first:]) == 40


@for_members
def test_automatic_commits_are_found_again(
    start: Start, four: str, produce: Produce, client: str
) -> None:
    produce(four, dict.fromkeys(range(4), 4))
    first = start(client, four, auto_commit=True)
    wait_shared([first], pairs(four))
    first.wait(lambda: len(first.records) == 16, "all")
    first.wait(lambda: first.committed((four, 3)) == 4, "committed by itself")
    first.kill()
    second = start(client, four)
    wait_shared([second], pairs(four))
    produce(four, {3: 1})
    second.wait(lambda: bool(second.records), "the new one")
    assert [(r.partition, r.offset) for r in second.records] == [(3, 4)]
