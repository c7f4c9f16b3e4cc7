"""Microseconds of CPU that group requests cost inside the broker, without sockets.

    python -m bench.group_micro [--seconds 0.5]

machine     the group machine alone: request and time in, outcome out
request     from the frame's bytes to the answer's bytes: decoding, dispatch, coordinator, encoding;
            commits go to the log inline under durability `os`, one loop turn for every 16 requests

Each figure is CPU time, the best of five rounds. What a broker with sockets and flushes needs is
measured by the rows `heartbeat` and `commit` of `python -m bench`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time

from tests.broker.harness import Client, Harness
from tests.group.simulated import Consumer, World, commit_request, form

from ottla.group.outcome import Call
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.sync_group import SyncGroupRequest
from ottla.wire.schema import Message

TURN = 16
"""Requests that one turn of the loop reads: what a busy broker finds in its sockets."""


def best(work: Callable[[], None], units: int, seconds: float) -> float:
    """Microseconds of CPU for one of the `units` that one call of `work` does."""
    found = float("inf")
    for _ in range(5):
        rounds = 0
        start = process_time()
        while process_time() - start < seconds / 5:
            work()
            rounds += 1
        found = min(found, (process_time() - start) / rounds / units * 1e6)
    return found


def machine_figures(seconds: float) -> dict[str, float]:
    world = World()
    members = [Consumer(world, f"m{n}") for n in range(50)]
    form(*members)
    one = members[7]
    call = Call(object(), 4)
    beat = HeartbeatRequest(group_id="g", generation_id=one.generation_id, member_id=one.member_id)
    commit = commit_request("g", {0: 42}, generation_id=one.generation_id, member_id=one.member_id)
    commit_call = Call(object(), 9)

    def times(request: Message, how: Call) -> Callable[[], None]:
        def work() -> None:
            for _ in range(100):
                world.machine.handle(request, how, world.now)

        return work

    return {
        "heartbeat, machine": best(times(beat, call), 100, seconds),
        "commit of 1 partition, machine": best(times(commit, commit_call), 100, seconds),
    }


def joined(client: Client, group_id: str) -> tuple[int, str]:
    """Make `client` the only member of a stable group; its generation and member id."""
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")],
    )
    client.send(request, 3)
    client._harness.pass_time(1)
    answer = client.receive()
    sync = SyncGroupRequest(
        group_id=group_id, generation_id=answer.generation_id, member_id=answer.member_id
    )
    assert client.call(sync, 3).error_code == 0
    return answer.generation_id, answer.member_id


def request_figures(seconds: float, folder: Path) -> dict[str, float]:
    harness = Harness(folder)
    harness.topic("t", 12)
    clients = [harness.client() for _ in range(TURN)]
    members = [joined(client, f"g{n}") for n, client in enumerate(clients)]

    def turn(make: Callable[[int], Message], version: int) -> Callable[[], None]:
        """One frame from each of TURN connections, then the end of the loop's turn."""
        frames = [client.frame(make(n), version) for n, client in enumerate(clients)]
        for client in clients:
            client.forget()

        def work() -> None:
            for client, frame in zip(clients, frames, strict=True):
                client.connection.feed(frame)
            harness.turn()
            for client in clients:
                assert client._received
                client._received.clear()

        return work

    def beat(n: int) -> Message:
        generation_id, member_id = members[n]
        return HeartbeatRequest(group_id=f"g{n}", generation_id=generation_id, member_id=member_id)

    def commit(partitions: int) -> Callable[[int], Message]:
        def make(n: int) -> Message:
            generation_id, member_id = members[n]
            return commit_request(
                f"g{n}",
                dict.fromkeys(range(partitions), 42),
                topic="t",
                generation_id=generation_id,
                member_id=member_id,
            )

        return make

    def fetch(n: int) -> Message:
        wanted = OffsetFetchRequestTopics(name="t", partition_indexes=list(range(12)))
        group = OffsetFetchRequestGroup(group_id=f"g{n}", topics=[wanted])
        return OffsetFetchRequest(groups=[group])

    try:
        return {
            "heartbeat, request": best(turn(beat, 4), TURN, seconds),
            "commit of 1 partition, request": best(turn(commit(1), 9), TURN, seconds),
            "commit of 12 partitions, request": best(turn(commit(12), 9), TURN, seconds),
            "fetch of 12 partitions, request": best(turn(fetch, 9), TURN, seconds),
        }
    finally:
        harness.store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU time for each figure")
    seconds: float = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        figures = machine_figures(seconds) | request_figures(seconds, Path(folder) / "data")
    for name, microseconds in figures.items():
        print(f"{name:36} {microseconds:7.1f} us")


if __name__ == "__main__":
    main()
