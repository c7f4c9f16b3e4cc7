"""Java's own client (kafka-clients), in one JVM a session (java/Driver.java)."""

from __future__ import annotations

import atexit
import base64
import concurrent.futures
import functools
import hashlib
import itertools
import json
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compat_tests.apache import distribution
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

SOURCES = sorted((Path(__file__).parent.parent / "java").glob("*.java"))
SECONDS = 120.0


def compiled() -> Path:
    """The folder with the classes of java/, compiled when a source or the jars are new."""
    libs = distribution.libs()
    names = "".join(sorted(jar.name for jar in libs.glob("*.jar")))
    text = b"".join(source.read_bytes() for source in SOURCES)
    digest = hashlib.sha256(text + names.encode()).hexdigest()[:16]
    folder = distribution.ROOT / ".cache" / f"java-driver-{digest}"
    if not folder.exists():
        javac = shutil.which("javac")
        if javac is None:
            raise distribution.Unavailable("no javac on PATH: a JRE is not enough, install a JDK")
        partial = folder.with_name(f"{folder.name}.{threading.get_native_id()}")
        subprocess.run([javac, "-d", partial, "-cp", f"{libs}/*", *SOURCES], check=True)
        if folder.exists():  # another process was faster
            shutil.rmtree(partial)
        else:
            partial.rename(folder)
    return folder


