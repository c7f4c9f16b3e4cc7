"""audit: do a topic and its archive, or two topics, hold the same records?

Each side is reduced, partition by partition and in offset order, to blocks of records: how many,
from which offset to which, how many offsets twice, how many missing, and a sum of hashes over key,
value, headers and timestamp, each mixed with the record's place. Where blocks differ, their records
are compared one by one and each difference gets a name, and an explanation where there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ottla.spark.cluster import Cluster, Range
from ottla.spark.errors import JobError
from ottla.spark.records import digest, read_ranges

BLOCK = 10_000  # records; differences are looked for within blocks of this size
EXAMPLES = 20


@dataclass
class Side:
    """One of the two things that are compared."""

    name: str
    rows: DataFrame
    bounds: dict[
        int, tuple[int, int]
    ]  # by partition: first offset it could hold, and past the last
    compacted: bool = False
    lost: dict[int, list[list[int]]] = field(default_factory=dict)
    all_rows: Callable[[], DataFrame] | None = None  # aborted records too


@dataclass
class PartitionSide:
    """What one side holds of one partition."""

    records: int = 0
    first: int | None = None
    last: int | None = None
    duplicates: int = 0
    missing_offsets: int = 0
    hash: str = "0" * 32  # 128 bits in hexadecimal: the sums of both hashes of all records
    gaps: dict[str, int] = field(default_factory=dict)


@dataclass
class PartitionAudit:
    """One partition on both sides. `differences` are not explained; `explained` are, by reason."""

    partition: int
    left: PartitionSide
    right: PartitionSide
    differences: dict[str, int] = field(default_factory=dict)
    explained: dict[str, int] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        return not self.differences


@dataclass
class Audit:
    """The result; `examples` are some of the differences, as rows."""

    left: str
    right: str
    align: str
    partitions: list[PartitionAudit]
    examples: list[dict[str, Any]]

    @property
    def same(self) -> bool:
        return all(partition.same for partition in self.partitions)

    @property
    def records(self) -> int:
        return sum(partition.left.records for partition in self.partitions)


def topic_side(
    spark: SparkSession,
    cluster: Cluster,
    topic: str,
    settings: Mapping[str, str] | None = None,
) -> Side:
    """All committed records that a topic holds now."""
    offsets = cluster.offsets(topic)
    ranges = [Range(topic, p, start, end) for p, (start, end) in offsets.items()]

    def rows(committed: bool) -> DataFrame:
        return read_ranges(spark, cluster.bootstrap, ranges, committed=committed, settings=settings)

    return Side(
        f"topic {topic} at {cluster.bootstrap}",
        rows(True),
        offsets,
        compacted="compact" in cluster.configs(topic).get("cleanup.policy", ""),
        all_rows=lambda: rows(False),
    )


def archive_side(spark: SparkSession, store: Any, topic: str, path: str) -> Side:
    """All records of a topic in an archive, as of its last commit."""
    partitions = store.state().partitions.get(topic)
    if partitions is None:
        raise JobError(f"--archive {path}: holds no topic {topic}")
    return Side(
        f"archive {path} of {topic}",
        store.read(spark, topic),
        {p: (a.start, a.next) for p, a in partitions.items()},
        lost={p: a.lost for p, a in partitions.items()},
    )


def audit(
    left: Side, right: Side, *, align: str, stage: Callable[[str], None] = lambda text: None
) -> Audit:
    """Compare. `align` is "offsets" or "order"; `stage` hears what is being done."""
    if align == "offsets":
        _cut_to_common(left, right)
    stage(f"reading {left.name}")
    left_blocks = blocks(left.rows, align)
    stage(f"reading {right.name}")
    right_blocks = blocks(right.rows, align)
    partitions = sorted({p for p, _ in left_blocks} | {p for p, _ in right_blocks})
    result = Audit(left.name, right.name, align, [], [])
    for p in partitions:
        row = PartitionAudit(p, _total(left_blocks, p), _total(right_blocks, p))
        result.partitions.append(row)
    _explain_gaps(result, left, right, stage)
    _note_beyond(result, left, right)
    differing = sorted(
        key
        for key in left_blocks.keys() | right_blocks.keys()
        if _fingerprint(left_blocks.get(key)) != _fingerprint(right_blocks.get(key))
    )
    if differing:
        stage(f"comparing {len(differing)} blocks record by record")
        _drill(result, left, right, align, differing)
    for partition in result.partitions:
        for side, name in ((partition.left, left.name), (partition.right, right.name)):
            if side.duplicates:
                partition.differences[f"offsets twice in {name}"] = side.duplicates
    return result


def placed(rows: DataFrame, align: str) -> DataFrame:
    """partition, offset, previous offset, place (offset, or number in the partition), h1, h2."""
    order = Window.partitionBy("partition").orderBy("offset")
    hashed = rows.select("partition", "offset", *digest())
    number = (F.row_number().over(order) - 1).cast("long")
    return hashed.withColumns(
        {
            "previous": F.lag("offset").over(order),
            "place": F.col("offset") if align == "offsets" else number,
        }
    )


def blocks(rows: DataFrame, align: str) -> dict[tuple[int, int], Any]:
    """Figures of each block of each partition, by (partition, place / BLOCK)."""
    gap = F.col("offset") - F.col("previous") - 1
    table = (
        placed(rows, align)
        .groupBy("partition", F.floor(F.col("place") / BLOCK).alias("block"))
        .agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.sum(F.when(gap < 0, 1).otherwise(0)).alias("duplicates"),
            F.sum(F.greatest(gap, F.lit(0))).alias("missing"),
            # The sum of 64-bit hashes as decimals: it cannot overflow and any order gives the same.
            *(_sum(name) for name in ("h1", "h2")),
        )
    )
    return {(row["partition"], row["block"]): row for row in table.collect()}


def _sum(name: str) -> Column:
    mixed = F.xxhash64(F.col("place"), F.col(name))
    return F.sum(mixed.cast("decimal(38,0)")).alias(name)


def _fingerprint(block: Any) -> object:
    return None if block is None else (block["records"], block["h1"], block["h2"])


def _total(table: dict[tuple[int, int], Any], partition: int) -> PartitionSide:
    own = [block for (p, _), block in table.items() if p == partition]
    if not own:
        return PartitionSide()
    return PartitionSide(
        records=sum(block["records"] for block in own),
        first=min(block["first"] for block in own),
        last=max(block["last"] for block in own),
        duplicates=sum(block["duplicates"] for block in own),
        missing_offsets=sum(block["missing"] or 0 for block in own),
        hash="".join(f"{sum(int(block[h]) for block in own) % 2**64:016x}" for h in ("h1", "h2")),
    )


def _cut_to_common(left: Side, right: Side) -> None:
    """Only offsets that both could hold can be compared; the rest is told by `_note_beyond`."""
    inside = F.lit(False)
    for p in left.bounds.keys() & right.bounds.keys():
        start = max(left.bounds[p][0], right.bounds[p][0])
        end = min(left.bounds[p][1], right.bounds[p][1])
        offset = F.col("offset")
        inside = inside | ((F.col("partition") == p) & (offset >= start) & (offset < end))
    for side in (left, right):
        side.rows = side.rows.where(inside)


def _note_beyond(result: Audit, left: Side, right: Side) -> None:
    if result.align != "offsets":
        return
    known = {partition.partition: partition for partition in result.partitions}
    for p in sorted(left.bounds.keys() | right.bounds.keys()):
        row = known.get(p)
        if row is None:
            row = PartitionAudit(p, PartitionSide(), PartitionSide())
            result.partitions.append(row)
        for one, other in ((left, right), (right, left)):
            start, end = one.bounds.get(p, (0, 0))
            other_start, other_end = other.bounds.get(p, (0, 0))
            early = min(end, other_start) - start
            late = end - max(start, other_end)
            if early > 0 and start < other_start:
                row.explained[f"offsets before the start of {other.name}"] = early
            if late > 0 and end > other_end:
                row.explained[f"offsets not yet in {other.name}"] = late
    result.partitions.sort(key=lambda row: row.partition)


def _explain_gaps(result: Audit, left: Side, right: Side, stage: Callable[[str], None]) -> None:
    """Offsets without a record between the first and the last one: what became of them."""
    for side, which in ((left, "left"), (right, "right")):
        figures = {row.partition: getattr(row, which) for row in result.partitions}
        if not any(figure.missing_offsets for figure in figures.values()):
            continue
        aborted: dict[int, int] = {}
        if side.all_rows is not None:
            stage(f"explaining the gaps of {side.name}")
            aborted = _aborted(side, figures)
        for partition, figure in figures.items():
            left_over = figure.missing_offsets
            for reason, count in (
                ("lost before they were archived", _lost(side, partition, figure)),
                ("aborted transactions", aborted.get(partition, 0)),
            ):
                if count:
                    figure.gaps[reason] = count
                    left_over -= count
            if left_over > 0:
                figure.gaps[_rest(side)] = left_over


def _rest(side: Side) -> str:
    if side.all_rows is None:
        return "without a committed record in the topic when they were archived"
    return "compacted, or transaction markers" if side.compacted else "transaction markers"


def _lost(side: Side, partition: int, figure: PartitionSide) -> int:
    if figure.first is None or figure.last is None:
        return 0
    inside = (
        min(end, figure.last + 1) - max(start, figure.first)
        for start, end in side.lost.get(partition, ())
    )
    return sum(size for size in inside if size > 0)


def _aborted(side: Side, figures: dict[int, PartitionSide]) -> dict[int, int]:
    """Records in the gaps that readers of uncommitted data still see."""
    assert side.all_rows is not None
    ends = F.lit(False)
    for partition, figure in figures.items():
        if figure.first is not None and figure.last is not None and figure.missing_offsets:
            within = F.col("offset").between(figure.first, figure.last)
            ends = ends | ((F.col("partition") == partition) & within)
    counted = side.all_rows().where(ends).groupBy("partition").count()
    return {
        row["partition"]: row["count"] - figures[row["partition"]].records
        for row in counted.collect()
    }


def _drill(
    result: Audit,
    left: Side,
    right: Side,
    align: str,
    differing: list[tuple[int, int]],
) -> None:
    """Compare the records of these blocks one by one."""
    spark = left.rows.sparkSession
    wanted = spark.createDataFrame(differing, "partition int, block long")

    def side(rows: DataFrame, name: str) -> DataFrame:
        at = placed(rows, align).withColumn("block", F.floor(F.col("place") / BLOCK))
        # A semi join with a small table: few blocks differ, or something is badly wrong.
        return at.join(F.broadcast(wanted), ["partition", "block"], "semi").select(
            "partition",
            "place",
            F.col("offset").alias(f"{name}_offset"),
            F.struct("h1", "h2").alias(f"{name}_hash"),
        )

    both = side(left.rows, "left").join(side(right.rows, "right"), ["partition", "place"], "full")
    kind = (
        F.when(F.col("left_offset").isNull(), "only right")
        .when(F.col("right_offset").isNull(), "only left")
        .when(F.col("left_hash") != F.col("right_hash"), "other content")
    )
    differences = both.withColumn("kind", kind).where("kind IS NOT NULL").cache()
    rows = {row.partition: row for row in result.partitions}
    try:
        for found in differences.groupBy("partition", "kind").count().collect():
            _name(rows[found["partition"]], found["kind"], found["count"], left, right, align)
        some = differences.select("partition", "place", "left_offset", "right_offset", "kind")
        unexplained = [p for p, row in rows.items() if row.differences]
        if unexplained:
            some = some.where(F.col("partition").isin(unexplained)).orderBy("partition", "place")
            result.examples = [row.asDict() for row in some.limit(EXAMPLES).collect()]
    finally:
        differences.unpersist()


def _name(row: PartitionAudit, kind: str, count: int, left: Side, right: Side, align: str) -> None:
    """A difference is explained when compaction has removed it from one side since."""
    lacking = {"only left": right, "only right": left}.get(kind)
    if lacking is not None and lacking.compacted and align == "offsets":
        row.explained[f"compacted away in {lacking.name}"] = count
        return
    lost = 0
    if lacking is not None and align == "offsets":
        figure = row.left if lacking is right else row.right
        lost = min(count, _lost(lacking, row.partition, figure))
        if lost:
            row.explained[f"lost before they were archived in {lacking.name}"] = lost
    names: Counter[str] = Counter(row.differences)
    if lacking is None:
        names["records with other content"] += count
    elif count > lost:
        names[f"records missing in {lacking.name}"] += count - lost
    row.differences = dict(names)
