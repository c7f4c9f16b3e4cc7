"""A batch read of Spark, through the Kafka connector and through the Python data source."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench import clients
from bench.run import Figure, Run, row
from bench.targets import KAFKA, OTTLA, Broker

PARTITIONS = 4
SIZE = 100


class Reader:
    """A Spark in a process of its own (bench/spark_reads.py): one read a line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self, broker: Broker, source: str, **options: str) -> int:
        """How many records were there. `__` in an option's name stands for a dot."""
        given = {name.replace("__", "."): value for name, value in options.items()}
        given |= {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "load"}
        return int(self.ask({"source": source, "options": given})["count"])

    def ask(self, wanted: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("Spark ended before it answered")
        return json.loads(line)


@contextmanager
def spark() -> Iterator[Reader]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.spark_reads"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Reader(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def measure(run: Run, ways: dict[str, tuple[str, dict[str, str]]], broker: Broker) -> None:
    """Each way reads all of it, in turn; the first turn warms up."""
    count = run.size(3_000_000, 20_000)
    # small segments, so that nearly all of it can be had from the disk
    topic = NewTopic("load", PARTITIONS, 1, config={"segment.bytes": str(16 << 20)})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([topic])["load"].result()
    clients.produce(broker.bootstrap, "load", clients.payloads(SIZE), count)
    with spark() as reader:
        for turn in range(run.repeats + 1):
            for name, (source, options) in ways.items():
                with run.used(broker) as used:
                    found = reader.read(broker, source, **options)
                if found != count:
                    raise RuntimeError(f"{name} read {found} of {count} records")
                if turn:
                    run.record(f"{name}, broker CPU", used.cpu / count * 1e6)
                    run.record(name, count / used.seconds / 1000)


WAYS: dict[str, tuple[str, dict[str, str]]] = {
    "connector": ("kafka", {}),
    "data source": ("ottla", {}),
}


def figures(*names: str) -> list[Figure]:
    costs = [Figure(f"{name}, broker CPU", "us/record") for name in names]
    return [*costs, *(Figure(name, "1000 records/s") for name in names)]


@row(
    "spark-source",
    f"Spark reads a batch of {SIZE} B values, {PARTITIONS} partitions, two cores: its Kafka"
    ' connector beside format("ottla")',
    figures("connector", "data source"),
    (OTTLA, KAFKA),
)
def spark_source(run: Run) -> None:
    measure(run, WAYS, run.broker())


@row(
    "spark-source-disk",
    "the same, with the data source reading sealed segments straight from the disk",
    figures("connector", "data source", "from disk"),
    (OTTLA,),
)
def spark_source_disk(run: Run) -> None:
    broker = run.broker()
    measure(run, WAYS | {"from disk": ("ottla", {"ottla__log__dir": str(broker.data)})}, broker)
