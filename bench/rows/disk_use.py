"""Bytes on disk for each byte of payload, at a rate that makes small batches."""

from __future__ import annotations

import time
from functools import partial

from bench import clients, disk, frames, raw
from bench.run import Figure, Run, row
from bench.targets import ALL

PER_SECOND = 10_000


def disk_use(run: Run, size: int, partitions: int) -> None:
    """10,000 records/s from one client with librdkafka's own linger (5 ms), 20 s."""
    broker = run.broker()
    raw.create_topics(broker.address, {"load": partitions})
    batch = frames.batch([b"x" * size])
    with raw.connect(broker.address) as connection:
        raw.produce_once(
            connection, frames.produce("load", dict.fromkeys(range(partitions), batch))
        )
    time.sleep(run.size(2.0, 0.0))
    taken, written = disk.bytes_on_disk(broker.data), broker.meter.written()
    with run.used(broker) as used:
        count = clients.produce_at_rate(
            broker.bootstrap, "load", clients.payloads(size), PER_SECOND, run.size(20.0, 0.3)
        )
        time.sleep(run.size(3.0, 0.0))
    payload = count * size
    run.record("CPU", used.cpu / count * 1e6)
    run.record("on disk", (disk.bytes_on_disk(broker.data) - taken) / payload)
    run.record("written", (broker.meter.written() - written) / payload)


for _partitions in (8, 100):
    for _size, _label in ((100, "100b"), (1024, "1k")):
        row(
            f"disk-{_label}-{_partitions}",
            f"{PER_SECOND} records/s of {_size} B into {_partitions} partitions",
            [
                Figure("CPU", "us/record"),
                Figure("on disk", "bytes a payload byte"),
                Figure("written", "bytes a payload byte"),
            ],
            ALL,
        )(partial(disk_use, size=_size, partitions=_partitions))
