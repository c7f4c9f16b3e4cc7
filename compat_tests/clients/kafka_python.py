"""kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import kafka
import kafka.errors
from kafka.admin import ConfigResource, KafkaAdminClient
from kafka.admin._partitions import OffsetSpec
from kafka.structs import OffsetAndMetadata

from compat_tests.clients.base import (
    Ack,
    Admin,
    At,
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
from compat_tests.raw.errors import name_of

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
# By default it grows to half a minute: longer than any broker of these tests is away.
RECONNECT_MS = 500
SPECS = {
    "latest": OffsetSpec.LATEST,
    "earliest": OffsetSpec.EARLIEST,
    "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
}


def failed(error: Exception) -> Failed:
    """Also for aiokafka, whose errors began as kafka-python's."""
    code = getattr(error, "errno", None)
    name = type(error).__name__ if code is None or code < 0 else name_of(code)
    return Failed(name, str(error))


class _Pending(Pending):
    def __init__(self, future: Any) -> None:
        self.future = future

    def result(self, timeout: float = 30) -> Ack:
        try:
            done = self.future.get(timeout)
        except kafka.errors.KafkaError as error:
            raise failed(error) from error
        return Ack(done.partition, done.offset, done.timestamp)


class _Producer(Producer):
    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        self.producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            reconnect_backoff_max_ms=RECONNECT_MS,
            acks=-1 if options.acks == "all" else int(options.acks),
            enable_idempotence=options.idempotent or options.transactional_id is not None,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            compression_type=None if options.compression == "none" else options.compression,
            linger_ms=options.linger_ms,
            batch_size=options.batch_bytes,
            max_request_size=options.max_request_bytes,
            delivery_timeout_ms=options.delivery_timeout_ms,
            request_timeout_ms=min(10_000, options.delivery_timeout_ms),
        )
        if options.transactional_id is not None:
            self._do(self.producer.init_transactions)

    @staticmethod
    def _do(step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except kafka.errors.KafkaError as error:
            raise failed(error) from error

    def begin(self) -> None:
        self._do(self.producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[Partition, int], group: str) -> None:
        named = {_tp(p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}
        self._do(self.producer.send_offsets_to_transaction, named, group)

    def commit(self) -> None:
        self._do(self.producer.commit_transaction)

    def abort(self) -> None:
        self._do(self.producer.abort_transaction)

    def send(self, message: Message) -> Pending:
        try:
            future = self.producer.send(
                message.topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                partition=message.partition,
                timestamp_ms=message.timestamp,
            )
        except kafka.errors.KafkaError as error:
            raise failed(error) from error
        return _Pending(future)

    def flush(self) -> None:
        self.producer.flush()

    def close(self) -> None:
        self.producer.close(timeout=10)


class _Consumer(Consumer):
    def __init__(self, bootstrap: str, options: ConsumerOptions) -> None:
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            reconnect_backoff_max_ms=RECONNECT_MS,
            fetch_max_wait_ms=options.max_wait_ms,
            fetch_min_bytes=options.min_bytes,
            fetch_max_bytes=options.max_bytes,
            max_partition_fetch_bytes=options.max_partition_bytes,
            isolation_level=options.isolation_level,
            auto_offset_reset=options.auto_offset_reset,
            enable_auto_commit=False,
        )

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self.consumer.assign([_tp(p) for p in positions])
        for partition, offset in positions.items():
            self.seek(partition, offset)

    def seek(self, partition: Partition, offset: int) -> None:
        self.consumer.seek(_tp(partition), offset)

    def seek_to_beginning(self, partition: Partition) -> None:
        self.consumer.seek_to_beginning(_tp(partition))

    def seek_to_end(self, partition: Partition) -> None:
        self.consumer.seek_to_end(_tp(partition))

    def position(self, partition: Partition) -> int:
        return int(self.consumer.position(_tp(partition)))

    def poll(self, seconds: float) -> list[Received]:
        try:
            polled = self.consumer.poll(timeout_ms=int(seconds * 1000))
        except kafka.errors.KafkaError as error:
            raise failed(error) from error
        return [_received(record) for records in polled.values() for record in records]

    def beginning_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        found = self.consumer.beginning_offsets([_tp(p) for p in partitions])
        return {Partition(*tp): offset for tp, offset in found.items()}

    def end_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        found = self.consumer.end_offsets([_tp(p) for p in partitions])
        return {Partition(*tp): offset for tp, offset in found.items()}

    def offsets_for_times(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        found = self.consumer.offsets_for_times({_tp(p): at for p, at in times.items()})
        return {Partition(*tp): -1 if at is None else at.offset for tp, at in found.items()}

    def close(self) -> None:
        self.consumer.close()


class _Admin(Admin):
    def __init__(self, bootstrap: str) -> None:
        self.admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def _run(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self.admin, method)(*arguments, **options)
        except kafka.errors.KafkaError as error:
            raise failed(error) from error

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config)}
        self._run("create_topics", {topic: wanted})

    def delete_topic(self, topic: str) -> None:
        self._run("delete_topics", [topic])

    def list_topics(self) -> set[str]:
        return set(self._run("list_topics"))

    def describe_topic(self, topic: str) -> TopicDescription:
        (found,) = self._run("describe_topics", [topic])
        if found["error_code"]:
            raise Failed(name_of(found["error_code"]))
        leaders = {p["partition_index"]: p["leader_id"] for p in found["partitions"]}
        return TopicDescription(str(found["topic_id"]), leaders)

    def create_partitions(self, topic: str, total: int) -> None:
        self._run("create_partitions", {topic: total})

    def describe_configs(self, kind: str, name: str) -> dict[str, str | None]:
        asked = [ConfigResource(kind, name)]
        found = self._run("describe_configs", asked, config_filter="all")[kind.lower()]
        return {key: config["value"] for key, config in found[name].items()}

    def incremental_alter_configs(
        self, kind: str, name: str, config: Mapping[str, str | None]
    ) -> None:
        changes = {k: ("DELETE" if v is None else "SET", v) for k, v in config.items()}
        self._alter(kind, name, changes, incremental=True)

    def alter_configs(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        self._alter(kind, name, config, incremental=False)

    def _alter(self, kind: str, name: str, config: Mapping[str, Any], *, incremental: bool) -> None:
        resource = ConfigResource(kind, name, dict(config))
        # else it looks the keys up first and complains by itself
        done = self._run(
            "alter_configs", [resource], raise_on_unknown=False, incremental=incremental
        )
        if (told := done[kind.lower()][name]) != "OK":
            # "[Error 40] InvalidConfigurationError: ..."
            raise Failed(name_of(int(told.split("]")[0].split()[-1])), told)

    def delete_records(self, before: Mapping[Partition, int]) -> dict[Partition, int]:
        done = self._run("delete_records", {_tp(p): offset for p, offset in before.items()})
        return {Partition(*tp): found["low_watermark"] for tp, found in done.items()}

    def log_dirs(self) -> dict[Partition, int]:
        return {
            Partition(topic["name"], part["partition_index"]): part["partition_size"]
            for broker in self._run("describe_log_dirs")
            for log_dir in broker["log_dirs"]
            for topic in log_dir["topics"]
            for part in topic["partitions"]
        }

    def describe_cluster(self) -> Cluster:
        found = self._run("describe_cluster")
        nodes = [f"{b['host']}:{b['port']}" for b in found["brokers"]]
        return Cluster(found["cluster_id"], found["controller_id"], nodes)

    def list_offsets(self, at: Mapping[Partition, str]) -> dict[Partition, At]:
        asked = {_tp(p): SPECS[spec] if spec in SPECS else int(spec) for p, spec in at.items()}
        found = self._run("list_partition_offsets", asked)
        return {Partition(*tp): At(one.offset, one.timestamp) for tp, one in found.items()}

    def close(self) -> None:
        self.admin.close()


class KafkaPython(Client):
    name = "kafka-python"
    producer_class = _Producer
    consumer_class = _Consumer
    admin_class = _Admin


def _tp(partition: Partition) -> kafka.TopicPartition:
    return kafka.TopicPartition(*partition)


def _received(record: Any) -> Received:
    return Received(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        TIMESTAMP_TYPES[record.timestamp_type],
        record.key,
        record.value,
        [(name, value) for name, value in record.headers],
    )
