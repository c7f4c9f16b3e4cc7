"""One Spark session and one Ottla broker for all tests here; both are stopped at the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat_tests.harness.brokers import OttlaBroker
from pyspark.sql import SparkSession
from tests.spark.sending import Sent, produce

from ottla.spark.cluster import Cluster
from ottla.spark.session import LOG4J, session

_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session(
        "tests",
        master="local[2,4]",
        extras=["avro"],
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.memory": "1g",
            # Queries over a few rows spend their time on compiling themselves.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.driver.extraJavaOptions": (
                f"-Dlog4j2.configurationFile={LOG4J.as_uri()} -XX:TieredStopAtLevel=1"
            ),
        },
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaBroker]:
    made = OttlaBroker(tmp_path_factory.mktemp("broker"), {"ottla.durability": "os"})
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="session")
def cluster(broker: OttlaBroker) -> Cluster:
    return Cluster(broker.bootstrap, patience=20)


@pytest.fixture
def topic(cluster: Cluster) -> Callable[..., str]:
    """Make a topic of a name nobody has; records of any age stay."""

    def make(partitions: int = 2, **configs: str) -> str:
        name = f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        cluster.create(name, partitions, {"retention.ms": "-1"} | settings)
        return name

    return make


@pytest.fixture
def send(broker: OttlaBroker) -> Callable[[str, list[Sent]], None]:
    def sending(topic: str, records: list[Sent]) -> None:
        produce(broker.bootstrap, topic, records)

    return sending


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "archive"
