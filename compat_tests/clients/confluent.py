"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

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

TIMESTAMP_TYPES = {
    confluent_kafka.TIMESTAMP_CREATE_TIME: "CreateTime",
    confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}
SECONDS = 30.0


def failed(error: KafkaError) -> Failed:
    """Negative codes are librdkafka's own (_MSG_TIMED_OUT)."""
    code = error.code()
    if code == KafkaError._AUTO_OFFSET_RESET:
        # auto.offset.reset=error: what the broker said is in the text alone
        return Failed("OFFSET_OUT_OF_RANGE", error.str())
    return Failed(name_of(code) if code >= 0 else error.name(), error.str())


def quiet(_: KafkaError) -> None:
    """Brokers that restart are part of the tests: no lines on standard error about them."""


class _Pending(Pending):
    def __init__(self, producer: confluent_kafka.Producer) -> None:
        self.producer = producer
        self.outcome: Ack | Failed | None = None

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.outcome = Ack(message.partition(), message.offset(), message.timestamp()[1])
        else:
            self.outcome = failed(error)

    def result(self, timeout: float = 30) -> Ack:
        deadline = time.monotonic() + timeout
        while self.outcome is None:
            if time.monotonic() > deadline:
                raise Failed("TimeoutError")
            self.producer.poll(0.1)
        if isinstance(self.outcome, Failed):
            raise self.outcome
        return self.outcome


