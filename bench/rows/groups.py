"""Consumer groups: forming, rebalancing, heartbeats."""

from __future__ import annotations

from functools import partial

from bench import frames
from bench.members import Group
from bench.rows import closed_loop
from bench.run import Figure, Run, row
from bench.targets import KAFKA, OTTLA


def group(run: Run, count: int) -> None:
    """Members on raw sockets join at once; then one leaves."""
    broker = run.broker()
    run.coordinator(broker, "warm-up")
    count = run.size(count, max(2, count // 10))
    warm_up = Group(broker.address, "warm-up")
    warm_up.form(count)
    warm_up.close()
    for number in range(run.repeats):
        run.coordinator(broker, f"group-{number}")
        members = Group(broker.address, f"group-{number}")
        with run.used(broker) as forming:
            run.record("form", members.form(count))
        with run.used(broker) as rebalancing:
            run.record("rebalance", members.lose_one())
        run.record("form CPU", forming.cpu / count * 1e6)
        run.record("rebalance CPU", rebalancing.cpu / count * 1e6)
        members.close()


for _count in (50, 500):
    row(
        f"group-{_count}",
        f"{_count} members form a group, then one leaves",
        [
            Figure("form CPU", "us/member"),
            Figure("rebalance CPU", "us/member"),
            Figure("form", "s"),
            Figure("rebalance", "s"),
        ],
        (OTTLA, KAFKA),
    )(partial(group, count=_count))


@row(
    "heartbeat",
    "50 members of a stable group, each sends the next heartbeat when the last is answered",
    [
        Figure("CPU", "us/request", aim=12),
        Figure("requests", "/s"),
        Figure("p50", "ms"),
        Figure("p99", "ms"),
    ],
    (OTTLA, KAFKA),
)
def heartbeat(run: Run) -> None:
    broker = run.broker()
    run.coordinator(broker, "beating")
    group = Group(broker.address, "beating")
    group.form(run.size(50, 5))
    load = [frames.heartbeat("beating", one.generation, one.member_id) for one in group.members]
    closed_loop.measure(run, broker, load, frames.top_error, count="requests")
    group.close()
