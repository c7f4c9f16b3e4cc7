"""replay: from an archive back into a topic, with partition, order, timestamps and headers kept.

What is replayed is fixed when it starts: a plan beside the archive names the target (by topic id),
its end offsets at that moment, and how far the archive reached. Started again with the same
options it finds the plan and goes on behind what the target holds. `ottla.spark.producing` writes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from operator import ge, lt
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.spark import producing
from ottla.spark.cluster import Cluster
from ottla.spark.errors import JobError
from ottla.spark.layout import write_atomically

# A copy must keep what it is given for as long as anyone may compare it.
TARGET_CONFIGS = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}


@dataclass(frozen=True)
class ReplayOptions:
    """What `ottla-spark replay` takes. `start`, `end`: see `bounds`; `rate`: records a second."""

    topic: str
    target: str
    start: str | None = None
    end: str | None = None
    rate: int | None = None
    append: bool = False
    compression: str = "lz4"
    topic_configs: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ReplayPlan:
    """What was fixed when the replay began."""

    topic: str
    target: str
    cluster_id: str
    topic_id: str
    start: str | None
    end: str | None
    base: dict[int, int]
    reached: dict[int, int]  # the archive's next offset of each partition
    expected: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayed:
    """Records sent by this run, and those that were there from earlier ones."""

    sent: int
    held: int


def replay(
    spark: SparkSession,
    cluster: Cluster,
    store: Any,
    options: ReplayOptions,
    folder: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Replayed:
    """Bring the target to hold exactly the chosen records, once. `folder` keeps the plan.

    Raises JobError; the target then holds a prefix of each partition, and the same call goes on.
    """
    plan, fresh = _plan(cluster, store, options, folder)
    rows = chosen(store.read(spark, options.topic), plan)
    if fresh:
        counts = rows.groupBy("partition").count().collect()
        plan.expected = {row["partition"]: row["count"] for row in counts}
        _save(plan, folder)
    total = sum(plan.expected.values())
    watch = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(cluster, plan, total, progress, watch), daemon=True
    )
    watcher.start()
    try:
        results = _send(rows, plan, cluster, options, resumed=not fresh)
    except (PySparkException, Py4JError) as error:
        raise JobError(f"--to {options.target}: {_reason(error)}") from error
    finally:
        watch.set()
        watcher.join()
    _verify(cluster, plan)
    progress(total, total)
    return Replayed(sum(r["sent"] for r in results), sum(r["held"] for r in results))


def chosen(rows: DataFrame, plan: ReplayPlan) -> DataFrame:
    """The rows of a plan: archived when it began, and within its range."""
    reached = [
        (F.col("partition") == p) & (F.col("offset") < offset) for p, offset in plan.reached.items()
    ]
    wanted = F.lit(False)
    for condition in reached:
        wanted = wanted | condition
    rows = rows.where(wanted)
    for text, option, inside in ((plan.start, "--from", ge), (plan.end, "--until", lt)):
        if text is None:
            continue
        edge = bounds(text, option)
        if isinstance(edge, int):
            rows = rows.where(inside(F.unix_millis("timestamp"), edge))
        else:
            for partition, offset in edge.items():
                within = inside(F.col("offset"), offset)
                rows = rows.where((F.col("partition") != partition) | within)
    return rows


def bounds(text: str, option: str) -> int | dict[int, int]:
    """`@TIME` (ISO 8601, UTC unless it says otherwise, or ms since 1970) as ms, or
    `PARTITION:OFFSET,...` as a dict; partitions not named are not bounded. Raises JobError."""
    try:
        if text.startswith("@"):
            if text[1:].lstrip("-").isdigit():
                return int(text[1:])
            moment = datetime.fromisoformat(text[1:])
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return round(moment.timestamp() * 1000)
        pairs = (part.split(":") for part in text.split(","))
        return {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise JobError(
            f"{option} {text}: expected @2013-07-01, @2013-07-01T12:00:00, @1372636800000 (ms) or "
            "0:1200,1:900 (partition:offset)"
        ) from None


def _plan(
    cluster: Cluster, store: Any, options: ReplayOptions, folder: Path
) -> tuple[ReplayPlan, bool]:
    """The plan of an earlier run with these options, or a new one (and then the target is made)."""
    cluster_id = cluster.cluster_id()
    path = _path(folder, cluster_id, options.target)
    if path.exists():
        raw = json.loads(path.read_text())
        for name in ("base", "reached", "expected"):
            raw[name] = {int(p): n for p, n in raw[name].items()}
        plan = ReplayPlan(**raw)
        _check_same(plan, cluster, options, path)
        return plan, False
    state = store.state()
    reached = state.next_offsets(options.topic)
    if not reached:
        known = ", ".join(sorted(state.partitions)) or "none"
        raise JobError(f"--topic {options.topic}: not in the archive, which has: {known}")
    if not cluster.exists(options.target):
        configs = TARGET_CONFIGS | dict(options.topic_configs)
        cluster.create(options.target, max(reached) + 1, configs)
    base = _check_target(cluster, options, max(reached) + 1)
    topic_id, _ = cluster.describe(options.target)
    return (
        ReplayPlan(
            *(options.topic, options.target, cluster_id, topic_id, options.start, options.end),
            base=base,
            reached=reached,
        ),
        True,
    )


def _check_same(plan: ReplayPlan, cluster: Cluster, options: ReplayOptions, path: Path) -> None:
    for option, planned, asked in (
        ("--topic", plan.topic, options.topic),
        ("--from", plan.start, options.start),
        ("--until", plan.end, options.end),
    ):
        if planned != asked:
            raise JobError(
                f"{option} {asked}: the replay into {plan.target} began with {planned}. Finish it "
                f"with the same options, or remove {path} to begin another"
            )
    topic_id, _ = cluster.describe(plan.target)
    if topic_id != plan.topic_id:
        raise JobError(
            f"--to {plan.target} has been deleted and made again since the replay began; remove "
            f"{path} to begin again"
        )


def _check_target(cluster: Cluster, options: ReplayOptions, partitions: int) -> dict[int, int]:
    """End offsets of a target that can take the records as they are. Raises JobError."""
    offsets = cluster.offsets(options.target, committed=False)
    configs = cluster.configs(options.target)
    if len(offsets) < partitions:
        raise JobError(
            f"--to {options.target} has {len(offsets)} partitions, {options.topic} had {partitions}"
        )
    if configs.get("message.timestamp.type") == "LogAppendTime":
        raise JobError(
            f"--to {options.target}: message.timestamp.type=LogAppendTime would replace the "
            "timestamps; set CreateTime"
        )
    if "compact" in configs.get("cleanup.policy", ""):
        raise JobError(
            f"--to {options.target}: cleanup.policy=compact would remove records while they are "
            "counted; replay into a topic with cleanup.policy=delete, then change it"
        )
    if not options.append and any(end > 0 for _, end in offsets.values()):
        raise JobError(f"--to {options.target} is not empty; --append starts behind what it holds")
    return {p: end for p, (_, end) in offsets.items()}


def _send(
    rows: DataFrame, plan: ReplayPlan, cluster: Cluster, options: ReplayOptions, *, resumed: bool
) -> list[Any]:
    """One task for some target partitions; within it, one partition after the other in order."""
    parts = max(1, len(plan.expected))
    at_once = min(parts, rows.sparkSession.sparkContext.defaultParallelism)
    target = producing.Target(
        plan.target,
        plan.base,
        {key: str(value) for key, value in cluster.settings.items()},
        options.compression,
        options.rate / at_once if options.rate else None,
        resumed=resumed,
    )
    return (
        rows.select(
            "partition", "offset", "key", "value", "headers", F.unix_millis("timestamp").alias("ms")
        )
        # By hash two partitions can share a task; by range each has its own.
        .repartitionByRange(parts, "partition")
        .sortWithinPartitions("partition", "offset")
        .drop("offset")
        .mapInArrow(partial(producing.write, target=target), producing.RESULT)
        .collect()
    )


def _watch(
    cluster: Cluster,
    plan: ReplayPlan,
    total: int,
    progress: Callable[[int, int], None],
    stop: threading.Event,
) -> None:
    """Show how far the target is, by its end offsets."""
    while not stop.wait(1.0):
        try:
            ends = cluster.offsets(plan.target, committed=False)
        except JobError:
            continue  # the tasks will say it
        progress(sum(end - plan.base[p] for p, (_, end) in ends.items() if p in plan.base), total)


def _verify(cluster: Cluster, plan: ReplayPlan) -> None:
    ends = cluster.offsets(plan.target, committed=False)
    for partition, count in plan.expected.items():
        held = ends[partition][1] - plan.base[partition]
        if held != count:
            raise JobError(
                f"--to {plan.target}: partition {partition} holds {held:,} records since the "
                f"replay began, not {count:,}: somebody else writes to it"
            )


def _path(folder: Path, cluster_id: str, target: str) -> Path:
    return folder / f"{cluster_id}.{target}.json"


def _save(plan: ReplayPlan, folder: Path) -> None:
    write_atomically(_path(folder, plan.cluster_id, plan.target), asdict(plan))


def _reason(error: Exception) -> str:
    """What our own task said, out of the pages that Spark wraps around it."""
    text = str(error)
    marker = "ReplayFailed: "
    return text.split(marker, 1)[1].splitlines()[0] if marker in text else text
