"""PySpark's sinks and streams: Spark's own Kafka connector, and beside it the Python data source.

Spark takes every core it can get, so the broker's share is in its CPU, not in the speed. Batch
reads are in spark_source.py.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import clients, raw
from bench.run import Figure, Run, percentile, row
from bench.targets import ALL, KAFKA, OTTLA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 8
SIZE = 100
# Spark's name of the source, by the ending of the row's name.
SOURCES = {"connector": "kafka", "python": "ottla"}
TITLES = {"connector": "Spark's Kafka connector", "python": 'the Python source format("ottla")'}


def _spark() -> SparkSession:
    """One JVM for all rows of a run; it ends with the bench. Other rows run without PySpark."""
    from ottla.spark.session import session

    return session("bench")


def sink(run: Run, source: str) -> None:
    count = run.size(1_000_000, 1_000)
    broker = run.broker()
    spark = _spark()
    rows = spark.range(0, count, 1, 2).selectExpr(
        "CAST(id AS STRING) AS key", f"lpad(CAST(id AS STRING), {SIZE}, '.') AS value"
    )
    for number in range(run.repeats + 1):  # the first warms up
        topic = f"sink-{number}"
        raw.create_topics(broker.address, {topic: PARTITIONS})
        writer = rows.selectExpr("CAST(key AS BINARY) AS key", "CAST(value AS BINARY) AS value")
        out = writer.write.format(SOURCES[source]).mode("append")
        out = out.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic)
        with run.used(broker) as used:
            out.save()
        if number:
            run.record("CPU", used.cpu / count * 1e6)
            run.record("records", count / used.seconds)


class _Latencies:
    """How old records are when a micro-batch has them in hand, in ms."""

    def __init__(self) -> None:
        self.kept: list[float] = []
        self.counting = threading.Event()

    def take(self, batch: DataFrame, _: int) -> None:
        sent = [row.at for row in batch.selectExpr("unix_micros(timestamp) / 1e3 AS at").collect()]
        now = time.time() * 1e3
        if self.counting.is_set():
            self.kept += [now - at for at in sent]


def micro_batch(run: Run, source: str) -> None:
    """A stream without pauses between its batches; 1,000 records a second into two partitions."""
    broker = run.broker()
    raw.create_topics(broker.address, {"paced": 2})
    seen = _Latencies()
    stream = _spark().readStream.format(SOURCES[source]).option("subscribe", "paced")
    stream = stream.option("kafka.bootstrap.servers", broker.bootstrap)
    checkpoint = Path(run.folder) / "checkpoint"
    query = (
        stream.load()
        .writeStream.foreachBatch(seen.take)
        .trigger(processingTime="0 seconds")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    values, rate = clients.payloads(SIZE), run.size(1_000, 100)
    try:
        clients.produce_at_rate(broker.bootstrap, "paced", values, rate, run.size(20.0, 5.0))
        for _ in range(run.repeats):
            seen.kept = []
            seen.counting.set()
            with run.used(broker) as used:
                clients.produce_at_rate(
                    broker.bootstrap, "paced", values, rate, run.size(20.0, 3.0)
                )
            deadline = time.monotonic() + 60  # a busy machine may be in its first batch still
            while not seen.kept and query.isActive and time.monotonic() < deadline:
                time.sleep(0.05)
            seen.counting.clear()
            if not seen.kept:
                raise RuntimeError(f"no batch within the pass: {query.exception()}")
            run.record("CPU", used.cpu / (rate * used.seconds) * 1e6)
            run.record("p50", percentile(seen.kept, 0.5))
            run.record("p99", percentile(seen.kept, 0.99))
        query.processAllAvailable()  # stopped within a batch, Spark prints pages about it
    finally:
        query.stop()


for _source, _title in TITLES.items():
    row(
        f"spark-sink-{_source}",
        f"{_title}: write 1,000,000 records of {SIZE} B into {PARTITIONS} partitions",
        [Figure("CPU", "us/record"), Figure("records", "/s")],
        ALL,
    )(partial(sink, source=_source))
    row(
        f"spark-stream-{_source}",
        f"{_title}: 1,000 records/s through micro-batches, from produce() into the batch's hands",
        [Figure("CPU", "us/record"), Figure("p50", "ms"), Figure("p99", "ms")],
        (OTTLA, KAFKA),
    )(partial(micro_batch, source=_source))
