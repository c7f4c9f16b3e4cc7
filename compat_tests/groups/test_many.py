"""Many members, many groups."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import aiokafka

from compat_tests.conftest import MakeTopic
from compat_tests.groups.conftest import Produce
from compat_tests.harness.brokers import Broker


def consumer(broker: Broker, topic: str, group: str, number: int) -> aiokafka.AIOKafkaConsumer:
    return aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        client_id=f"member-{number}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=60_000,
        heartbeat_interval_ms=1_000,
        rebalance_timeout_ms=60_000,
        metadata_max_age_ms=300_000,
    )


def test_a_hundred_members(
    broker: Broker, new_topic: MakeTopic, produce: Produce, group: str
) -> None:
    """Each of a hundred members gets two of two hundred partitions, and every record is read once
    when they are all in."""
    topic = new_topic(200)

    async def run() -> None:
        members = [consumer(broker, topic, group, number) for number in range(100)]
        await asyncio.gather(*(member.start() for member in members))
        deadline = time.monotonic() + 120
        while True:
            owned = Counter(tp for member in members for tp in member.assignment())
            shares = Counter(len(member.assignment()) for member in members)
            if len(owned) == 200 and shares == {2: 100}:
                break
            assert time.monotonic() < deadline, shares
            await asyncio.sleep(0.1)
        await asyncio.to_thread(produce, topic, dict.fromkeys(range(200), 1))
        got: Counter[int] = Counter()
        deadline = time.monotonic() + 120
        while sum(got.values()) < 200:
            for batches in await asyncio.gather(*(m.getmany(timeout_ms=100) for m in members)):
                for tp, records in batches.items():
                    got[tp.partition] += len(records)
            assert time.monotonic() < deadline, len(got)
        assert set(got.values()) == {1}
        await asyncio.gather(*(member.commit() for member in members))
        # half of them go; the rest take over, from what was committed
        await asyncio.gather(*(member.stop() for member in members[50:]))
        deadline = time.monotonic() + 120
        while sum(len(member.assignment()) for member in members[:50]) < 200:
            assert time.monotonic() < deadline, [len(m.assignment()) for m in members[:50]]
            await asyncio.gather(*(m.getmany(timeout_ms=50) for m in members[:50]))
        for member in members[:50]:
            for tp in member.assignment():
                assert await member.committed(tp) == 1
        await asyncio.gather(*(member.stop() for member in members[:50]))

    asyncio.run(run())


def test_fifty_groups_on_one_topic(
    broker: Broker, new_topic: MakeTopic, produce: Produce, group: str
) -> None:
    """Each gets every record."""
    topic = new_topic(2)
    produce(topic, {0: 20, 1: 20})

    async def read(number: int) -> Counter[tuple[int, int]]:
        member = consumer(broker, topic, f"{group}-{number}", number)
        await member.start()
        got: Counter[tuple[int, int]] = Counter()
        deadline = time.monotonic() + 120
        while sum(got.values()) < 60:
            for tp, records in (await member.getmany(timeout_ms=200)).items():
                got.update((tp.partition, record.offset) for record in records)
            assert time.monotonic() < deadline, sum(got.values())
        await member.commit()
        await member.stop()
        return got

    async def run() -> list[Counter[tuple[int, int]]]:
        reading = asyncio.gather(*(read(number) for number in range(50)))
        await asyncio.sleep(3)
        await asyncio.to_thread(produce, topic, {0: 10, 1: 10})
        return await reading

    expected = Counter((partition, offset) for partition in (0, 1) for offset in range(30))
    for got in asyncio.run(run()):
        assert got == expected
