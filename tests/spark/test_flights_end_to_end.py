"""The worked example on its first days, held against the same sums without Spark; the profile of
its topic; and the command."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.spark import flights
from ottla.spark.cluster import Cluster
from ottla.spark.profile import profile, write_report

pytestmark = pytest.mark.timeout(600)

DAYS = 2


def expected() -> dict[tuple[str, int], tuple[int, float | None]]:
    """Flights and mean delay by carrier and hour (ms), of flights with a weather report."""
    reported = {(key, ms) for key, _, ms in flights.rows_of("weather", DAYS)}
    found: dict[tuple[str, int], list[float | None]] = defaultdict(list)
    for _, value, ms in flights.rows_of("flights", DAYS):
        row = json.loads(value)
        if (row["origin"].encode(), ms) in reported:
            found[row["carrier"], ms].append(row["dep_delay"])
    sums = {}
    for key, delays in found.items():
        departed = [delay for delay in delays if delay is not None]
        sums[key] = (len(delays), sum(departed) / len(departed) if departed else None)
    return sums


def test_flights_join_the_weather_of_their_hour(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    options = flights.FlightsOptions(str(tmp_path), prefix="short-", days=DAYS, batch_size=700)
    done = flights.flights(spark, cluster, options)
    rows = spark.read.parquet(str(tmp_path / "delays")).collect()
    wanted = expected()
    assert done.rows == len(rows) == len(wanted)
    for row in rows:
        count, mean = wanted[row["carrier"], int(row["hour"].timestamp() * 1000)]
        assert row["flights"] == count
        assert row["mean_delay"] == (None if mean is None else pytest.approx(mean))
    held = sum(end for _, end in cluster.offsets("short-delays").values())
    assert held == len(rows)
    assert (tmp_path / "delays.png").read_bytes()[:4] == b"\x89PNG"

    found = profile(spark, cluster, "short-flights", buckets=24, sample=500)
    assert found.records == done.flights + flights.PARTITIONS
    assert sum(part["records"] for part in found.partitions) == found.records
    assert sum(rate["records"] for rate in found.rates) == found.records
    assert found.without_key == flights.PARTITIONS
    assert found.sizes["value_bytes"] == sorted(found.sizes["value_bytes"])
    assert found.lateness["partition"][-1] == 0  # sent in order of time
    assert found.codecs["zstd"]["ratio"] > 1
    report = tmp_path / "profile.html"
    write_report([found], str(report))
    assert report.read_text().count("data:image/png;base64,") == 2


def test_the_whole_table_is_sent_in_order_of_time() -> None:
    times = [ms for _, _, ms in flights.rows_of("weather", 365)]
    assert len(times) == 26_115
    assert times == sorted(times)
