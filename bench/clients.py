"""What the stock client (confluent-kafka, librdkafka underneath) does in the rows."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)

WORDS = [
    "departure", "arrival", "delayed", "boarding", "gate", "terminal", "carrier", "flight",
    "origin", "destination", "wind", "visibility", "pressure",
    "humidity", "runway", "taxi", "cancelled", "diverted", "airborne", "scheduled", "minutes",
]  # fmt: skip


def payloads(size: int, count: int = 512) -> list[bytes]:
    """`count` different values of `size` bytes that look like small JSON documents.

    lz4 takes them to about a half (100 B values) and a third (10 KiB) in a batch.
    """
    chance = random.Random(size)
    values = []
    for number in range(count):
        parts = [f'{{"id":{number}']
        length = len(parts[0])
        while length < size:
            part = (
                f',"{chance.choice(WORDS)}":"{chance.choice(WORDS)}-{chance.randrange(10**6):06d}"'
            )
            parts.append(part)
            length += len(part)
        values.append("".join(parts)[: size - 1].encode() + b"}")
    return values


def produce(
    bootstrap: str,
    topic: str,
    values: list[bytes],
    count: int,
    settings: dict[str, object] | None = None,
) -> float:
    """Produce `count` values as fast as the client can, acks=all; seconds until the last answer.

    Raises RuntimeError when a record was not delivered.
    """
    failed = threading.Event()

    def report(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.set()

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "on_delivery": report,
            **(settings or {}),
        }
    )
    many = len(values)
    begin = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, values[number % many])
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(300)
    seconds = time.perf_counter() - begin
    if left or failed.is_set():
        raise RuntimeError(f"records of {topic} were not delivered ({left} still waiting)")
    return seconds


def produce_at_rate(
    bootstrap: str, topic: str, values: list[bytes], per_second: int, seconds: float
) -> int:
    """Produce at a steady pace, one small burst each 2 ms. Returns the number of records."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    begin = time.perf_counter()
    sent, total = 0, int(per_second * seconds)
    while sent < total:
        due = min(total, int((time.perf_counter() - begin) * per_second) + 1)
        while sent < due:
            producer.produce(topic, values[sent % len(values)])
            sent += 1
        producer.poll(0)
        time.sleep(0.002)
    if producer.flush(120):
        raise RuntimeError(f"records of {topic} were not delivered")
    return sent


def consume(bootstrap: str, topic: str, partitions: int, count: int, seconds: float = 600) -> float:
    """Read `count` records from the beginning with a new consumer. Returns seconds.

    Raises RuntimeError on a client error, or when they have not come after `seconds`.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench-reader", "enable.auto.commit": False}
    )
    begin = time.perf_counter()
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
    seen = 0
    while seen < count:
        messages = consumer.consume(10_000, timeout=1.0)
        for message in messages:
            if error := message.error():
                raise RuntimeError(f"reading {topic}: {error}")
        seen += len(messages)
        if time.perf_counter() - begin > seconds:
            raise RuntimeError(f"{topic}: {seen} of {count} records after {seconds} s")
    taken = time.perf_counter() - begin
    consumer.close()
    return taken


@dataclass
class Paced:
    """Latencies (seconds) from just before produce() until the consumer holds the record."""

    latencies: list[float]
    seconds: float


class PacedFlow:
    """One record at a time, linger 0, through one partition; a consumer waits for each."""

    def __init__(self, bootstrap: str, topic: str, per_second: int, size: int = 100) -> None:
        self.per_second = per_second
        self.size = size
        self.topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench-paced", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        self._stop = threading.Event()
        self._arrived: list[tuple[int, float]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            now = time.perf_counter()
            if message is None or message.error():
                continue
            value = message.value() or b""
            sent = int.from_bytes(value[:8], "big")
            self._arrived.append((sent, now))

    def open(self) -> None:
        """Wait until a record sent is a record received: the consumer stands at its position."""
        self._thread.start()
        end = time.perf_counter() + 60
        while not self._arrived:
            self._send()
            time.sleep(0.1)
            if time.perf_counter() > end:
                raise RuntimeError("the paced consumer received nothing")

    def _send(self) -> None:
        stamp = time.perf_counter_ns().to_bytes(8, "big")
        self._producer.produce(self.topic, stamp + b"x" * (self.size - 8), partition=0)
        self._producer.poll(0)

    def run(self, seconds: float) -> Paced:
        """Send for `seconds`, wait for the last record. Raises RuntimeError if some are missing."""
        time.sleep(0.3)
        first = len(self._arrived)
        begin = time.perf_counter()
        total = int(self.per_second * seconds)
        for number in range(total):
            due = begin + number / self.per_second
            if (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
            self._send()
        end = time.perf_counter() + 60
        while len(self._arrived) - first < total:
            time.sleep(0.005)
            if time.perf_counter() > end:
                raise RuntimeError(f"{total - len(self._arrived) + first} records never arrived")
        seconds = time.perf_counter() - begin
        latencies = [now - sent / 1e9 for sent, now in self._arrived[first:]]
        return Paced(latencies, seconds)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        self._consumer.close()
        self._producer.flush(10)
