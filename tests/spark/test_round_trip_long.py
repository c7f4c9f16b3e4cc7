"""archive -> replay -> audit, with the broker killed three times and the driver once on the way;
millions of records on Ottla beside Apache Kafka. The jobs run as users run them: as processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat_tests.harness.brokers import Broker
from tests.spark.sending import Sent, produce

from ottla.spark.cluster import Cluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

RECORDS = int(os.environ.get("OTTLA_SPARK_RECORDS", "60000"))
MILLIONS = int(os.environ.get("OTTLA_SPARK_MANY_RECORDS", "10000000"))
PARTITIONS = 4


@pytest.fixture
def own_broker(broker_class: type[Broker], tmp_path: Path) -> Iterator[Broker]:
    made = broker_class(tmp_path / "broker")  # durability fsync: what is acknowledged is there
    made.start()
    yield made
    made.kill()


class Job:
    """One `ottla-spark` process; killed with what it started."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / f"{arguments[0]}-{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ottla.spark.cli", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def finish(self) -> str:
        """Wait for it; gives what it printed."""
        out, _ = self._process.communicate()
        assert self._process.returncode == 0, out.decode() + self._log.read_text()
        return out.decode()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """kill -9, the driver and its JVM."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def kill_and_start(broker: Broker) -> None:
    broker.kill()
    broker.start()


def wait_until(job: Job, is_so: Callable[[], object], what: str) -> None:
    while not is_so():
        assert job.running, f"the job ended before {what}"
        time.sleep(0.02)


def records(count: int) -> list[Sent]:
    """Nulls, empty values, repeated and binary headers, three days, now and then 600 KB."""
    noise = random.Random(6)
    made = []
    for n in range(count):
        big = n % 20_011 == 20_010
        made.append(
            Sent(
                noise.randrange(PARTITIONS),
                None if n % 11 == 0 else b"key-%d" % noise.randrange(1000),
                None if n % 13 == 0 else noise.randbytes(600_000 if big else noise.randrange(200)),
                1_380_000_000_000 + noise.randrange(3 * 86_400_000),
                [("id", b"%d" % n), ("bin", noise.randbytes(8)), ("id", None)] if n % 3 else None,
            )
        )
    return made


def test_the_round_trip_is_byte_exact_while_broker_and_driver_are_killed(
    own_broker: Broker, tmp_path: Path
) -> None:
    broker = own_broker
    cluster = Cluster(broker.bootstrap)
    cluster.create("origin", PARTITIONS, {"retention.ms": "-1"})
    sending = threading.Thread(target=produce, args=(broker.bootstrap, "origin", records(RECORDS)))
    sending.start()
    while sum(end for _, end in cluster.offsets("origin").values()) < RECORDS // 3:
        time.sleep(0.02)
    kill_and_start(broker)  # 1: under the producer
    sending.join()
    assert sum(end for _, end in cluster.offsets("origin").values()) == RECORDS

    archive = tmp_path / "lake"
    job = Job(
        tmp_path,
        *("archive", "-b", broker.bootstrap, "--topic", "origin", "--archive", str(archive)),
        *("--batch-size", str(RECORDS // 5)),
    )
    wait_until(job, lambda: list(archive.glob("_ottla/commits/*.json")), "its first commit")
    kill_and_start(broker)  # 2: under the archive
    job.finish()

    replay = (
        *("replay", "-b", broker.bootstrap, "--archive", str(archive)),
        *("--topic", "origin", "--to", "copy", "--rate", str(max(1000, RECORDS // 10))),
    )
    job = Job(tmp_path, *replay)
    wait_until(job, lambda: held(cluster) > RECORDS // 5, "it had sent a fifth")
    kill_and_start(broker)  # 3: under the replay
    wait_until(job, lambda: held(cluster) > RECORDS // 2, "it had sent half")
    job.kill()  # the driver
    assert RECORDS // 2 < held(cluster) < RECORDS
    Job(tmp_path, *replay).finish()

    for other in (
        ("--archive", str(archive), "--archive-topic", "origin"),
        ("--other-topic", "origin"),
    ):
        report = tmp_path / "report.html"
        printed = Job(
            tmp_path,
            *("audit", "-b", broker.bootstrap, "--topic", "copy", "--align", "order", "--json"),
            *(*other, "--report", str(report)),
        ).finish()
        result = json.loads(printed)
        assert result["same"], result
        assert sum(row["left"]["records"] for row in result["partitions"]) == RECORDS
        assert [row["left"]["hash"] for row in result["partitions"]] == [
            row["right"]["hash"] for row in result["partitions"]
        ]
        assert "The same" in report.read_text()


def test_millions_of_records_are_the_same_on_both_brokers_and_in_both_archives(
    pytestconfig: pytest.Config,
) -> None:
    command = [sys.executable, "-m", "bench.spark_side_by_side", "--records", str(MILLIONS)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=pytestconfig.rootpath
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_delta_archive_is_exact_although_its_driver_is_killed(
    own_broker: Broker, tmp_path: Path
) -> None:
    cluster = Cluster(own_broker.bootstrap)
    cluster.create("table", PARTITIONS, {"retention.ms": "-1"})
    produce(own_broker.bootstrap, "table", records(RECORDS))
    archive = tmp_path / "table"
    common = ("-b", own_broker.bootstrap, "--topic", "table", "--archive", str(archive))
    run = ("archive", *common, "--format", "delta", "--batch-size", str(RECORDS // 5))
    job = Job(tmp_path, *run)
    wait_until(job, lambda: list(archive.glob("_delta_log/*1.json")), "its second commit")
    job.kill()
    Job(tmp_path, *run).finish()
    result = json.loads(Job(tmp_path, "audit", *common, "--format", "delta", "--json").finish())
    assert result["same"], result
    assert sum(row["right"]["records"] for row in result["partitions"]) == RECORDS


def held(cluster: Cluster) -> int:
    if not cluster.exists("copy"):
        return 0
    return sum(end for _, end in cluster.offsets("copy", committed=False).values())
