"""backfill: what the archive holds first, then the live topic from the exact next offset.

Where one ends and the other begins is fixed at the first start, in a note beside the checkpoint.
Both parts go through the same function, as batches with numbers that do not change when a batch is
repeated: -1 for the archive, 0, 1, 2 ... for the stream.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.spark.cluster import Cluster
from ottla.spark.errors import JobError
from ottla.spark.layout import sync, write_atomically
from ottla.spark.records import COLUMNS, connector_options

ARCHIVE_BATCH = -1
Sink = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class BackfillOptions:
    """What `ottla-spark backfill` takes; `batch_size` is records of one micro-batch."""

    topic: str
    checkpoint: str
    follow: bool = False
    batch_size: int = 1_000_000
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Backfilled:
    """Records that this run handed over."""

    archived: int = 0
    live: int = 0


def archive_then_stream(
    spark: SparkSession,
    cluster: Cluster,
    store: Any,
    options: BackfillOptions,
    handover: Mapping[int, int] | None = None,
) -> tuple[DataFrame, DataFrame, dict[int, int]]:
    """A batch of what the archive holds, a stream of everything behind it, and the offsets at which
    the stream begins: the archive's next ones, or those of an earlier call (`handover`).

    Both have the connector's columns. Raises JobError when the topic has lost what lies between."""
    reached = dict(handover or store.state().next_offsets(options.topic))
    if not reached:
        raise JobError(f"--topic {options.topic}: not in the archive")
    offsets = cluster.offsets(options.topic)
    # A partition that is not in the archive is read from its start.
    starts = {p: reached.get(p, start) for p, (start, _) in offsets.items()}
    batch = store.read(spark, options.topic).select(*COLUMNS.fieldNames())
    batch = batch.where(
        " OR ".join(f"(partition = {p} AND offset < {n})" for p, n in reached.items())
    )
    stream = (
        spark.readStream.format("kafka")
        .options(**connector_options(cluster.bootstrap, options.settings))
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", options.topic)
        .option(
            "startingOffsets", json.dumps({options.topic: {str(p): n for p, n in starts.items()}})
        )
        .option("maxOffsetsPerTrigger", str(options.batch_size))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .load()
        .select(*COLUMNS.fieldNames())
    )
    return batch, stream, starts


def backfill(
    spark: SparkSession,
    cluster: Cluster,
    store: Any,
    sink: Sink,
    options: BackfillOptions,
    progress: Callable[[int], None] = lambda done: None,
    started: Callable[[StreamingQuery], None] = lambda query: None,
) -> Backfilled:
    """Hand all of it to `sink(rows, batch number)`, which may be called again for a batch after a
    crash and must then replace what it wrote. Raises JobError."""
    folder = Path(options.checkpoint).absolute()
    note = folder / "handover.json"
    known = json.loads(note.read_text()) if note.exists() else None
    if known is not None and known["topic"] != options.topic:
        raise JobError(
            f"--checkpoint {options.checkpoint}: belongs to a backfill of {known['topic']}"
        )
    handover = None if known is None else {int(p): n for p, n in known["starts"].items()}
    batch, stream, starts = archive_then_stream(spark, cluster, store, options, handover)
    done = Backfilled()
    if known is None:
        _check_start(cluster, options.topic, starts)
        known = {"topic": options.topic, "starts": starts, "archive done": False}
        write_atomically(note, known)
    if not known["archive done"]:
        _check_start(cluster, options.topic, starts)
        sink(batch, ARCHIVE_BATCH)
        done.archived = batch.count()
        write_atomically(note, known | {"archive done": True})
        progress(done.archived)

    def each(rows: DataFrame, number: int) -> None:
        sink(rows, number)

    writer = stream.writeStream.foreachBatch(each).option(
        "checkpointLocation", (folder / "stream").as_uri()
    )
    query = (
        writer.trigger(processingTime="1 second")
        if options.follow
        else writer.trigger(availableNow=True)
    ).start()
    started(query)
    seen = -1
    while True:
        ended = _ended(query)
        for report in query.recentProgress:
            if report["batchId"] > seen:
                seen = report["batchId"]
                done.live += report["numInputRows"]
                progress(done.archived + done.live)
        if ended:
            return done


def _ended(query: StreamingQuery) -> bool:
    try:
        return bool(query.awaitTermination(1))
    except (PySparkException, Py4JError) as error:
        raise JobError(f"the stream failed; the same command goes on: {error}") from error


def _check_start(cluster: Cluster, topic: str, starts: Mapping[int, int]) -> None:
    for partition, (start, end) in cluster.offsets(topic).items():
        if partition not in starts:
            continue
        if starts[partition] < start:
            raise JobError(
                f"{topic}-{partition}: the archive ends before offset {starts[partition]}, the "
                f"topic begins at {start}: what lies between has been deleted. Run `ottla-spark "
                "archive --allow-gaps` to accept that"
            )
        if starts[partition] > end:
            raise JobError(
                f"{topic}-{partition} ends at {end}, but the archive reaches {starts[partition]}: "
                "is this the cluster that was archived?"
            )


def folder_sink(path: str) -> Sink:
    """Parquet below `path`, a folder for each batch, which appears complete or not at all."""
    root = Path(path).absolute()

    def write(rows: DataFrame, number: int) -> None:
        final = root / f"batch={number}"
        partial = root / f"_partial-{number}"
        if final.exists():
            return  # complete: a repeat of the same batch
        rows.write.mode("overwrite").parquet(partial.as_uri())
        partial.rename(final)
        sync(root)

    for left in root.glob("_partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    return write


def topic_sink(bootstrap: str, topic: str, settings: Mapping[str, str]) -> Sink:
    """Spark's own sink: key, value, headers and partition; at least once, its own timestamps."""

    def write(rows: DataFrame, number: int) -> None:
        (
            rows.select("key", "value", "headers", "partition")
            .write.format("kafka")
            .options(**connector_options(bootstrap, settings))
            .option("topic", topic)
            .option("includeHeaders", "true")
            .save()
        )

    return write
