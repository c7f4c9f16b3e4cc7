"""Static members (KIP-345) as stock clients are them."""

from __future__ import annotations

import pytest

from compat_tests.groups.conftest import Start
from compat_tests.groups.consumers import CLIENTS, Refused, wait_shared
from compat_tests.harness.waiting import eventually

for_members = pytest.mark.parametrize("client", CLIENTS)


def pairs(topic: str, count: int = 4) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


@for_members
def test_restart_inside_the_session_moves_nothing(start: Start, four: str, client: str) -> None:
    options = {"session_ms": 30_000}
    stays = start(client, four, instance_id="stays", **options)
    goes = start(client, four, instance_id="goes", **options)
    wait_shared([stays, goes], pairs(four), each=2)
    owned = set(goes.owns)
    events = len(stays.history)
    goes.kill()
    back = start(client, four, instance_id="goes", **options)
    wait_shared([stays, back], pairs(four), each=2)
    assert back.owns == owned, "the same partitions"
    assert len(stays.history) == events, "the other one noticed nothing"


@for_members
def test_restart_past_the_session_is_a_rebalance(start: Start, four: str, client: str) -> None:
    stays = start(client, four, instance_id="stays")
    goes = start(client, four, instance_id="goes")
    wait_shared([stays, goes], pairs(four), each=2)
    goes.kill()
    wait_shared([stays], pairs(four))
    back = start(client, four, instance_id="goes")
    wait_shared([stays, back], pairs(four), each=2)


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka", "java"])
def test_a_second_instance_fences_the_first(start: Start, four: str, client: str) -> None:
    """confluent-kafka and Java tell their application at once, kafka-python when it commits.
    aiokafka takes the error for a reason to join again, and fences the second one in its turn; so
    does Java when its application polls again, which ours does not."""
    options = {"session_ms": 30_000}
    first = start(client, four, instance_id="one", **options)
    wait_shared([first], pairs(four))
    second = start(client, four, instance_id="one", **options)
    wait_shared([second], pairs(four))

    def told() -> bool:
        if first.process.poll() is not None or first.seen("error") or not first.owns:
            return True
        try:
            first.commit({(four, 0): 1})
        except Refused:
            return True
        return False

    eventually(told, "the first one is told", 90)
    wait_shared([second], pairs(four))
    assert second.committed((four, 0)) is None
