"""One Spark session and one broker for all tests here; both are stopped at the end.

The broker is Ottla, or with `--target=apache` Apache Kafka, as for the tests in compat_tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat_tests.harness.brokers import BROKERS, Broker
from compat_tests.harness.target import add_option
from pyspark.sql import SparkSession
from tests.spark.sending import Sent, produce

from ottla.spark.cluster import Cluster
from ottla.spark.errors import JobError
from ottla.spark.session import LOG4J, session

_numbers = itertools.count()
# What is killed here is a process, never the machine.
_SETTINGS = {"ottla": {"ottla.durability": "os"}, "apache": {}}


def pytest_addoption(parser: pytest.Parser) -> None:
    add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ottla_only: about Ottla's own files and limits")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what says nothing here: not a skip, which is for what should have run."""
    if _target(config) == "ottla":
        return
    others = [item for item in items if item.get_closest_marker("ottla_only")]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


def _target(config: pytest.Config) -> str:
    return str(config.getoption("--target", "ottla"))


@pytest.fixture(scope="session")
def broker_class(pytestconfig: pytest.Config) -> type[Broker]:
    return BROKERS[_target(pytestconfig)]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Skips where Java or the jars cannot be had, which CI forbids."""
    try:
        made = _session()
    except JobError as error:
        pytest.skip(str(error))
    yield made
    made.stop()


def _session() -> SparkSession:
    return session(
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


@pytest.fixture(scope="session")
def broker(
    broker_class: type[Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("broker")
    made = broker_class(folder, _SETTINGS[broker_class.target])
    made.start()
    yield made
    made.kill()


@pytest.fixture(scope="session")
def cluster(broker: Broker) -> Cluster:
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
def send(broker: Broker) -> Callable[[str, list[Sent]], None]:
    def sending(topic: str, records: list[Sent]) -> None:
        produce(broker.bootstrap, topic, records)

    return sending


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "archive"
