"""The measured loop that the rows of small requests share."""

from __future__ import annotations

from collections.abc import Sequence

from bench import raw
from bench.blast import blast
from bench.raw import Check
from bench.run import Run, percentile
from bench.targets import Broker


def measure(
    run: Run, broker: Broker, load: Sequence[bytes], check: Check, *, count: str, depth: int = 1
) -> None:
    """Warm up (8 s the first time: a JVM needs it); record CPU, `count` per second, p50, p99."""
    with raw.connect(broker.address) as connection:
        for frame in load:
            raw.until_good(connection, frame, check)
    for number in range(run.repeats):
        result = blast(
            broker.address,
            load,
            check,
            seconds=run.size(5.0, 0.3),
            warm_up=run.size(1.0 if number else 8.0, 0.1),
            depth=depth,
            cpu=broker.meter.cpu,
        )
        run.record("CPU", result.cpu / max(1, result.requests) * 1e6)
        run.record(count, result.requests / result.seconds)
        run.record("p50", percentile(result.latencies, 0.5) * 1e3)
        run.record("p99", percentile(result.latencies, 0.99) * 1e3)
