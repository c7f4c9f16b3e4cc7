"""What the jobs make of rows, without a broker."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from ottla.spark.audit import Side, audit
from ottla.spark.flights import FLIGHT, WEATHER, delays, parsed
from ottla.spark.profile import bucket_width, codecs
from ottla.spark.records import COLUMNS, digest
from ottla.spark.values import ValueSchema, dead_letters, parse

pytestmark = pytest.mark.timeout(600)

WHEN = datetime(2013, 1, 1, tzinfo=UTC)
AVRO = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
NULLABLE = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "n", "type": ["null", "long"], "default": None}],
}


def rows(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    made = [
        ("t", 0, n, WHEN + timedelta(milliseconds=n), 0, b"k", value, None)
        for n, value in enumerate(values)
    ]
    return spark.createDataFrame(made, COLUMNS)


def test_json_that_fits_is_parsed_and_the_rest_says_why(spark: SparkSession) -> None:
    found = parse(
        rows(spark, [b'{"n": 1}', b"{", None, b'{"n": "x"}', b'{"m": 2}']),
        ValueSchema("json", "n INT NOT NULL"),
    )
    bad = "the value is not JSON of the given schema"
    assert_df_equality(
        found.select("offset", "data.n", "error"),
        spark.createDataFrame(
            [
                (0, 1, None),
                (1, None, bad),
                (2, None, None),
                (3, None, bad),
                (4, None, "the value has no n"),
            ],
            "offset long, n int, error string",
        ),
        ignore_nullable=True,
        ignore_row_order=True,
    )


@pytest.mark.parametrize("schema", [AVRO, NULLABLE], ids=["required", "nullable"])
@pytest.mark.parametrize("framed", [False, True])
def test_avro_that_fits_is_parsed_and_the_rest_says_why(
    spark: SparkSession, schema: dict[str, object], framed: bool
) -> None:
    text = json.dumps(schema)
    prefix = b"\x00\x00\x00\x00\x01" if framed else b""
    source = spark.createDataFrame([(7,)], "n long").select(to_avro(F.struct("n"), text).alias("v"))
    good = source.collect()[0]["v"]
    # The second is cut short: a long whose next byte is missing, or a union branch without one.
    values = [
        prefix + bytes(good),
        prefix + b"\x02\xff" if schema is NULLABLE else prefix + b"\xff",
    ]
    kind = "avro-confluent" if framed else "avro"
    found = parse(rows(spark, [*values, None]), ValueSchema(kind, text)).sort("offset").collect()
    assert [row["data"] and row["data"]["n"] for row in found] == [7, None, None]
    assert [row["error"] for row in found] == [
        None,
        "the value is not Avro of the given schema",
        None,
    ]


def test_a_dead_letter_says_where_it_came_from(spark: SparkSession) -> None:
    bad = parse(rows(spark, [b'{"n": 1}', b"{"]), ValueSchema("json", "n INT"))
    (letter,) = dead_letters(bad).collect()
    assert (bytes(letter["key"]), bytes(letter["value"])) == (b"k", b"{")
    assert {h["key"]: bytes(h["value"]) for h in letter["headers"]} == {
        "ottla.origin.topic": b"t",
        "ottla.origin.partition": b"0",
        "ottla.origin.offset": b"1",
        "ottla.origin.timestamp": str(int(WHEN.timestamp() * 1000) + 1).encode(),
        "ottla.error": b"the value is not JSON of the given schema",
    }


def test_no_two_different_records_have_one_digest(spark: SparkSession) -> None:
    headers: list[list[tuple[str, bytes | None]] | None] = [
        None,
        [("a", b"")],
        [("a", None)],
        [("a", b""), ("a", None)],
        [("a", None), ("a", b"")],
        [("", b"a")],
    ]
    pairs = [(None, b"ab"), (b"ab", None), (b"a", b"b"), (b"", b"ab"), (b"ab", b""), (b"", b"")]
    records: list[tuple[object, ...]]
    records = [("t", 0, 0, WHEN, 0, key, value, None) for key, value in pairs]
    records += [("t", 0, 0, WHEN, 0, b"k", b"v", pairs) for pairs in headers]
    records += [("t", 0, 0, WHEN + timedelta(milliseconds=1), 0, b"k", b"v", None)]
    found = spark.createDataFrame(records, COLUMNS).select(*digest()).collect()
    assert len({row["h1"] for row in found}) == len(records)
    assert len({row["h2"] for row in found}) == len(records)


def test_no_headers_and_empty_headers_are_the_same(spark: SparkSession) -> None:
    nothing: list[list[tuple[str, bytes]] | None] = [None, []]
    both = [("t", 0, 0, WHEN, 0, b"k", b"v", headers) for headers in nothing]
    found = spark.createDataFrame(both, COLUMNS).select(*digest()).distinct()
    assert found.count() == 1


def side(name: str, table: DataFrame, offsets: list[int], **more: object) -> Side:
    return Side(name, table.where(F.col("offset").isin(offsets)), {0: (0, 10)}, **more)  # type: ignore[arg-type]


def test_what_is_missing_is_explained_where_it_can_be(spark: SparkSession) -> None:
    table = rows(spark, [b"%d" % n for n in range(10)])
    full = side("archive", table, list(range(10)))
    compacted = side("topic", table, [0, 3, 9], compacted=True, all_rows=lambda: table)
    result = audit(full, compacted, align="offsets")
    (row,) = result.partitions
    assert result.same
    assert row.explained == {"compacted away in topic": 7}
    plain = side("topic", table, [0, 3, 9])
    result = audit(side("archive", table, list(range(10))), plain, align="offsets")
    assert result.partitions[0].differences == {"records missing in topic": 7}
    lost = side("archive", table, [0, 1, 2, 6, 7, 8, 9], lost={0: [[3, 6]]})
    result = audit(side("topic", table, list(range(10))), lost, align="offsets")
    assert result.partitions[0].explained == {"lost before they were archived in archive": 3}
    assert result.same


def test_a_record_that_is_there_twice_is_found(spark: SparkSession) -> None:
    table = rows(spark, [b"%d" % n for n in range(3)])
    twice = Side("archive", table.union(table.where("offset = 1")), {0: (0, 3)})
    result = audit(Side("topic", table, {0: (0, 3)}), twice, align="offsets")
    assert not result.same
    assert result.partitions[0].right.duplicates == 1


def test_offsets_outside_of_the_other_side_are_told_apart_from_losses(spark: SparkSession) -> None:
    table = rows(spark, [b"%d" % n for n in range(10)])
    topic = Side("topic", table.where("offset >= 4"), {0: (4, 10)})
    archive = Side("archive", table.where("offset < 8"), {0: (0, 8)})
    result = audit(topic, archive, align="offsets")
    (row,) = result.partitions
    assert result.same
    assert row.left.records == row.right.records == 4
    assert row.explained == {
        "offsets before the start of topic": 4,
        "offsets not yet in archive": 2,
    }


def test_delays_join_each_flight_with_the_weather_of_its_hour(spark: SparkSession) -> None:
    def record(hour: float, **value: object) -> tuple[datetime, bytes]:
        return WHEN + timedelta(hours=hour), json.dumps(value).encode()

    schema = "timestamp timestamp, value binary"
    flown = [
        record(0, carrier="AA", flight="1", origin="JFK", dest="X", dep_delay=10.0),
        record(0, carrier="AA", flight="2", origin="LGA", dest="X", dep_delay=None),
        record(1, carrier="AA", flight="3", origin="JFK", dest="X", dep_delay=4.0),
        record(2, carrier="AA", flight="4", origin="JFK", dest="X", dep_delay=9.0),  # no weather
    ]
    weather = [
        record(0, origin="JFK", wind_speed=5.0, precip=0.0, visib=10.0),
        record(0.0, origin="LGA", wind_speed=7.0, precip=1.0, visib=6.0),
        record(1, origin="JFK", wind_speed=3.0, precip=0.0, visib=10.0),
    ]
    result = delays(
        parsed(spark.createDataFrame(flown, schema), FLIGHT),
        parsed(spark.createDataFrame(weather, schema), WEATHER),
    )
    assert_df_equality(
        result.select(
            "hour", "carrier", "flights", "departed", "mean_delay", "wind_speed", "visibility"
        ),
        spark.createDataFrame(
            [
                (WHEN, "AA", 2, 1, 10.0, 6.0, 8.0),
                (WHEN + timedelta(hours=1), "AA", 1, 1, 4.0, 3.0, 10.0),
            ],
            "hour timestamp, carrier string, flights long, departed long, mean_delay double, "
            "wind_speed double, visibility double",
        ),
        ignore_nullable=True,
        ignore_row_order=True,
    )


def test_codecs_are_measured_on_what_lies_together(spark: SparkSession) -> None:
    found = codecs(rows(spark, [b"the same value again " * 20] * 50))
    assert set(found) == {"gzip", "snappy", "lz4", "zstd"}
    assert all(figures["ratio"] > 5 for figures in found.values())
    assert all(figures["mb_s"] > 0 for figures in found.values())


@pytest.mark.parametrize(
    ("span_ms", "width"),
    [(1, 1), (99, 1), (100, 2), (3_600_000, 60_000), (365 * 86_400_000, 4 * 86_400_000)],
)
def test_points_of_time_are_of_a_width_that_people_count_in(span_ms: int, width: int) -> None:
    assert bucket_width(span_ms, 100) == width


def test_no_more_points_of_time_than_were_asked_for() -> None:
    for buckets in (1, 2, 7, 100):
        for span_ms in (1, 999, 10**6, 10**9, 10**12):
            width = bucket_width(span_ms, buckets)
            assert (width - 1 + span_ms - 1) // width + 1 <= max(2, buckets)


def test_the_hashes_of_sides_that_differ_differ_in_their_first_digits(spark: SparkSession) -> None:
    values = [b"%d" % number for number in range(50)]
    sides = [Side(name, rows(spark, values), {0: (0, 50)}) for name in ("one", "two")]
    (same,) = audit(*sides, align="offsets").partitions
    assert same.left.hash == same.right.hash
    other = Side("other", rows(spark, [*values[:-1], b"changed"]), {0: (0, 50)})
    (row,) = audit(sides[0], other, align="offsets").partitions
    assert re.fullmatch("[0-9a-f]{32}", row.left.hash)
    assert len(set(row.left.hash)) > 4
    assert row.left.hash[:8] != row.right.hash[:8]
    assert row.left.hash[16:24] != row.right.hash[16:24]
