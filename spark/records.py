"""One record, one row: the columns that all jobs share, and how ranges of topics become rows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ottla.spark.cluster import Range
from ottla.spark.errors import JobError

HEADERS = T.ArrayType(
    T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
)
# What the connector gives, with its names and types.
COLUMNS = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("timestamp", T.TimestampType()),
        T.StructField("timestampType", T.IntegerType()),
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("headers", HEADERS),
    ]
)


def key_values(given: Iterable[str], option: str) -> dict[str, str]:
    """KEY=VALUE texts as a dict. Raises JobError naming the option."""
    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise JobError(f"{option} {text}: expected KEY=VALUE")
        pairs[key] = value
    return pairs


def connector_options(bootstrap: str, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Options of `format("kafka")`; `settings` are librdkafka's names, as everywhere in the jobs.

    Most are Java's too; user, password and the CA's file are said differently there."""
    java = dict(settings or {})
    user, password = java.pop("sasl.username", None), java.pop("sasl.password", None)
    if user is not None and password is not None:
        kind = "plain.Plain" if java.get("sasl.mechanism", "PLAIN") == "PLAIN" else "scram.Scram"
        quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password))
        java["sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{kind}LoginModule required "
            'username="{}" password="{}";'.format(*quoted)
        )
    if "ssl.ca.location" in java:
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.location"] = java.pop("ssl.ca.location")
    return {
        "kafka.bootstrap.servers": bootstrap,
        **{f"kafka.{key}": value for key, value in java.items()},
    }


def read_ranges(
    spark: SparkSession,
    bootstrap: str,
    ranges: Iterable[Range],
    *,
    committed: bool = True,
    settings: Mapping[str, str] | None = None,
) -> DataFrame:
    """Exactly these ranges of topics, one Spark task each, rows in offset order within a task.

    Offsets that hold no record (markers, aborted, compacted) give no row. An offset that is gone
    makes the query fail: which data may be lost is decided before, never here.
    """
    starts: dict[str, dict[str, int]] = defaultdict(dict)
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for part in ranges:
        if part.size > 0:
            starts[part.topic][str(part.partition)] = part.start
            ends[part.topic][str(part.partition)] = part.end
    if not starts:
        return spark.createDataFrame([], COLUMNS)
    return (
        spark.read.format("kafka")
        .options(**connector_options(bootstrap, settings))
        .option("kafka.isolation.level", "read_committed" if committed else "read_uncommitted")
        .option("assign", json.dumps({t: sorted(map(int, p)) for t, p in starts.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .load()
        .select(*COLUMNS.fieldNames())
    )


def digest(*, with_timestamp: bool = True) -> list[Column]:
    """Two 64-bit hashes, `h1` and `h2`, over key, value, headers and timestamp of a row.

    Null and empty differ, header order counts, and so does where one field ends and the next
    begins. They find what went wrong by itself; they do not keep out a forger.
    """
    # xxhash64 skips nulls and does not see lengths of arrays: both are hashed beside the values.
    headers = F.coalesce(F.col("headers"), F.array().cast(HEADERS))
    parts = [
        F.col("key").isNull(),
        F.col("key"),
        F.col("value").isNull(),
        F.col("value"),
        F.size(headers),
        F.transform(headers, lambda h: F.struct(h["key"], h["value"].isNull(), h["value"])),
    ]
    if with_timestamp:
        parts.append(F.unix_millis("timestamp"))
    # The second hash starts from another seed: a constant in front of everything else.
    return [
        F.xxhash64(*parts).alias("h1"),
        F.xxhash64(F.lit(0x6F74746C61), *parts).alias("h2"),
    ]