class Jvm:
    """The driver process: requests out, answers in, by id."""

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.waiting: dict[int, concurrent.futures.Future[Any]] = {}
        self.lock = threading.Lock()
        self.process = subprocess.Popen(
            [
                *distribution.jvm("256m"),
                "-XX:TieredStopAtLevel=1",
                # warnings about brokers that restart are part of the tests
                "-Dottla.loglevel=fatal",
                *("-cp", f"{compiled()}:{distribution.libs()}/*"),
                "Driver",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, name="java answers", daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            future = self.waiting.pop(answer["id"])
            if "error" in answer:
                future.set_exception(Failed(answer["error"], answer["message"]))
            else:
                future.set_result(answer["result"])
        for future in self.waiting.values():
            future.set_exception(Failed("Driver", "the JVM went away"))

    def ask(self, handle: str, op: str, **fields: Any) -> concurrent.futures.Future[Any]:
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        with self.lock:
            id = next(self.ids)
            self.waiting[id] = future
            assert self.process.stdin is not None
            line = {"id": id, "handle": handle, "op": op, **fields}
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()
        return future

    def stop(self) -> None:
        """End of its input is its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()


@functools.cache
def jvm() -> Jvm:
    started = Jvm()
    atexit.register(started.stop)
    return started


_handles = itertools.count(1)


class Handle:
    """One producer, consumer or admin client on the Java side."""

    def __init__(self, op: str, config: Mapping[str, object]) -> None:
        self.name = f"{op}-{next(_handles)}"
        self.call(op, config={key: str(value) for key, value in config.items()})

    def ask(self, op: str, **fields: Any) -> concurrent.futures.Future[Any]:
        return jvm().ask(self.name, op, **fields)

    def call(self, op: str, **fields: Any) -> Any:
        return self.ask(op, **fields).result(SECONDS)


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class _Pending(Pending):
    def __init__(self, future: concurrent.futures.Future[Any]) -> None:
        self.future = future

    def result(self, timeout: float = 30) -> Ack:
        try:
            return Ack(*self.future.result(timeout))
        except TimeoutError:
            raise Failed("TimeoutError") from None


class _Producer(Producer):
    def __init__(self, bootstrap: str, options: ProducerOptions) -> None:
        transactional: dict[str, object] = {}
        if options.transactional_id is not None:
            transactional = {
                "transactional.id": options.transactional_id,
                "transaction.timeout.ms": options.transaction_timeout_ms,
            }
        self.handle = Handle(
            "producer",
            {
                "bootstrap.servers": bootstrap,
                "acks": options.acks,
                "enable.idempotence": str(options.idempotent or bool(transactional)).lower(),
                "compression.type": options.compression,
                "linger.ms": options.linger_ms,
                "batch.size": options.batch_bytes,
                "max.request.size": options.max_request_bytes,
                "delivery.timeout.ms": options.delivery_timeout_ms,
                "request.timeout.ms": min(10_000, options.delivery_timeout_ms),
                **transactional,
            },
        )
        if transactional:
            self.handle.call("init_transactions")

    def begin(self) -> None:
        self.handle.call("begin")

    def send_offsets(self, offsets: Mapping[Partition, int], group: str) -> None:
        named = [{**p._asdict(), "offset": offset} for p, offset in offsets.items()]
        self.handle.call("send_offsets", partitions=named, group=group)

    def commit(self) -> None:
        self.handle.call("commit")

    def abort(self) -> None:
        self.handle.call("abort")

    def send(self, message: Message) -> Pending:
        return _Pending(
            self.handle.ask(
                "send",
                topic=message.topic,
                partition=message.partition,
                timestamp=message.timestamp,
                key=encoded(message.key),
                value=encoded(message.value),
                headers=[(name, encoded(value)) for name, value in message.headers],
            )
        )

    def flush(self) -> None:
        self.handle.call("flush")

    def close(self) -> None:
        self.handle.call("close")


class _Consumer(Consumer):
    def __init__(self, bootstrap: str, options: ConsumerOptions) -> None:
        self.handle = Handle(
            "consumer",
            {
                "bootstrap.servers": bootstrap,
                "enable.auto.commit": "false",
                "fetch.max.wait.ms": options.max_wait_ms,
                "fetch.min.bytes": options.min_bytes,
                "fetch.max.bytes": options.max_bytes,
                "max.partition.fetch.bytes": options.max_partition_bytes,
                "isolation.level": options.isolation_level,
                "auto.offset.reset": options.auto_offset_reset,
            },
        )

    def assign(self, positions: Mapping[Partition, int]) -> None:
        asked = [{**p._asdict(), "offset": offset} for p, offset in positions.items()]
        self.handle.call("assign", partitions=asked)

    def seek(self, partition: Partition, offset: int) -> None:
        self.handle.call("seek", **partition._asdict(), offset=offset)

    def seek_to_beginning(self, partition: Partition) -> None:
        self.handle.call("seek_to_beginning", **partition._asdict())

    def seek_to_end(self, partition: Partition) -> None:
        self.handle.call("seek_to_end", **partition._asdict())

    def position(self, partition: Partition) -> int:
        return int(self.handle.call("position", **partition._asdict()))

    def poll(self, seconds: float) -> list[Received]:
        return [
            Received(
                one["topic"],
                one["partition"],
                one["offset"],
                one["timestamp"],
                one["timestamp_type"],
                decoded(one["key"]),
                decoded(one["value"]),
                [(name, decoded(value)) for name, value in one["headers"]],
            )
            for one in self.handle.call("poll", timeout_ms=int(seconds * 1000))
        ]

    def _offsets(self, op: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return _by_partition(self.handle.call(op, partitions=[p._asdict() for p in partitions]))

    def beginning_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return self._offsets("beginning_offsets", partitions)

    def end_offsets(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        return self._offsets("end_offsets", partitions)

    def offsets_for_times(self, times: Mapping[Partition, int]) -> dict[Partition, int]:
        asked = [{**p._asdict(), "timestamp": at} for p, at in times.items()]
        return _by_partition(self.handle.call("offsets_for_times", partitions=asked))

    def close(self) -> None:
        self.handle.call("close")


class _Admin(Admin):
    def __init__(self, bootstrap: str) -> None:
        config = {"bootstrap.servers": bootstrap, "default.api.timeout.ms": 30_000}
        self.handle = Handle("admin", config)

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self.handle.call("create_topic", topic=topic, partitions=partitions, config=dict(config))

    def delete_topic(self, topic: str) -> None:
        self.handle.call("delete_topic", topic=topic)

    def list_topics(self) -> set[str]:
        return set(self.handle.call("list_topics"))

    def describe_topic(self, topic: str) -> TopicDescription:
        found = self.handle.call("describe_topic", topic=topic)
        leaders = {int(p): leader for p, leader in found["leaders"].items()}
        return TopicDescription(found["topic_id"], leaders)

    def create_partitions(self, topic: str, total: int) -> None:
        self.handle.call("create_partitions", topic=topic, total=total)

    def describe_configs(self, kind: str, name: str) -> dict[str, str | None]:
        return dict(self.handle.call("describe_configs", kind=kind, name=name))

    def incremental_alter_configs(
        self, kind: str, name: str, config: Mapping[str, str | None]
    ) -> None:
        self.handle.call("incremental_alter_configs", kind=kind, name=name, config=dict(config))

    def delete_records(self, before: Mapping[Partition, int]) -> dict[Partition, int]:
        asked = [{**p._asdict(), "offset": offset} for p, offset in before.items()]
        return _by_partition(self.handle.call("delete_records", partitions=asked))

    def log_dirs(self) -> dict[Partition, int]:
        return _by_partition(self.handle.call("log_dirs"), "size")

    def describe_cluster(self) -> Cluster:
        return Cluster(**self.handle.call("describe_cluster"))

    def list_offsets(self, at: Mapping[Partition, str]) -> dict[Partition, At]:
        asked = [{**p._asdict(), "at": spec} for p, spec in at.items()]
        return {
            Partition(one["topic"], one["partition"]): At(one["offset"], one["timestamp"])
            for one in self.handle.call("list_offsets", partitions=asked)
        }

    def close(self) -> None:
        self.handle.call("close")


class JavaKafka(Client):
    name = "java"
    producer_class = _Producer
    consumer_class = _Consumer
    admin_class = _Admin


def _by_partition(found: Sequence[Mapping[str, Any]], key: str = "offset") -> dict[Partition, int]:
    return {Partition(one["topic"], one["partition"]): one[key] for one in found}
