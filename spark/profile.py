"""profile: what is in a topic: rates over time, skew, sizes, lateness, what codecs would save."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import cramjam
from matplotlib import pyplot
from matplotlib.figure import Figure
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ottla.spark.cluster import Cluster, Range
from ottla.spark.errors import JobError
from ottla.spark.records import read_ranges
from ottla.spark.report import Report

QUANTILES = (0.5, 0.9, 0.99, 1.0)
TOP_KEYS = 20
BATCH_BYTES = 64 * 1024  # what a producer with some linger.ms puts into one compressed batch
PASSES = 5
_S, _MIN, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
WIDTHS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(_S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S, _MIN, 2 * _MIN, 5 * _MIN, 10 * _MIN),
    *(15 * _MIN, 30 * _MIN, _H, 2 * _H, 3 * _H, 6 * _H, 12 * _H, _D, 2 * _D, 4 * _D, 7 * _D),
)
CODECS: dict[str, Callable[[bytes], Any]] = {
    "gzip": cramjam.gzip.compress,
    "snappy": cramjam.snappy.compress,
    "lz4": cramjam.lz4.compress,
    "zstd": cramjam.zstd.compress,
}


@dataclass
class Profile:
    """Figures of one topic. Times in ms, sizes in bytes, quantiles in the order of QUANTILES."""

    topic: str
    records: int
    bytes: int
    first: int | None = None
    last: int | None = None
    rates: list[dict[str, int]] = field(default_factory=list)
    partitions: list[dict[str, int]] = field(default_factory=list)
    keys: int = 0
    without_key: int = 0
    top_keys: list[dict[str, Any]] = field(default_factory=list)
    sizes: dict[str, list[int]] = field(default_factory=dict)
    lateness: dict[str, list[int]] = field(default_factory=dict)
    codecs: dict[str, dict[str, float]] = field(default_factory=dict)


def profile(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    *,
    buckets: int = 100,
    sample: int = 20_000,
    settings: Mapping[str, str] | None = None,
    stage: Callable[[str], None] = lambda text: None,
) -> Profile:
    """Read the topic once and count. Raises JobError when there is no such topic."""
    offsets = cluster.offsets(topic)
    ranges = [Range(topic, p, start, end) for p, (start, end) in offsets.items()]
    rows = read_ranges(spark, cluster.bootstrap, ranges, settings=settings)
    facts = rows.select(
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("ms"),
        F.col("key").isNull().alias("no_key"),
        F.xxhash64("key").alias("key_hash"),
        F.substring("key", 1, 40).alias("key_start"),
        *(_size(name).alias(name) for name in ("key_bytes", "value_bytes", "header_bytes")),
    )
    facts = facts.withColumn("size", F.expr("key_bytes + value_bytes + header_bytes"))
    # Read through the network once; numbers are small, and spill to disk when they are not.
    facts = facts.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        stage(f"{topic}: reading")
        found = _totals(facts, topic)
        if found.records:
            stage(f"{topic}: counting")
            _count(facts, found, buckets)
    finally:
        facts.unpersist()
    if found.records:
        stage(f"{topic}: trying codecs")
        some = _sample_ranges(ranges, sample)
        found.codecs = codecs(read_ranges(spark, cluster.bootstrap, some, settings=settings))
    return found


def _size(name: str) -> Column:
    if name == "header_bytes":
        one = F.aggregate(
            F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>")),
            F.lit(0),
            lambda total, h: (
                total + F.octet_length(h["key"]) + F.coalesce(F.octet_length(h["value"]), F.lit(0))
            ),
        )
        return one
    return F.coalesce(F.octet_length(name.removesuffix("_bytes")), F.lit(0))


def _totals(facts: DataFrame, topic: str) -> Profile:
    row = facts.agg(
        F.count("*").alias("records"),
        F.sum("size").alias("bytes"),
        F.min("ms").alias("first"),
        F.max("ms").alias("last"),
        F.sum(F.col("no_key").cast("long")).alias("without_key"),
        F.approx_count_distinct(F.when(~F.col("no_key"), F.col("key_hash"))).alias("keys"),
        *(
            F.percentile_approx(name, list(QUANTILES), 10_000).alias(f"q_{name}")
            for name in ("key_bytes", "value_bytes", "header_bytes", "size")
        ),
    ).first()
    assert row is not None
    if not row["records"]:
        return Profile(topic, 0, 0)
    sizes = {name[2:]: list(row[name]) for name in row.asDict() if name.startswith("q_")}
    return Profile(
        topic,
        row["records"],
        row["bytes"],
        row["first"],
        row["last"],
        keys=row["keys"],
        without_key=row["without_key"],
        sizes=sizes,
    )


def _count(facts: DataFrame, found: Profile, buckets: int) -> None:
    assert found.first is not None
    assert found.last is not None
    width = bucket_width(found.last - found.first + 1, buckets)
    start = found.first - found.first % width
    bucket = F.floor((F.col("ms") - start) / width)
    rates = facts.groupBy(bucket.alias("b")).agg(
        F.count("*").alias("records"), F.sum("size").alias("bytes")
    )
    counted = {row["b"]: row for row in rates.collect()}
    found.rates = [
        {
            "from": start + b * width,
            "records": counted[b]["records"] if b in counted else 0,
            "bytes": counted[b]["bytes"] if b in counted else 0,
        }
        for b in range(max(counted) + 1)
    ]
    by_partition = facts.groupBy("partition").agg(
        F.count("*").alias("records"), F.sum("size").alias("bytes")
    )
    found.partitions = [row.asDict() for row in by_partition.orderBy("partition").collect()]
    top = (
        facts.where("NOT no_key")
        .groupBy("key_hash")
        .agg(F.count("*").alias("records"), F.first("key_start").alias("key"))
        .orderBy(F.desc("records"))
        .limit(TOP_KEYS)
    )
    found.top_keys = [
        {"key": bytes(r["key"]).decode(errors="backslashreplace"), "records": r["records"]}
        for r in top.collect()
    ]
    found.lateness = _lateness(facts)


def bucket_width(span_ms: int, buckets: int) -> int:
    """The shortest width that people count in and that needs no more than `buckets` of them."""
    for width in WIDTHS:
        if span_ms <= width * (buckets - 1):  # the first one begins before the first record
            return width
    days = WIDTHS[-1]
    return days * max(1, -(-span_ms // (days * max(1, buckets - 1))))


def _lateness(facts: DataFrame) -> dict[str, list[int]]:
    """How far a record lies behind the latest one before it: in its partition, and in the topic
    when all partitions are read in proportion, as a stream with maxOffsetsPerTrigger does."""
    order = Window.partitionBy("partition").orderBy("offset")
    latest = F.max("ms").over(order)
    number = F.row_number().over(order) / F.count("*").over(Window.partitionBy("partition"))
    rows = facts.select(
        "partition", "offset", "ms", (latest - F.col("ms")).alias("late"), number.alias("share")
    ).withColumn("step", F.floor(F.col("share") * 1000))
    own = rows.agg(F.percentile_approx("late", list(QUANTILES), 10_000).alias("q")).first()
    steps = rows.groupBy("step").agg(F.max("ms").alias("step_max"))
    # One row for each thousandth of the topic: small enough for one task.
    before = Window.orderBy("step").rowsBetween(Window.unboundedPreceding, -1)
    steps = steps.withColumn("reached", F.max("step_max").over(before)).select("step", "reached")
    behind = F.greatest(F.coalesce(F.col("reached") - F.col("ms"), F.lit(0)), F.lit(0))
    whole = (
        rows.join(F.broadcast(steps), "step")
        .agg(F.percentile_approx(behind, list(QUANTILES), 10_000).alias("q"))
        .first()
    )
    assert own is not None
    assert whole is not None
    return {"partition": list(own["q"]), "topic": list(whole["q"])}


def _sample_ranges(ranges: list[Range], sample: int) -> list[Range]:
    """Neighbouring records from the middle of each partition: codecs work on what lies together."""
    share = max(1, sample // max(1, len(ranges)))
    chosen = []
    for part in ranges:
        middle = part.start + max(0, part.size - share) // 2
        chosen.append(Range(part.topic, part.partition, middle, min(part.end, middle + share)))
    return chosen


def codecs(rows: DataFrame) -> dict[str, dict[str, float]]:
    """Compress the rows as a producer would, in batches of BATCH_BYTES: by codec, `ratio` (sizes
    before to after) and `mb_s` (millions of bytes for a second of this machine's CPU: the best of
    PASSES, after one batch that is not counted)."""
    records = rows.orderBy("partition", "offset").select("key", "value").toLocalIterator()
    batches, batch = [], bytearray()
    for row in records:
        batch += (row["key"] or b"") + (row["value"] or b"")
        if len(batch) >= BATCH_BYTES:
            batches.append(bytes(batch))
            batch.clear()
    if batch:
        batches.append(bytes(batch))
    size = sum(map(len, batches))
    found = {}
    for name, compress in CODECS.items() if size else ():
        compress(batches[0])
        after, seconds = 0, float("inf")
        for _ in range(PASSES):
            started = time.thread_time()
            after = sum(len(compress(one)) for one in batches)
            seconds = min(seconds, time.thread_time() - started)
        found[name] = {"ratio": size / after, "mb_s": size / max(seconds, 1e-6) / 1e6}
    return found


def write_report(profiles: list[Profile], path: str) -> None:
    """One page for all topics. Raises JobError."""
    if not profiles:
        raise JobError("--topic: nothing to report")
    report = Report("Profile of " + ", ".join(found.topic for found in profiles))
    for found in profiles:
        report.heading(found.topic)
        if not found.records:
            report.text("The topic holds no records.")
            continue
        _write_one(report, found)
    report.write(path)


def _write_one(report: Report, found: Profile) -> None:
    assert found.first is not None
    assert found.last is not None
    report.table(
        ("records", "bytes", "first (UTC)", "last (UTC)", "keys (about)", "without key"),
        [
            (
                found.records,
                found.bytes,
                _moment(found.first),
                _moment(found.last),
                found.keys,
                found.without_key,
            )
        ],
    )
    report.plot(_rates_plot(found), "records over time")
    head = ("", *(f"{q:.0%}" for q in QUANTILES[:-1]), "largest")
    report.table(head, [(name.replace("_", " "), *q) for name, q in found.sizes.items()])
    report.plot(_skew_plot(found), "records of partitions and of the busiest keys")
    report.text(
        "Lateness: how far records lie behind the latest one before them. A watermark shorter than "
        "the largest one drops records."
    )
    late = [(f"within the {n}", *map(_span, q)) for n, q in found.lateness.items()]
    report.table(head, late)
    rows = [(name, c["ratio"], round(c["mb_s"])) for name, c in found.codecs.items()]
    report.text(
        "Keys and values of a sample, compressed in batches of 64 KiB. Speed: MB for a second of "
        f"one core's time on this machine, the best of {PASSES} passes."
    )
    report.table(("codec", "times smaller", "MB/s"), rows)


def _rates_plot(found: Profile) -> Figure:
    figure, axes = pyplot.subplots(figsize=(9, 2.8))
    times = [r["from"] for r in found.rates]
    axes.step([_days(t) for t in times], [r["records"] for r in found.rates], where="post")
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"records in {_span(_width(times))}")
    axes.set_xlabel("UTC")
    axes.xaxis_date()
    figure.autofmt_xdate()
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _skew_plot(found: Profile) -> Figure:
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    left.bar(
        [str(p["partition"]) for p in found.partitions], [p["records"] for p in found.partitions]
    )
    left.set_xlabel("partition")
    left.set_ylabel("records")
    names = [k["key"] for k in found.top_keys]
    right.barh(range(len(names)), [k["records"] for k in found.top_keys])
    right.set_yticks(range(len(names)), names, fontsize=7)
    right.invert_yaxis()
    right.set_xlabel("records of the busiest keys")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def _days(ms: int) -> float:
    return ms / 86_400_000  # matplotlib's dates are days since 1970


def _width(times: list[int]) -> int:
    return min((b - a for a, b in pairwise(times)), default=1)


def _moment(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms / 1000))


def _span(ms: int) -> str:
    """A duration as people say it."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms} ms"
