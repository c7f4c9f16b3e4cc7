"""archive: topics to Parquet or Delta, each record exactly once, whatever is killed on the way.

The archive itself says how far it has come; there is no checkpoint beside it that could be lost or
belong to another archive. docs/spark/jobs.md tells what is true when.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ottla.spark.cluster import Cluster, Range
from ottla.spark.errors import JobError
from ottla.spark.layout import Archived, State
from ottla.spark.records import connector_options, read_ranges
from ottla.spark.store import ParquetStore, Plan
from ottla.spark.values import ValueSchema, dead_letters, parse

ATTEMPTS = 5  # of one batch, while brokers and executors come back


@dataclass(frozen=True)
class ArchiveOptions:
    """What `ottla-spark archive` takes; sizes are records."""

    topics: list[str]
    pattern: str | None = None
    batch_size: int = 2_000_000
    committed: bool = True
    allow_gaps: bool = False
    follow: float | None = None
    schema: ValueSchema | None = None
    dead_letter_topic: str | None = None
    compression: str = "zstd"
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Done:
    """What one run has archived."""

    records: int = 0
    batches: int = 0
    recovered: bool = False


class Store(Protocol):
    """Where the records go: `ottla.spark.store` or `ottla.spark.delta_store`."""

    def writing(self) -> AbstractContextManager[None]: ...
    def state(self) -> State: ...
    def pending(self) -> Plan | None: ...
    def write(
        self, plan: Plan, rows: DataFrame, compression: str, seen: Callable[[DataFrame], None]
    ) -> int:
        """Make the batch part of the archive, once, with `seen` called on its rows before."""
        ...


Progress = Callable[[int, int], None]


def archive(
    spark: SparkSession,
    cluster: Cluster,
    store: Store,
    options: ArchiveOptions,
    progress: Progress = lambda done, waiting: None,
    stop: Callable[[], bool] = lambda: False,
) -> Done:
    """Archive what the topics hold now; with `follow`, look again that many seconds later, until
    `stop`. `progress` gets records archived so far and offsets that wait. Raises JobError."""
    done = Done()
    plan = store.pending()
    if plan is not None:
        done.recovered = True
        done.records += _carry_out(spark, cluster, store, plan, options)
        done.batches += 1
    while not stop():
        plan, waiting = _next_plan(cluster, store.state(), options)
        progress(done.records, waiting)
        if plan is not None:
            done.records += _carry_out(spark, cluster, store, plan, options)
            done.batches += 1
        elif options.follow is None:
            break
        else:
            time.sleep(options.follow)
    return done


def _carry_out(
    spark: SparkSession, cluster: Cluster, store: Store, plan: Plan, options: ArchiveOptions
) -> int:
    """One batch, tried again while the broker is away: a repeat cannot double anything."""

    def seen(rows: DataFrame) -> None:
        if options.schema is not None and options.dead_letter_topic is not None:
            connector = connector_options(cluster.bootstrap, options.settings)
            sink = dead_letters(rows).write.format("kafka").options(**connector)
            sink.option("topic", options.dead_letter_topic).save()

    for attempt in range(1, ATTEMPTS + 1):
        rows = read_ranges(
            spark,
            cluster.bootstrap,
            plan.ranges,
            committed=options.committed,
            settings=options.settings,
        )
        if options.schema is not None:
            rows = parse(rows, options.schema)
        try:
            return store.write(plan, rows, options.compression, seen)
        except (PySparkException, Py4JError) as error:
            # The broker may be away; if it is gone for good, this says so after its patience.
            _check_still_there(cluster, plan)
            if attempt == ATTEMPTS:
                raise JobError(f"the batch failed {ATTEMPTS} times, at last: {error}") from error
    raise AssertionError("unreachable")


def _check_still_there(cluster: Cluster, plan: Plan) -> None:
    for topic in sorted({part.topic for part in plan.ranges}):
        offsets = cluster.offsets(topic)
        for part in plan.ranges:
            if part.topic == topic and part.start < offsets[part.partition][0]:
                raise JobError(
                    f"{topic}-{part.partition}: offsets {part.start} to "
                    f"{offsets[part.partition][0] - 1} of a batch that had begun have been deleted "
                    "from the topic; remove the file in _ottla/plans of the archive and run again "
                    "with --allow-gaps"
                )


def _next_plan(cluster: Cluster, state: State, options: ArchiveOptions) -> tuple[Plan | None, int]:
    """The next batch, if there is anything to do, and how many offsets wait in all."""
    topics = _topics(cluster, options)
    after = copy.deepcopy(state)
    _check_cluster(after, cluster)
    waiting: list[Range] = []
    for topic in topics:
        _check_topic(after, cluster, topic)
        offsets = cluster.offsets(topic, committed=options.committed)
        waiting += backlog(after, topic, offsets, allow_gaps=options.allow_gaps)
    ranges = share(waiting, options.batch_size)
    if not ranges:
        return None, 0
    for part in ranges:
        after.partitions[part.topic][part.partition].next = part.end
    after.commit += 1
    return Plan(ranges, after), sum(part.size for part in waiting)


def _topics(cluster: Cluster, options: ArchiveOptions) -> list[str]:
    if options.pattern is None:
        return options.topics
    pattern = topic_pattern(options.pattern)
    names = [n for n in cluster.topic_names() if pattern.fullmatch(n) and n[:2] != "__"]
    return sorted({*options.topics, *names} - {options.dead_letter_topic or ""})


def topic_pattern(text: str) -> re.Pattern[str]:
    """Raises JobError."""
    try:
        return re.compile(text)
    except re.error as error:
        raise JobError(f"--pattern {text}: {error}") from error


def _check_cluster(state: State, cluster: Cluster) -> None:
    cluster_id = cluster.cluster_id()
    if state.cluster_id not in ("", cluster_id):
        raise JobError(
            f"--bootstrap-server {cluster.bootstrap} is cluster {cluster_id}, but the archive is "
            f"one of cluster {state.cluster_id}: use another --archive"
        )
    state.cluster_id = cluster_id


def _check_topic(state: State, cluster: Cluster, topic: str) -> None:
    topic_id, _ = cluster.describe(topic)
    if state.topic_ids.get(topic, topic_id) != topic_id:
        raise JobError(
            f"--topic {topic} has been deleted and made again since it was archived: its offsets "
            "mean other records now. Use another --archive for the new one"
        )
    state.topic_ids[topic] = topic_id


def backlog(
    state: State, topic: str, offsets: Mapping[int, tuple[int, int]], *, allow_gaps: bool
) -> list[Range]:
    """What waits in a topic, given log start and end of each partition. New partitions and, with
    `allow_gaps`, offsets that were deleted before they were archived are noted in the state.

    Raises JobError for such offsets otherwise, and for a log that ends before what is archived."""
    known = state.partitions.setdefault(topic, {})
    waiting = []
    for partition, (start, end) in sorted(offsets.items()):
        archived = known.setdefault(partition, Archived(start, start))
        if end < archived.next:
            raise JobError(
                f"{topic}-{partition} ends at {end}, but {archived.next} is archived: the broker "
                "has lost records, or is another one. Nothing was written; compare with "
                "`ottla-spark audit`"
            )
        if start > archived.next:
            if not allow_gaps:
                raise JobError(
                    f"{topic}-{partition}: offsets {archived.next} to {start - 1} were deleted "
                    "before they were archived. --allow-gaps goes on at the log start and notes "
                    "the gap in the archive; a longer retention.ms avoids it"
                )
            archived.lost.append([archived.next, start])
            archived.next = start
        if end > archived.next:
            waiting.append(Range(topic, partition, archived.next, end))
    return waiting


def share(waiting: list[Range], most: int) -> list[Range]:
    """At most about `most` offsets of what waits, each partition in proportion to its backlog, so
    that all of them move through time together."""
    total = sum(part.size for part in waiting)
    if total <= most:
        return waiting
    return [
        Range(
            part.topic, part.partition, part.start, part.start + max(1, part.size * most // total)
        )
        for part in waiting
    ]


def open_store(spark: SparkSession, path: str, store_format: str) -> Store:
    """The archive at a path: "parquet" or "delta"."""
    if store_format == "delta":
        from ottla.spark.delta_store import DeltaStore

        return DeltaStore(spark, path)
    return ParquetStore(path)