class _Producer(Producer):
    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        self.bootstrap = bootstrap
        transactional: dict[str, object] = {}
        if options.transactional_id is not None:
            transactional = {
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": options.transaction_timeout_ms,
            }
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": options.acks,
                "enable.idempotence": options.idempotent or bool(transactional),
                "compression.type": options.compression,
                "linger.ms": options.linger_ms,
                "batch.size": options.batch_bytes,
                "message.max.bytes": options.max_request_bytes,
                "delivery.timeout.ms": options.delivery_timeout_ms,
                "reconnect.backoff.max.ms": 500,
                "error_cb": quiet,
                "log_level": 0,
                **transactional,
            }
        )
        if transactional:
            self._do(self.producer.init_transactions)

    def _do(self, step: Callable[..., None], *arguments: Any) -> None:
        """A step of a transaction; what may be tried again is."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                step(*arguments, max(1.0, deadline - time.monotonic()))
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise failed(error.args[0]) from error

    def begin(self) -> None:
        try:
            self.producer.begin_transaction()
        except KafkaException as error:
            raise failed(error.args[0]) from error

    def send_offsets(self, offsets: Mapping[Partition, int], group: str) -> None:
        # only a consumer tells a group's metadata, and it says that it is no member
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": group, "error_cb": quiet}
        )
        parts = [RdPartition(*partition, offset) for partition, offset in offsets.items()]
        try:
            self._do(
                self.producer.send_offsets_to_transaction, parts, consumer.consumer_group_metadata()
            )
        finally:
            consumer.close()

    def commit(self) -> None:
        self._do(self.producer.commit_transaction)

    def abort(self) -> None:
        self._do(self.producer.abort_transaction)

    def send(self, message: Message) -> Pending:
        pending = _Pending(self.producer)
        placed = {} if message.partition is None else {"partition": message.partition}
        when = {} if message.timestamp is None else {"timestamp": message.timestamp}
        try:
            self.producer.produce(
                message.topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                on_delivery=pending.delivered,
                **placed,
                **when,
            )
        except KafkaException as error:
            raise failed(error.args[0]) from error
        self.producer.poll(0)
        return pending

    def flush(self) -> None:
        self.producer.flush(SECONDS)

    def close(self) -> None:
        try:
            self.producer.flush(10)
        except KafkaException as error:
            if not error.args[0].fatal():  # has been told before: it was fenced
                raise


class _Consumer(Consumer):
    def __init__(self, bootstrap: str, options: ConsumerOptions) -> None:
        reset = "error" if options.auto_offset_reset == "none" else options.auto_offset_reset
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",  # it insists on a name; assign() joins no group
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "fetch.wait.max.ms": options.max_wait_ms,
                "fetch.min.bytes": options.min_bytes,
                "fetch.max.bytes": max(options.max_bytes, 1_000_000),  # its message.max.bytes
                "max.partition.fetch.bytes": options.max_partition_bytes,
                "isolation.level": options.isolation_level,
                "auto.offset.reset": reset,
                "reconnect.backoff.max.ms": 500,
                "error_cb": quiet,
                "log_level": 0,
            }
        )

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self.consumer.assign([RdPartition(*p, offset) for p, offset in positions.items()])

    def seek(self, partition: Partition, offset: int) -> None:
        self.consumer.seek(RdPartition(*partition, offset))

    def seek_to_beginning(self, partition: Partition) -> None:
        self.seek(partition, OFFSET_BEGINNING)

    def seek_to_end(self, partition: Partition) -> None:
        self.seek(partition, OFFSET_END)

    def position(self, partition: Partition) -> int:
        """The next offset to be handed out; before the first record, what the broker says."""
        (found,) = self.consumer.position([RdPartition(*partition)])
        return int(found.offset)

    def poll(self, seconds: float) -> list[Received]:
        # consume() waits for all it was asked for: wait for one, then take what else is there
        first = self.consumer.poll(seconds)
        messages = [] if first is None else [first, *self.consumer.consume(499, 0)]
        got = []
        for message in messages:
            error = message.error()
            if error is None:
                got.append(_received(message))
            elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise failed(error)
        return got

    def beginning_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {p: self._watermarks(p)[0] for p in partitions}

    def end_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return {p: self._watermarks(p)[1] for p in partitions}

    def _watermarks(self, partition: Partition) -> tuple[int, int]:
        found = self.consumer.get_watermark_offsets(RdPartition(*partition), timeout=SECONDS)
        assert found is not None, f"no watermarks of {partition}"
        low, high = found
        return low, high

    def offsets_for_times(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        asked = [RdPartition(*p, at) for p, at in times.items()]
        found = self.consumer.offsets_for_times(asked, timeout=SECONDS)
        return {Partition(tp.topic, tp.partition): max(tp.offset, -1) for tp in found}

    def close(self) -> None:
        self.consumer.close()


class _Admin(Admin):
    def __init__(self, bootstrap: str) -> None:
        self.admin = AdminClient(
            {"bootstrap.servers": bootstrap, "error_cb": quiet, "log_level": 0}
        )

    def _only(self, futures: Mapping[Any, Any]) -> Any:
        (future,) = futures.values()
        try:
            return future.result(SECONDS)
        except KafkaException as error:
            raise failed(error.args[0]) from error

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self._only(self.admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config))]))

    def delete_topic(self, topic: str) -> None:
        self._only(self.admin.delete_topics([topic]))

    def list_topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=SECONDS).topics)

    def describe_topic(self, topic: str) -> TopicDescription:
        asked = confluent_kafka.TopicCollection([topic])
        found = self._only(self.admin.describe_topics(asked))
        return TopicDescription(str(found.topic_id), {p.id: p.leader.id for p in found.partitions})

    def create_partitions(self, topic: str, total: int) -> None:
        self._only(self.admin.create_partitions([NewPartitions(topic, total)]))

    def describe_configs(self, kind: str, name: str) -> dict[str, str | None]:
        found = self._only(self.admin.describe_configs([ConfigResource(ResourceType[kind], name)]))
        return {key: entry.value for key, entry in found.items()}

    def alter_configs(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType[kind], name, set_config=dict(config))
        self._only(self.admin.alter_configs([resource]))

    def incremental_alter_configs(
        self, kind: str, name: str, config: Mapping[str, str | None]
    ) -> None:
        changes = [
            ConfigEntry(
                key,
                value,
                incremental_operation=(
                    AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
                ),
            )
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType[kind], name, incremental_configs=changes)
        self._only(self.admin.incremental_alter_configs([resource]))

    def delete_records(self, before: Mapping[Partition, int]) -> dict[Partition, int]:
        done = self.admin.delete_records([RdPartition(*p, at) for p, at in before.items()])
        return {
            Partition(tp.topic, tp.partition): future.result(SECONDS).low_watermark
            for tp, future in done.items()
        }

    def describe_cluster(self) -> Cluster:
        found = self.admin.describe_cluster().result(SECONDS)
        nodes = [f"{node.host}:{node.port}" for node in found.nodes]
        return Cluster(found.cluster_id, found.controller.id, nodes)

    def list_offsets(self, at: Mapping[Partition, str]) -> dict[Partition, At]:
        done = self.admin.list_offsets({RdPartition(*p): _spec(spec) for p, spec in at.items()})
        found = {tp: future.result(SECONDS) for tp, future in done.items()}
        return {
            Partition(tp.topic, tp.partition): At(one.offset, one.timestamp)
            for tp, one in found.items()
        }

    def close(self) -> None:
        """Nothing: it goes with the object."""


class ConfluentKafka(Client):
    name = "confluent-kafka"
    producer_class = _Producer
    consumer_class = _Consumer
    admin_class = _Admin


def _spec(at: str) -> OffsetSpec:
    named = {
        "latest": OffsetSpec.latest,
        "earliest": OffsetSpec.earliest,
        "max_timestamp": OffsetSpec.max_timestamp,
    }
    return named[at]() if at in named else OffsetSpec.for_timestamp(int(at))


def _received(message: Any) -> Received:
    kind, timestamp = message.timestamp()
    return Received(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp,
        TIMESTAMP_TYPES[kind],
        message.key(),
        message.value(),
        list(message.headers() or ()),
    )
