"""The same records through the same Spark jobs on Ottla and on Apache Kafka, in one run.

    python -m bench.spark_side_by_side                 # 10,000,000 records; about half an hour
    python -m bench.spark_side_by_side --records 200000

Both brokers run all the time, each over an empty folder, and take the steps in turn: produce,
archive, audit the topic against its archive, batch reads through the connector and through
`format("ottla")`, the flights example. At the end the topics of the two brokers are audited against
each other, offset by offset. Prints a Markdown table; fails when one record differs anywhere.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow import parquet

from bench import report
from bench.rows.spark_source import spark
from bench.targets import KAFKA, OTTLA, Broker, variants

TOPIC = "many"
PARTITIONS = 4
FIRST_MS = 1_700_000_000_000
STEP_MS = 25  # between two records: ten million span three days, so three folders of an archive
READS = {"read, connector": "kafka", 'read, format("ottla")': "ottla"}
FLIGHTS = {
    "spark-flights": 336_776,
    "spark-weather": 26_115,
}  # records, without one in each partition behind


class Different(Exception):
    """An audit found what it should not; the text says where."""


@dataclass(frozen=True)
class Step:
    """What one step took on one broker. `seconds` of a job contain the start of Spark."""

    name: str
    records: int
    seconds: float
    cpu: float

    def cells(self) -> list[str]:
        per_record = self.cpu / self.records * 1e6
        return [report.number(n) for n in (self.seconds, self.records / self.seconds, per_record)]


@dataclass
class Side:
    """One broker, its archive and what the steps took on it."""

    broker: Broker
    folder: Path
    steps: dict[str, Step] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str, records: int) -> Iterator[None]:
        cpu, begin = self.broker.meter.cpu(), time.perf_counter()
        yield
        seconds, used = time.perf_counter() - begin, self.broker.meter.cpu() - cpu
        step = self.steps[name] = Step(name, records, seconds, used)
        took, speed, per_record = step.cells()
        print(
            f"{self.broker.variant.title:12} {name:22} {took:>6} s {speed:>9}/s "
            f"{per_record:>6} us/record of the broker's CPU",
            flush=True,
        )

    def job(self, *arguments: str) -> str:
        """Run `ottla-spark`; gives what it printed. Raises RuntimeError with what it complained."""
        command = [sys.executable, "-m", "ottla.spark.cli", *arguments]
        command += ["-b", self.broker.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and not done.stdout:  # an audit that finds differences prints them
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
        return done.stdout


def produce(bootstrap: str, count: int) -> None:
    """`count` records, each different, in an order and at offsets that never change."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[TOPIC].result()
    failed: list[str] = []

    def report_failure(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "on_delivery": report_failure,
            "log_level": 3,  # not that it asks again while Kafka's coordinator loads
        }
    )
    for n in range(count):
        value = None if n % 1009 == 0 else b"value of record %d with some text behind it" % n
        key = None if n % 13 == 0 else b"key-%d" % (n % 5000)
        headers = [("id", b"%d" % n), ("none", None)] if n % 7 == 0 else []
        at = FIRST_MS + n * STEP_MS
        while True:
            try:
                producer.produce(
                    TOPIC, value, key, n * 7919 % PARTITIONS, timestamp=at, headers=headers
                )
                break
            except BufferError:
                producer.poll(0.5)
    if producer.flush(600) or failed:
        raise RuntimeError(f"not all records were taken: {failed[:1]}")


def audited(printed: str, what: str, records: int | None = None) -> int:
    """The number of records of `audit --json`. Raises Different."""
    result = json.loads(printed)
    held: int = sum(partition["left"]["records"] for partition in result["partitions"])
    hashes = [[p[side]["hash"] for p in result["partitions"]] for side in ("left", "right")]
    if not result["same"] or hashes[0] != hashes[1] or (records is not None and held != records):
        raise Different(f"{what}: {held:,} records; {json.dumps(result)[:2000]}")
    return held


def own_steps(side: Side, records: int) -> None:
    """What each broker does by itself."""
    lake = str(side.folder / "lake")
    with side.step("produce", records):
        produce(side.broker.bootstrap, records)
    with side.step("archive", records):
        side.job("archive", "--topic", TOPIC, "--archive", lake)
    with side.step("audit with archive", records):
        printed = side.job("audit", "--topic", TOPIC, "--archive", lake, "--json")
    audited(printed, f"{side.broker.variant.title} and its archive", records)


