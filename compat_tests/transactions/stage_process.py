"""One worker of a stage: consume, transform, produce, all in one transaction, until it is killed.

    python -m compat_tests.transactions.stage_process CLIENT OPTIONS

Reads committed records of `source`, writes each with the stage's name at its end to `target`, and
commits the group's offsets with them. When anything goes wrong it aborts, leaves and ends, and is
started again by the test, under the same transactional id: that is how its last transaction is
ended before it reads on. Standard output: a JSON line for what happens. End of input is its end.
java/Stage.java is the same for Java's client.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import json
import os
import sys
import threading
from typing import Any

BATCH = 25
SECONDS = 20.0

Offsets = dict[tuple[str, int], int]


def emit(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def end_with_input() -> None:
    def read() -> None:
        sys.stdin.read()
        os._exit(0)  # the test is over: no goodbye

    threading.Thread(target=read, daemon=True).start()


class Stage(abc.ABC):
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def target(self, value: bytes) -> tuple[int, bytes]:
        """Partition and value: records begin with their number."""
        number = int(value.split()[0])
        return number % self.options["partitions"], value + b" " + self.options["stage"].encode()

    @abc.abstractmethod
    def run(self) -> None:
        """For ever. Raises what the client raises, once the transaction is aborted."""


class KafkaPython(Stage):
    def run(self) -> None:
        import kafka
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.structs import OffsetAndMetadata

        options = self.options
        producer = kafka.KafkaProducer(
            bootstrap_servers=options["bootstrap"],
            transactional_id=options["transactional_id"],
            transaction_timeout_ms=options["transaction_timeout_ms"],
            linger_ms=5,
            reconnect_backoff_max_ms=500,
            retry_backoff_ms=20,
        )
        producer.init_transactions()
        consumer = kafka.KafkaConsumer(
            options["source"],
            bootstrap_servers=options["bootstrap"],
            group_id=options["group"],
            partition_assignment_strategy=[RangePartitionAssignor],
            isolation_level="read_committed",
            session_timeout_ms=options["session_ms"],
            heartbeat_interval_ms=300,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=BATCH,
            reconnect_backoff_max_ms=500,
            retry_backoff_ms=50,
        )
        emit("ready")
        try:
            while True:
                polled = consumer.poll(timeout_ms=1000, max_records=BATCH)
                if not polled:
                    continue
                producer.begin_transaction()
                offsets = {}
                for partition, records in polled.items():
                    for record in records:
                        to, value = self.target(record.value)
                        producer.send(options["target"], value, partition=to)
                    offsets[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                producer.commit_transaction()
                emit("committed", count=sum(map(len, polled.values())))
        except Exception:
            with contextlib.suppress(Exception):  # it began none, or is fenced
                producer.abort_transaction()
            consumer.close()
            raise


class Confluent(Stage):
    def run(self) -> None:
        import confluent_kafka

        options = self.options
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": options["bootstrap"],
                "transactional.id": options["transactional_id"],
                "transaction.timeout.ms": options["transaction_timeout_ms"],
                "delivery.timeout.ms": options["transaction_timeout_ms"],
                # When all brokers are away librdkafka 2.16 forgets them and begins anew, but goes
                # on sending offsets to the group's coordinator as it was: they wait for ever.
                "metadata.recovery.strategy": "none",
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )
        producer.init_transactions(SECONDS)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": options["bootstrap"],
                "group.id": options["group"],
                "partition.assignment.strategy": "range",
                "isolation.level": "read_committed",
                "session.timeout.ms": options["session_ms"],
                "heartbeat.interval.ms": 300,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )
        consumer.subscribe([options["source"]])
        emit("ready")
        try:
            while True:
                messages = [m for m in consumer.consume(BATCH, 0.05) if m.error() is None]
                if not messages:
                    continue
                producer.begin_transaction()
                offsets: Offsets = {}
                for message in messages:
                    to, value = self.target(message.value())
                    producer.produce(options["target"], value, partition=to)
                    offsets[message.topic(), message.partition()] = message.offset() + 1
                producer.send_offsets_to_transaction(
                    [confluent_kafka.TopicPartition(*at, next) for at, next in offsets.items()],
                    consumer.consumer_group_metadata(),
                    SECONDS,
                )
                producer.commit_transaction(SECONDS)
                emit("committed", count=len(messages))
        except Exception:
            with contextlib.suppress(Exception):
                producer.abort_transaction(SECONDS)
            consumer.close()
            raise


class AioKafka(Stage):
    """It tells the group nothing of its generation, and asks for offsets without waiting for
    pending ones: exactly once holds for a stage that has it as its only worker."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        import aiokafka
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        options = self.options
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=options["bootstrap"],
            transactional_id=options["transactional_id"],
            transaction_timeout_ms=options["transaction_timeout_ms"],
            linger_ms=5,
            retry_backoff_ms=20,
        )
        await producer.start()
        consumer = aiokafka.AIOKafkaConsumer(
            options["source"],
            bootstrap_servers=options["bootstrap"],
            group_id=options["group"],
            partition_assignment_strategy=[RangePartitionAssignor],
            isolation_level="read_committed",
            session_timeout_ms=options["session_ms"],
            heartbeat_interval_ms=300,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            retry_backoff_ms=50,
        )
        await consumer.start()
        emit("ready")
        try:
            while True:
                polled = await consumer.getmany(timeout_ms=50, max_records=BATCH)
                if not polled:
                    continue
                await producer.begin_transaction()
                offsets = {}
                for partition, records in polled.items():
                    for record in records:
                        to, value = self.target(record.value)
                        await producer.send(options["target"], value, partition=to)
                    offsets[partition] = records[-1].offset + 1
                await producer.send_offsets_to_transaction(offsets, options["group"])
                await producer.commit_transaction()
                emit("committed", count=sum(map(len, polled.values())))
        except Exception:
            with contextlib.suppress(Exception):
                await producer.abort_transaction()
            await consumer.stop()
            raise


STAGES: dict[str, type[Stage]] = {
    "kafka-python": KafkaPython,
    "confluent-kafka": Confluent,
    "aiokafka": AioKafka,
}


def main() -> None:
    name, options = sys.argv[1:]
    end_with_input()
    try:
        STAGES[name](json.loads(options)).run()
    except Exception as error:
        emit("failed", error=f"{type(error).__name__}: {error}")
    os._exit(1)  # whatever threads the client still has


if __name__ == "__main__":
    main()
