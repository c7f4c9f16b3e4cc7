"""aiokafka, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import aiokafka
import aiokafka.errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from compat_tests.clients.base import (
    Ack,
    Admin,
    Client,
    Cluster,
    Consumer,
    ConsumerOptions,
    Failed,
    Message,
    Partition,
    Pending,
    Producer,
    ProducerOptions,
    Received,
    TopicDescription,
)
from compat_tests.clients.kafka_python import TIMESTAMP_TYPES, failed
from compat_tests.raw.errors import name_of


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all aiokafka objects of the session."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="aiokafka", daemon=True).start()
    return loop


def run(coroutine: Coroutine[Any, Any, Any], timeout: float = 60) -> Any:
    """Run on the loop and wait. Raises Failed."""
    future = asyncio.run_coroutine_threadsafe(coroutine, _loop())
    try:
        return future.result(timeout)
    except aiokafka.errors.KafkaError as error:
        raise failed(error) from error


class _Pending(Pending):
    def __init__(self, delivered: Any) -> None:
        self.delivered = delivered

    def result(self, timeout: float = 30) -> Ack:
        try:
            done = run(self._wait(timeout))
        except TimeoutError:
            raise Failed("TimeoutError") from None
        # with acks 0 there is nothing to tell
        return Ack(0, -1, -1) if done is None else Ack(done.partition, done.offset, done.timestamp)

    async def _wait(self, timeout: float) -> Any:
        return await asyncio.wait_for(asyncio.shield(self.delivered), timeout)


class _Producer(Producer):
    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        self.producer = run(self._start(bootstrap, options))

    @staticmethod
    async def _start(bootstrap: str, options: ProducerOptions) -> Any:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all" if options.acks == "all" else int(options.acks),
            enable_idempotence=options.idempotent or options.transactional_id is not None,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            compression_type=None if options.compression == "none" else options.compression,
            linger_ms=options.linger_ms,
            max_batch_size=options.batch_bytes,
            max_request_size=options.max_request_bytes,
            # it also bounds how long a record may wait for its delivery
            request_timeout_ms=options.delivery_timeout_ms,
        )
        await producer.start()  # which initialises transactions too
        return producer

    def begin(self) -> None:
        run(self.producer.begin_transaction())

    def send_offsets(self, offsets: Mapping[Partition, int], group: str) -> None:
        named = {_tp(partition): offset for partition, offset in offsets.items()}
        run(self.producer.send_offsets_to_transaction(named, group))

    def commit(self) -> None:
        run(self.producer.commit_transaction())

    def abort(self) -> None:
        run(self.producer.abort_transaction())

    def send(self, message: Message) -> Pending:
        # Wait until it has its place in a batch: two that wait for room may overtake each other.
        return _Pending(
            run(
                self.producer.send(
                    message.topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=message.partition,
                    timestamp_ms=message.timestamp,
                )
            )
        )

    def flush(self) -> None:
        run(self.producer.flush())

    def close(self) -> None:
        run(self.producer.stop())


class _Consumer(Consumer):
    def __init__(self, bootstrap: str, options: ConsumerOptions) -> None:
        self.consumer = run(self._start(bootstrap, options))

    @staticmethod
    async def _start(bootstrap: str, options: ConsumerOptions) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            fetch_max_wait_ms=options.max_wait_ms,
            fetch_min_bytes=options.min_bytes,
            fetch_max_bytes=options.max_bytes,
            max_partition_fetch_bytes=options.max_partition_bytes,
            isolation_level=options.isolation_level,
            auto_offset_reset=options.auto_offset_reset,
            enable_auto_commit=False,
        )
        await consumer.start()
        return consumer

    def assign(self, positions: Mapping[Partition, int]) -> None:
        async def assign() -> None:
            self.consumer.assign([_tp(p) for p in positions])
            for partition, offset in positions.items():
                self.consumer.seek(_tp(partition), offset)

        run(assign())

    def seek(self, partition: Partition, offset: int) -> None:
        async def seek() -> None:
            self.consumer.seek(_tp(partition), offset)

        run(seek())

    def seek_to_beginning(self, partition: Partition) -> None:
        run(self.consumer.seek_to_beginning(_tp(partition)))

    def seek_to_end(self, partition: Partition) -> None:
        run(self.consumer.seek_to_end(_tp(partition)))

    def position(self, partition: Partition) -> int:
        return int(run(self.consumer.position(_tp(partition))))

    def poll(self, seconds: float) -> list[Received]:
        polled = run(self.consumer.getmany(timeout_ms=int(seconds * 1000)))
        return [_received(record) for records in polled.values() for record in records]

    def beginning_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        found = run(self.consumer.beginning_offsets([_tp(p) for p in partitions]))
        return {Partition(*tp): offset for tp, offset in found.items()}

    def end_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        found = run(self.consumer.end_offsets([_tp(p) for p in partitions]))
        return {Partition(*tp): offset for tp, offset in found.items()}

    def offsets_for_times(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        found = run(self.consumer.offsets_for_times({_tp(p): at for p, at in times.items()}))
        return {Partition(*tp): -1 if at is None else at.offset for tp, at in found.items()}

    def close(self) -> None:
        run(self.consumer.stop())


class _Admin(Admin):
    def __init__(self, bootstrap: str) -> None:
        async def start() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            return admin

        self.admin = run(start())

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(config))
        for _, code, *_ in run(self.admin.create_topics([new])).topic_errors:
            _raise(code)

    def delete_topic(self, topic: str) -> None:
        for _, code, *_ in run(self.admin.delete_topics([topic])).topic_error_codes:
            _raise(code)

    def list_topics(self) -> set[str]:
        return set(run(self.admin.list_topics()))

    def describe_topic(self, topic: str) -> TopicDescription:
        (found,) = run(self.admin.describe_topics([topic]))
        _raise(found["error_code"])
        return TopicDescription(None, {p["partition"]: p["leader"] for p in found["partitions"]})

    def create_partitions(self, topic: str, total: int) -> None:
        run(self.admin.create_partitions({topic: NewPartitions(total)}))

    def describe_configs(self, kind: str, name: str) -> dict[str, str | None]:
        asked = ConfigResource(ConfigResourceType[kind], name)
        (response,) = run(self.admin.describe_configs([asked]))
        ((code, _, _, _, entries),) = response.resources
        _raise(code)
        return {key: value for key, value, *_ in entries}

    def alter_configs(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        asked = ConfigResource(ConfigResourceType[kind], name, dict(config))
        for response in run(self.admin.alter_configs([asked])):
            for code, *_ in response.resources:
                _raise(code)

    def delete_records(self, before: Mapping[Partition, int]) -> dict[Partition, int]:
        asked = {_tp(p): RecordsToDelete(before_offset=offset) for p, offset in before.items()}
        return {Partition(*tp): low for tp, low in run(self.admin.delete_records(asked)).items()}

    def describe_cluster(self) -> Cluster:
        found = run(self.admin.describe_cluster())
        nodes = [f"{b['host']}:{b['port']}" for b in found["brokers"]]
        return Cluster(found["cluster_id"], found["controller_id"], nodes)

    def close(self) -> None:
        run(self.admin.close())


class AioKafka(Client):
    name = "aiokafka"
    producer_class = _Producer
    consumer_class = _Consumer
    admin_class = _Admin


def _raise(code: int) -> None:
    if code:
        raise Failed(name_of(code))


def _tp(partition: Partition) -> aiokafka.TopicPartition:
    return aiokafka.TopicPartition(*partition)


def _received(record: Any) -> Received:
    return Received(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        TIMESTAMP_TYPES[record.timestamp_type],
        record.key,
        record.value,
        list(record.headers),
    )
