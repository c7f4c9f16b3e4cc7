"""The worked example on its first days, held against the same sums without Spark; the profile of
its topic; and the command."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from compat_tests.harness.brokers import Broker
from pyspark.sql import SparkSession
from tests.spark.sending import Sent, produce

from ottla.spark import cli, flights
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
    steps: dict[str, tuple[int, int | None]] = {}
    done = flights.flights(
        spark, cluster, options, lambda step, count, total: steps.update({step: (count, total)})
    )
    ends = 2 * flights.PARTITIONS
    assert steps == {
        "sent to short-flights": (done.flights, done.flights),
        "sent to short-weather": (done.weather, done.weather),
        "joined": (done.flights + done.weather + ends, done.flights + done.weather + ends),
    }
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


@pytest.mark.parametrize(
    ("partitions", "values"),
    [
        (3, [b"other", b"records", b"altogether"]),
        (3, [flights._end("flights", 3)]),  # a run that was cut short while it sent
        (3, [flights._end("flights", 2)] * 3),
        (4, [flights._end("flights", 3)] * 4),
    ],
)
def test_a_topic_with_other_records_is_refused_before_spark_starts(
    cluster: Cluster,
    broker: Broker,
    topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    partitions: int,
    values: list[bytes],
) -> None:
    prefix = f"{topic()}-"
    name = f"{prefix}flights"
    cluster.create(name, partitions, {"retention.ms": "-1"})
    produce(broker.bootstrap, name, [Sent(p, None, value, 1) for p, value in enumerate(values)])
    command = ("flights", "-b", broker.bootstrap, "--folder", str(tmp_path / "example"))
    assert cli.main([*command, "--days", "3", "--prefix", prefix]) == 1
    said = capsys.readouterr().err
    assert f"topic {name} holds records that are not those of this example for --days 3" in said
    assert "--prefix" in said
    assert "starting Spark" not in said
    assert not (tmp_path / "example").exists()


def test_a_topic_that_the_example_has_filled_is_left_as_it_is(
    cluster: Cluster, topic: Callable[..., str]
) -> None:
    name = topic(partitions=flights.PARTITIONS)
    rows = flights.rows_of("weather", 1)
    for _ in range(2):
        assert flights.send(cluster, name, "weather", 1, rows, lambda more: None) == len(rows)
    held = sum(end for _, end in cluster.offsets(name).values())
    assert held == len(rows) + flights.PARTITIONS


def test_the_whole_table_is_sent_in_order_of_time() -> None:
    times = [ms for _, _, ms in flights.rows_of("weather", 365)]
    assert len(times) == 26_115
    assert times == sorted(times)
