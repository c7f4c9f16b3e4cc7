"""Bytes by the gigabyte: produce, fetch, and a consumer that starts a gigabyte behind."""

from __future__ import annotations

from functools import partial

from bench import clients, raw
from bench.run import Figure, Run, row
from bench.targets import ALL, KAFKA, OTTLA, Broker

GB = 1e9
PARTITIONS = 8
# Payload bytes of one measured pass. Small records cost the client most: fewer of them.
VOLUME = {100: 100_000_000, 1024: 400_000_000, 10_240: 800_000_000}
LABEL = {100: "100b", 1024: "1k", 10_240: "10k"}
# The aims for produce: plain and lz4 at 1 KiB; none was set for the other sizes.
PRODUCE_AIM = {(1024, "none"): 1.5, (1024, "lz4"): 1.0}


def _produce(run: Run, broker: Broker, topic: str, size: int, codec: str, volume: int) -> int:
    """One pass into a new topic; records its figures when it is a measured one."""
    raw.create_topics(broker.address, {topic: PARTITIONS})
    count = volume // size
    values = clients.payloads(size)
    with run.used(broker) as used:
        clients.produce(broker.bootstrap, topic, values, count, {"compression.type": codec})
    if topic != "warm-up":
        run.record("produce CPU", used.cpu / (count * size / GB))
        run.record("produce", count * size / used.seconds / 1e6)
    return count


def _fetch(run: Run, broker: Broker, topic: str, size: int, count: int) -> None:
    with run.used(broker) as used:
        clients.consume(broker.bootstrap, topic, PARTITIONS, count)
    if topic != "warm-up":
        run.record("fetch CPU", used.cpu / (count * size / GB))
        run.record("fetch", count * size / used.seconds / 1e6)


def bulk(run: Run, size: int, codec: str) -> None:
    broker = run.broker()
    volume = run.size(VOLUME[size], 2_000 * size)
    passes = [("warm-up", volume // 2), *((f"load-{n}", volume) for n in range(run.repeats))]
    for topic, wanted in passes:
        count = _produce(run, broker, topic, size, codec, wanted)
        _fetch(run, broker, topic, size, count)


for _codec, _label in (("none", "plain"), ("lz4", "lz4")):
    for _size in VOLUME:
        row(
            f"bulk-{LABEL[_size]}-{_label}",
            f"{_size} B values, {_label}, {PARTITIONS} partitions: produce, then fetch all",
            [
                Figure("produce CPU", "s/GB", aim=PRODUCE_AIM.get((_size, _codec))),
                Figure("fetch CPU", "s/GB", aim=0.5 if (_size, _codec) == (1024, "none") else None),
                Figure("produce", "MB/s"),
                Figure("fetch", "MB/s"),
            ],
            ALL,
        )(partial(bulk, size=_size, codec=_codec))


@row(
    "catch-up",
    "a new consumer reads 1 GB of 1 KiB records that lie in 8 partitions",
    [Figure("CPU", "s/GB", aim=0.5), Figure("speed", "MB/s")],
    (OTTLA, KAFKA),
)
def catch_up(run: Run) -> None:
    broker = run.broker()
    raw.create_topics(broker.address, {"load": PARTITIONS})
    count = run.size(1_000_000_000, 2_000_000) // 1024
    clients.produce(broker.bootstrap, "load", clients.payloads(1024), count)
    clients.consume(broker.bootstrap, "load", PARTITIONS, count // 10)
    for _ in range(run.repeats):
        with run.used(broker) as used:
            clients.consume(broker.bootstrap, "load", PARTITIONS, count)
        run.record("CPU", used.cpu / (count * 1024 / GB))
        run.record("speed", count * 1024 / used.seconds / 1e6)
