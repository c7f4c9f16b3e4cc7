"""What user interfaces and administration clients ask of a large honest cluster: no turn of the
loop takes long, and no call takes much more memory than its answer."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.cluster_calls import changing, fill, reading
from tests.broker.holds import Asking, Measured

from ottla.wire.api.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ottla.wire.compile import encode
from ottla.wire.schema import Message

HOLD_MS = 20.0
"""CPU time of the longest turn, on a machine as fast as the one where this was measured."""
ENCODING_MS = 0.65
"""CPU time of `_yardstick` there."""
SPARE_BYTES = 24 << 20
"""Beyond so many times its answer a call may take this: the interpreter's arenas grow by steps, and
other tests have left theirs."""
TIMES = 4
SLOWER = {
    "IncrementalAlterConfigs, one default for all": 5.0,
    "DescribeConfigs, every topic, all of it": 5.0,
    "CreateTopics": 2.0,
    "DeleteTopics, all": 2.0,
}
"""What has more than 20 ms in one piece with 5,000 topics: each inherits the new default; asyncio
joins 24 MB that the socket does not take at once (uvloop does not); a commit of as many is shown at
once."""


def _yardstick() -> float:
    """How much slower than there this machine is now; at least 1."""
    topics = [MetadataResponseTopic(name=f"t{n}") for n in range(1000)]
    answer = MetadataResponse(topics=topics)
    took = []
    for _ in range(5):
        before = time.thread_time()
        encode(answer, 12)
        took.append((time.thread_time() - before) * 1000)
    return max(1.0, statistics.median(took) / ENCODING_MS)


def _held(
    asking: Asking, calls: Iterator[tuple[str, Message, int]]
) -> dict[str, tuple[float, int, int]]:
    """What was over the bounds: by name of the call, ms on the machine there, bytes, answer."""
    over = {}
    for name, request, version in calls:
        slower = _yardstick()
        cost = asking.cost(request, version)
        slower = max(slower, _yardstick())
        hold = cost.hold_ms / slower / SLOWER.get(name, 1.0)
        if hold > HOLD_MS or cost.memory > SPARE_BYTES + TIMES * cost.answer:
            over[name] = (hold, cost.memory, cost.answer)
    return over


def _asked(folder: Path, topics: int, groups: int) -> None:
    measured = Measured(folder, group_initial_rebalance_delay_ms="0")
    try:
        fill(measured, topics, groups)
        measured.do(gc.collect)
        asking = measured.asking()
        assert asking.call(MetadataRequest(topics=[]), 12).brokers
        assert _held(asking, reading(topics, groups)) == {}
        assert _held(asking, changing(topics, groups)) == {}
        left = measured.do(lambda: {found.name for found in measured.broker.topics})
        assert not any(name.startswith(("orders", "wide")) for name in left)
        assert {name for name in left if name.startswith("more")} == {
            f"more-{number}" for number in range(topics)
        }
        asking.socket.close()
    finally:
        measured.stop()


def test_no_call_holds_up_a_cluster_of_a_thousand_topics(tmp_path: Path) -> None:
    _asked(tmp_path / "data", 1000, 100)


@pytest.mark.long
def test_no_call_holds_up_a_cluster_of_five_thousand_topics(tmp_path: Path) -> None:
    _asked(tmp_path / "data", 5000, 1000)
