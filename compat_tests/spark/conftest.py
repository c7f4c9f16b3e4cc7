"""One Spark for all of these tests: a JVM takes seconds to start and half a gigabyte to keep."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.conftest import MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.spark.streams import Streams

FETCHERS = {"admin client": "false", "consumer": "true"}


def connector() -> str:
    """The connector's jars, comma-separated. Skips where they cannot be had, which CI forbids."""
    found = subprocess.run(
        [sys.executable, "-m", "ottla.spark.jars"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return found.stdout.strip()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars": connector(),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.log.level": "FATAL",  # what goes wrong on purpose would fill pages
        "spark.python.worker.reuse": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.minBatchesToRetain": "2",
        # real-time batches may be this short; five seconds otherwise
        "spark.sql.streaming.realTimeMode.minBatchDuration": "500ms",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.Builder().master("local[2]").appName("compat_tests")
    session = builder.config(map=dict(settings)).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(params=FETCHERS)
def fetcher(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Each of the two ways in which Spark asks for offsets; the test runs with both."""
    name = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    spark.conf.set(name, FETCHERS[request.param])
    yield str(request.param)
    spark.conf.unset(name)


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    """Starts streams; all are stopped at the end of the test."""
    made = Streams(spark, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def keeping_topic(new_topic: MakeTopic) -> MakeTopic:
    """As new_topic, for records of any age: retention would take the old ones at its next pass,
    and Spark reads what is left without a word."""
    return lambda partitions=1, /, **configs: new_topic(
        partitions, **({"retention_ms": -1} | configs)
    )


@pytest.fixture
def strict_broker(make_broker: Callable[..., Broker]) -> Iterator[Broker]:
    """A broker that makes no topic by itself."""
    broker = make_broker({"auto.create.topics.enable": "false"})
    yield broker
    broker.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More time than others: the first of them waits for a JVM, a busy machine for all of them."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(400))
