"""Transactions: many a second, what it costs to read them, and a partition full of aborted ones."""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition

from bench import clients, raw
from bench.run import Figure, NotServed, Run, percentile, row
from bench.targets import ALL, KAFKA, OTTLA, Broker
from bench.transactions import END_TXN, Load

PRODUCERS = 16
GB = 1e9


def transactional(run: Run) -> Broker:
    """A running broker. Raises NotServed when it has no transactions."""
    broker = run.broker()
    if END_TXN not in raw.served(broker.address):
        raise NotServed("transactions are not served")
    return broker


def transactions(run: Run, records: int) -> None:
    """16 producers, a partition each, one transaction after the other; 100 B records."""
    broker = transactional(run)
    raw.create_topics(broker.address, {"load": PRODUCERS})
    load = Load(broker.address, "load", PRODUCERS, PRODUCERS, [b"x" * 100] * records)
    load.run(run.size(8.0, 0.1), broker.meter.cpu)
    for _ in range(run.repeats):
        result = load.run(run.size(5.0, 0.3), broker.meter.cpu)
        done = len(result.latencies)
        run.record("CPU", result.cpu / done * 1e6)
        run.record("transactions", done / result.seconds)
        run.record("p50", percentile(result.latencies, 0.5) * 1e3)
        run.record("p99", percentile(result.latencies, 0.99) * 1e3)
    load.close()


for _records in (5, 500):
    row(
        f"transactions-{_records}",
        f"{PRODUCERS} producers, transactions of {_records} records of 100 B in one partition each",
        [
            Figure("CPU", "us/transaction"),
            Figure("transactions", "/s"),
            Figure("p50", "ms"),
            Figure("p99", "ms"),
        ],
        ALL,
    )(partial(transactions, records=_records))


def _consume(broker: Broker, isolation: str, count: int) -> None:
    """All partitions of `load` from the beginning, until `count` records have come."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "bench-reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition("load", index, 0) for index in range(PARTITIONS)])
    end = time.perf_counter() + 600
    seen = 0
    while seen < count:
        messages = consumer.consume(min(10_000, count - seen), timeout=1.0)
        for message in messages:
            if error := message.error():
                raise RuntimeError(f"reading load: {error}")
        seen += len(messages)
        if time.perf_counter() > end:
            raise RuntimeError(f"{seen} of {count} records, {isolation}")
    consumer.close()


PARTITIONS = 8
A_TRANSACTION = 1_000


@row(
    "read-committed",
    f"1 KiB records in {PARTITIONS} partitions, written in transactions of {A_TRANSACTION:,}: "
    "read with and without read_committed",
    [
        Figure("committed CPU", "s/GB"),
        Figure("uncommitted CPU", "s/GB"),
        Figure("committed", "MB/s"),
        Figure("uncommitted", "MB/s"),
    ],
    (OTTLA, KAFKA),
)
def read_committed(run: Run) -> None:
    broker = transactional(run)
    raw.create_topics(broker.address, {"load": PARTITIONS})
    count = run.size(400_000, 2_000)
    values = clients.payloads(1024)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "writer",
            "linger.ms": 20,
            "log_level": 0,  # Kafka's coordinator is not there at once
        }
    )
    producer.init_transactions(60)
    for begin in range(0, count, A_TRANSACTION):
        producer.begin_transaction()
        for number in range(begin, begin + A_TRANSACTION):
            producer.produce("load", values[number % len(values)], partition=number % PARTITIONS)
            producer.poll(0)
        producer.commit_transaction(60)
    _consume(broker, "read_committed", count // 4)
    for _ in range(run.repeats):
        for isolation in ("committed", "uncommitted"):
            with run.used(broker) as used:
                _consume(broker, f"read_{isolation}", count)
            run.record(f"{isolation} CPU", used.cpu / (count * 1024 / GB))
            run.record(isolation, count * 1024 / used.seconds / 1e6)


@row(
    "aborted-10000",
    "10,000 aborted transactions of one record in a partition, one committed; a read_committed "
    "consumer reads from the beginning to it",
    [
        Figure("fetch CPU", "ms"),
        Figure("fetch", "ms"),
        Figure("abort CPU", "us/transaction"),
    ],
    (OTTLA, KAFKA),
)
def aborted(run: Run) -> None:
    broker = transactional(run)
    raw.create_topics(broker.address, {"load": 1})
    count = run.size(10_000, 100)
    aborting = Load(broker.address, "load", PRODUCERS, 1, [b"x" * 100], commit=False)
    result = aborting.run(600, broker.meter.cpu, at_most=count)
    aborting.close()
    run.record("abort CPU", result.cpu / count * 1e6)
    committing = Load(broker.address, "load", 1, 1, [b"x" * 100])
    committing.run(60, broker.meter.cpu, at_most=1)
    committing.close()
    for number in range(run.repeats + 1):
        with run.used(broker) as used:
            _to_the_committed(broker)
        if number:  # the first warms up
            run.record("fetch CPU", used.cpu * 1e3)
            run.record("fetch", used.seconds * 1e3)


def _to_the_committed(broker: Broker) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "bench-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("load", 0, 0)])
    message = consumer.poll(120)
    if message is None or message.error():
        raise RuntimeError(f"the committed record did not come: {message and message.error()}")
    consumer.close()
