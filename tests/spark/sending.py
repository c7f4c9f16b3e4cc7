"""Records as the tests send them."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Producer


@dataclass(frozen=True)
class Sent:
    """One record as a producer gives it."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes | None]] | None = None


def produce(bootstrap: str, topic: str, records: list[Sent]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failed: list[str] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(str(error))

    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            on_delivery=delivered,
            timestamp=record.timestamp,
            headers=record.headers or [],
        )
        producer.poll(0)
    producer.flush(30)
    assert not failed
