"""The largest requests there are: none holds the loop, none takes much memory, each is answered."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.broker.boundskit import Case, Names, World, cases

from ottla.broker.dispatch import load_apis
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.primitives import MAX_ELEMENTS

HOLD_MS: Final = 20.0
#: Memory that a request may take beside what its frame and its answer take here and there.
MEMORY: Final = 96 << 20
FACTOR: Final = 8
#: Of the array that is blown up.
ELEMENTS: Final = 3000

APIS: Final = sorted({case.cls.__name__.removesuffix("Request") for case in cases(False)})


@pytest.fixture(scope="module")
def slowness() -> float:
    """How much slower than the machine of the limits this one is now, in CPU time; at least 1."""
    best = min(_work() for _ in range(5))
    return max(1.0, best / 0.0025)


def _work() -> float:
    before = time.thread_time()
    made = [{"name": f"name-{number}", "number": number} for number in range(8_000)]
    del made
    return time.thread_time() - before


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Names]]:
    made = World(Path(tmp_path_factory.mktemp("bounds")))
    topics = {"wide": 2000} | {f"t{number}": 1 for number in range(200)}
    made.topics(topics)
    ids = {name: b"id-of-" + b"%010d" % number for number, name in enumerate(topics)}
    names = Names(
        node_id=made.config.node_id,
        wide="wide",
        topics=[name for name in topics if name != "wide"],
        groups=[f"g{number}" for number in range(50)],
        transactional_ids=[f"x{number}" for number in range(50)],
        ids=ids,
    )
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    asked = [OffsetCommitRequestTopic(name="t0", partitions=[one])]
    with made.client() as client:
        for group in names.groups:
            client.call(OffsetCommitRequest(group_id=group, topics=asked), 8)
        for name in names.transactional_ids:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            client.call(request, 4)
    yield made, names
    gc.unfreeze()
    made.close()


def _ask(world: World, names: Names, case: Case, elements: int, slowness: float) -> list[str]:
    """What is wrong with how the broker takes one request, each time of three: other things than
    the request may hold the loop, but not always."""
    for _ in range(3):
        wrong = _ask_once(world, names, case, elements, slowness)
        if not wrong:
            break
    return wrong


def _ask_once(world: World, names: Names, case: Case, elements: int, slowness: float) -> list[str]:
    with world.client() as client:
        frame = client.frame(case.request(names, elements), case.version)
        resident, wrong = _reset_peak(), []
        world.begin()
        client.send(frame)
        answer = client.receive()
        if world.hold_ms > HOLD_MS * slowness:
            wrong.append(f"{case.name}: held the loop for {world.hold_ms:.0f} ms")
        taken = _peak() - resident
        if taken > MEMORY + FACTOR * (len(frame) + len(answer or b"")):
            wrong.append(f"{case.name}: {len(frame)} bytes took {taken >> 20} MiB")
        if answer is not None:
            client.read(answer)
    return wrong


def _reset_peak() -> int:
    """Forget the peak of resident memory; gives what is resident. Linux only: elsewhere 0."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return 0
    return _peak()


def _peak() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+)", status)
    return int(found[1]) << 10 if found else 0


@pytest.mark.parametrize("api", APIS)
def test_large_requests_hold_nothing_up(
    world: tuple[World, Names], slowness: float, api: str
) -> None:
    wrong = []
    for case in cases(shapes=False):
        if case.cls.__name__ == f"{api}Request":
            wrong += _ask(*world, case, ELEMENTS, slowness)
    assert not wrong, "\n".join(wrong)


def test_many_requests_at_once_hold_nothing_up(world: tuple[World, Names], slowness: float) -> None:
    """Each short enough to be handled in one piece, 64 of them about 45 ms."""
    made, names = world
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(1900)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=names.wide, partitions=asked)])
    clients = [made.client() for _ in range(64)]
    frames = [client.frame(request, 8) for client in clients]
    holds = []
    for _ in range(3):
        made.begin()
        for client, frame in zip(clients, frames, strict=True):
            client.send(frame)
        for client in clients:
            assert client.receive()
        holds.append(made.hold_ms)
    for client in clients:
        client.socket.close()
    assert min(holds) < HOLD_MS * slowness


@pytest.mark.long
@pytest.mark.parametrize("api", APIS)
def test_the_largest_requests_of_every_version_hold_nothing_up(
    world: tuple[World, Names], slowness: float, api: str
) -> None:
    wrong = []
    for case in cases(shapes=True):
        if case.cls.__name__ == f"{api}Request":
            wrong += _ask(*world, case, MAX_ELEMENTS - 64, slowness)
    assert not wrong, "\n".join(wrong)


def test_every_api_with_an_array_is_asked() -> None:
    assert set(APIS) <= {
        api.request.__name__.removesuffix("Request") for api in load_apis().values()
    }
    assert len(APIS) > 25
