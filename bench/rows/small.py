"""Many small durable writes: where a broker that syncs is won or lost."""

from __future__ import annotations

from functools import partial

from bench import clients, frames, raw
from bench.rows import closed_loop
from bench.run import Figure, Run, percentile, row
from bench.targets import ALL

CONNECTIONS = 16


def _worst(payload: bytes) -> int:
    return max(frames.produce_errors(payload))


def small_produce(run: Run, depth: int) -> None:
    """16 connections, a partition each, one 100 B record a request, acks=all."""
    broker = run.broker()
    raw.create_topics(broker.address, {"load": CONNECTIONS})
    batch = frames.batch([b"x" * 100])
    load = [frames.produce("load", {index: batch}) for index in range(CONNECTIONS)]
    closed_loop.measure(run, broker, load, _worst, count="requests", depth=depth)


for _name, _depth, _aim in (("small-produce", 1, 30.0), ("small-produce-deep", 8, None)):
    row(
        _name,
        f"{CONNECTIONS} connections, one record a request, {_depth} request(s) on the wire each",
        [
            Figure("CPU", "us/request", aim=_aim),
            Figure("requests", "/s"),
            Figure("p50", "ms"),
            Figure("p99", "ms"),
        ],
        ALL,
    )(partial(small_produce, depth=_depth))


@row(
    "linger-0",
    "1,000 records/s, each in a request of its own, and a consumer that waits for them",
    [
        Figure("CPU", "us/record in and out", aim=100),
        Figure("p50", "ms", aim=2),
        Figure("p99", "ms", aim=25),
    ],
    ALL,
)
def linger_0(run: Run) -> None:
    broker = run.broker()
    raw.create_topics(broker.address, {"paced": 1})
    flow = clients.PacedFlow(broker.bootstrap, "paced", per_second=run.size(1_000, 100))
    flow.open()
    flow.run(run.size(5.0, 0.3))
    for _ in range(run.repeats):
        with run.used(broker) as used:
            result = flow.run(run.size(10.0, 0.5))
        run.record("CPU", used.cpu / len(result.latencies) * 1e6)
        run.record("p50", percentile(result.latencies, 0.5) * 1e3)
        run.record("p99", percentile(result.latencies, 0.99) * 1e3)
    flow.close()