def reads(sides: list[Side], records: int) -> None:
    """One Spark, warmed up, reads all of it: both ways, from both brokers."""
    some = {TOPIC: dict.fromkeys(map(str, range(PARTITIONS)), records // 100)}
    with spark() as reader:
        for options in ({"endingOffsets": json.dumps(some)}, {}):  # the first round warms up
            for name, source in READS.items():
                for side in sides:
                    place = {"kafka.bootstrap.servers": side.broker.bootstrap, "subscribe": TOPIC}
                    wanted = {"source": source, "options": place | options}
                    if options:
                        reader.ask(wanted)
                        continue
                    with side.step(name, records):
                        found = reader.ask(wanted)["count"]
                    if found != records:
                        raise Different(f"{side.broker.variant.title}, {name}: {found:,} records")


def flights(sides: list[Side]) -> None:
    """The worked example on both, then both brokers' topics against each other."""
    for side in sides:
        with side.step("flights example", sum(FLIGHTS.values())):
            side.job("flights", "--folder", str(side.folder / "flights"))
    for topic in FLIGHTS:
        compare(sides, topic)
    ours, theirs = (delays(side.folder / "flights" / "delays") for side in sides)
    if ours != theirs:
        raise Different(f"flights example: {len(ours):,} and {len(theirs):,} delays, or others")
    print(f"flights example: the same {len(ours):,} delays by carrier and hour", flush=True)


def delays(folder: Path) -> list[str]:
    """The example's result in an order of its own; means to nine digits, as their last ones depend
    on the order in which a micro-batch met its rows."""
    rows = parquet.read_table(folder).drop_columns(["batch"]).to_pylist()
    rounded = ({k: round(v, 9) if isinstance(v, float) else v for k, v in r.items()} for r in rows)
    return sorted(str(row) for row in rounded)


def compare(sides: list[Side], topic: str, records: int | None = None) -> int:
    """Audit one broker's topic against the other's, at the same offsets."""
    ours, theirs = sides
    printed = ours.job(
        *("audit", "--topic", topic, "--other-topic", topic, "--align", "offsets", "--json"),
        *("--other-bootstrap-server", theirs.broker.bootstrap),
    )
    return audited(printed, f"topic {topic} of both brokers", records)


def table(sides: list[Side]) -> str:
    """A Markdown table: seconds, records a second and the broker's CPU of each step."""
    titles = [side.broker.variant.title for side in sides]
    units = ("s", "records/s", "broker CPU, us/record")
    heads = [f"{unit}: {title}" for unit in units for title in titles]
    out = ["| step | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    for name in sides[0].steps:
        columns = zip(*(side.steps[name].cells() for side in sides), strict=True)
        out.append(f"| {name} | " + " | ".join(cell for pair in columns for cell in pair) + " |")
    return "\n".join(out)


def main(arguments: list[str] | None = None) -> int:
    """0: all records the same everywhere; 1: not; 2: it could not be run."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.spark_side_by_side",
        description="The same records through the same Spark jobs on Ottla and on Apache Kafka.",
    )
    parser.add_argument("--records", type=int, default=10_000_000, help="default: %(default)s")
    parser.add_argument("--no-flights", action="store_true", help="leave out the flights example")
    parser.add_argument(
        "--data", type=Path, default=Path("/var/tmp"), help="where all of it lies meanwhile"
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    chosen = [variants()[name] for name in (OTTLA, KAFKA)]
    for variant in chosen:
        if reason := variant.software.missing():
            print(f"{variant.title}: {reason}", file=sys.stderr)
            return 2
    brokers: list[Broker] = []
    with tempfile.TemporaryDirectory(prefix="ottla-both-", dir=options.data) as name:
        try:
            for variant in chosen:
                brokers.append(Broker(variant, Path(name) / variant.name, lambda pid: None))
                brokers[-1].start()
            sides = [Side(broker, Path(name) / f"{broker.variant.name}-out") for broker in brokers]
            return run(sides, options)
        finally:
            for broker in brokers:
                broker.stop()


def run(sides: list[Side], options: argparse.Namespace) -> int:
    try:
        for side in sides:
            own_steps(side, options.records)
        reads(sides, options.records)
        compare(sides, TOPIC, options.records)
        if not options.no_flights:
            flights(sides)
    except Different as difference:
        print(f"DIFFERENT: {difference}", file=sys.stderr)
        return 1
    print(
        f"\n{options.records:,} records: count, offsets, order and hashes are the same in both "
        f"topics and both archives\n\n{table(sides)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
