"""One consumer in a process of its own, so that a test can kill, freeze and thaw it.

    python -m compat_tests.groups.member_process CLIENT OPTIONS

Standard output: a JSON line for everything that happens (`owns` with all partitions whenever they
change, `assigned`, `revoked`, `lost`, `record`). Standard input: a JSON line for every command
(`commit`, `committed`, `position`, `seek`, `pause`, `resume`, `work` for so many seconds, `close`),
answered with `done`. End of input is its end. java/Member.java is the same for Java's client.
"""

from __future__ import annotations

import abc
import asyncio
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

Pair = tuple[str, int]

_printing = threading.Lock()


def emit(event: str, **fields: Any) -> None:
    with _printing:
        print(json.dumps({"event": event, **fields}), flush=True)


def commands() -> queue.Queue[dict[str, Any]]:
    """What is asked on standard input."""
    asked: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            asked.put(json.loads(line))
        os._exit(0)  # the test is over: no goodbye

    threading.Thread(target=read, daemon=True).start()
    return asked


class Member(abc.ABC):
    """A consumer that polls, and does what it is told in between."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.owned: set[Pair] = set()
        self.starts: dict[Pair, int] = {(t, p): o for t, p, o in options.get("start_at", [])}
        """Where to begin, kept outside Kafka: sought whenever the partition is assigned."""
        self.commits_when_revoked = bool(options.get("commit_when_revoked"))

    def run(self) -> None:
        asked = commands()
        emit("ready")
        while True:
            try:
                command = asked.get_nowait()
            except queue.Empty:
                self.poll()
                self.tell_owned()
                continue
            try:
                emit("done", id=command["id"], result=self.do(command))
            except Exception as error:
                emit("done", id=command["id"], error=type(error).__name__, message=str(error))
            if command["op"] == "close":
                return

    def tell_owned(self) -> None:
        now = self.assignment()
        if now != self.owned:
            self.owned = now
            emit("owns", partitions=sorted(now))

    def do(self, command: dict[str, Any]) -> Any:
        match command["op"]:
            case "commit":
                offsets = command.get("offsets")
                return self.commit({(t, p): o for t, p, o in offsets} if offsets else None)
            case "committed":
                return self.committed((command["topic"], command["partition"]))
            case "position":
                return self.position((command["topic"], command["partition"]))
            case "seek":
                return self.seek((command["topic"], command["partition"]), command["offset"])
            case "pause":
                return self.pause((command["topic"], command["partition"]))
            case "resume":
                return self.resume((command["topic"], command["partition"]))
            case "work":
                return time.sleep(command["seconds"])
            case "close":
                return self.close()
        raise ValueError(command["op"])

    def on_assigned(self, pairs: Iterable[Pair]) -> None:
        pairs = sorted(pairs)
        emit("assigned", partitions=pairs)
        for pair in pairs:
            if pair in self.starts:
                self.seek(pair, self.starts[pair])

    def record(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        emit("record", topic=topic, partition=partition, offset=offset, value=value.decode())

    @abc.abstractmethod
    def poll(self) -> None: ...
    @abc.abstractmethod
    def assignment(self) -> set[Pair]: ...
    @abc.abstractmethod
    def commit(self, offsets: dict[Pair, int] | None) -> None: ...
    @abc.abstractmethod
    def committed(self, pair: Pair) -> int | None: ...
    @abc.abstractmethod
    def position(self, pair: Pair) -> int: ...
    @abc.abstractmethod
    def seek(self, pair: Pair, offset: int) -> None: ...
    @abc.abstractmethod
    def pause(self, pair: Pair) -> None: ...
    @abc.abstractmethod
    def resume(self, pair: Pair) -> None: ...
    @abc.abstractmethod
    def close(self) -> None: ...


class KafkaPython(Member):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        import kafka
        from kafka.coordinator.assignors.cooperative_sticky import (
            CooperativeStickyAssignor,
        )
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        self.kafka = kafka
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=options["bootstrap"],
            group_id=options["group"],
            group_instance_id=options.get("instance_id"),
            client_id=options["client_id"],
            partition_assignment_strategy=[assignors[name] for name in options["assignors"]],
            session_timeout_ms=options["session_ms"],
            heartbeat_interval_ms=options["heartbeat_ms"],
            max_poll_interval_ms=options["max_poll_ms"],
            auto_offset_reset="earliest",
            enable_auto_commit=options["auto_commit"],
            auto_commit_interval_ms=200,
            metadata_max_age_ms=options["metadata_ms"],
            request_timeout_ms=max(options["max_poll_ms"] + 5_000, 30_000),
            retry_backoff_ms=50,
        )
        outer = self

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                outer.on_assigned((tp.topic, tp.partition) for tp in assigned)

            def on_partitions_revoked(self, revoked: Any) -> None:
                emit("revoked", partitions=sorted((tp.topic, tp.partition) for tp in revoked))
                if revoked and outer.commits_when_revoked:
                    outer.consumer.commit_async()  # nothing may wait on the thread of the client

        if "pattern" in options:
            self.consumer.subscribe(pattern=options["pattern"], listener=Listener())
        else:
            self.consumer.subscribe(topics=options["topics"], listener=Listener())

    def poll(self) -> None:
        # Not shorter: when a poll ends while JoinGroup is parked, and the answers of JoinGroup and
        # SyncGroup come before the next poll waits, kafka-python 3.0 never applies the assignment.
        try:
            polled = self.consumer.poll(timeout_ms=1000)
        except self.kafka.errors.KafkaError as error:
            # It says so when no broker can be reached; whoever polls again is connected again.
            emit("error", name=type(error).__name__)
            time.sleep(0.1)
            return
        for records in polled.values():
            for one in records:
                self.record(one.topic, one.partition, one.offset, one.value)

    def assignment(self) -> set[Pair]:
        return {(tp.topic, tp.partition) for tp in self.consumer.assignment()}

    def commit(self, offsets: dict[Pair, int] | None) -> None:
        if offsets is None:
            self.consumer.commit()
            return
        from kafka.structs import OffsetAndMetadata

        self.consumer.commit(
            {self._tp(pair): OffsetAndMetadata(offset, "", -1) for pair, offset in offsets.items()}
        )

    def committed(self, pair: Pair) -> int | None:
        found = self.consumer.committed(self._tp(pair))
        return None if found is None else int(found)

    def position(self, pair: Pair) -> int:
        return int(self.consumer.position(self._tp(pair)))

    def seek(self, pair: Pair, offset: int) -> None:
        self.consumer.seek(self._tp(pair), offset)

    def pause(self, pair: Pair) -> None:
        self.consumer.pause(self._tp(pair))

    def resume(self, pair: Pair) -> None:
        self.consumer.resume(self._tp(pair))

    def close(self) -> None:
        self.consumer.close()

    def _tp(self, pair: Pair) -> Any:
        return self.kafka.TopicPartition(*pair)


class Confluent(Member):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        import confluent_kafka

        self.confluent = confluent_kafka
        config = {
            "bootstrap.servers": options["bootstrap"],
            "group.id": options["group"],
            "client.id": options["client_id"],
            "partition.assignment.strategy": ",".join(options["assignors"]),
            "session.timeout.ms": options["session_ms"],
            "heartbeat.interval.ms": options["heartbeat_ms"],
            "max.poll.interval.ms": max(options["max_poll_ms"], options["session_ms"]),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": options["auto_commit"],
            "auto.commit.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": options["metadata_ms"],
            "reconnect.backoff.max.ms": 500,
        }
        if options.get("instance_id"):
            config["group.instance.id"] = options["instance_id"]
        self.cooperative = options["assignors"] == ["cooperative-sticky"]
        self.consumer = confluent_kafka.Consumer(config)
        topics = [options["pattern"]] if "pattern" in options else options["topics"]
        self.consumer.subscribe(
            topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        self.fatal = False

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        emit("assigned", partitions=sorted((tp.topic, tp.partition) for tp in partitions))
        for tp in partitions:
            tp.offset = self.starts.get((tp.topic, tp.partition), tp.offset)
        if self.cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        emit("revoked", partitions=sorted((tp.topic, tp.partition) for tp in partitions))
        if partitions and self.commits_when_revoked:
            self.commit(None)

    def _lost(self, consumer: Any, partitions: list[Any]) -> None:
        emit("lost", partitions=sorted((tp.topic, tp.partition) for tp in partitions))

    def poll(self) -> None:
        for message in self.consumer.consume(500, 0.05):
            error = message.error()
            if error is None:
                self.record(message.topic(), message.partition(), message.offset(), message.value())
            else:
                emit("error", name=error.name(), fatal=error.fatal())

    def assignment(self) -> set[Pair]:
        try:
            return {(tp.topic, tp.partition) for tp in self.consumer.assignment()}
        except self.confluent.KafkaException:
            return set()  # fenced: it owns nothing any more

    def commit(self, offsets: dict[Pair, int] | None) -> None:
        if offsets is None:
            self.consumer.commit(asynchronous=False)
            return
        wanted = [self.confluent.TopicPartition(*pair, offset) for pair, offset in offsets.items()]
        for tp in self.consumer.commit(offsets=wanted, asynchronous=False):
            if tp.error is not None:
                raise self.confluent.KafkaException(tp.error)

    def committed(self, pair: Pair) -> int | None:
        (found,) = self.consumer.committed([self.confluent.TopicPartition(*pair)], timeout=10)
        return None if found.offset < 0 else int(found.offset)

    def position(self, pair: Pair) -> int:
        (found,) = self.consumer.position([self.confluent.TopicPartition(*pair)])
        return int(found.offset)

    def seek(self, pair: Pair, offset: int) -> None:
        self.consumer.seek(self.confluent.TopicPartition(*pair, offset))

    def pause(self, pair: Pair) -> None:
        self.consumer.pause([self.confluent.TopicPartition(*pair)])

    def resume(self, pair: Pair) -> None:
        self.consumer.resume([self.confluent.TopicPartition(*pair)])

    def close(self) -> None:
        self.consumer.close()


class AioKafka(Member):
    """Its consumer lives on a loop that runs between polls too, for its heartbeats."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        import aiokafka
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
        }
        self.aiokafka = aiokafka
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        outer = self

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                outer.on_assigned((tp.topic, tp.partition) for tp in assigned)

            async def on_partitions_revoked(self, revoked: Any) -> None:
                emit("revoked", partitions=sorted((tp.topic, tp.partition) for tp in revoked))
                if revoked and outer.commits_when_revoked:
                    await outer.consumer.commit()

        async def start() -> None:
            self.consumer = consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=options["bootstrap"],
                group_id=options["group"],
                group_instance_id=options.get("instance_id"),
                client_id=options["client_id"],
                partition_assignment_strategy=[assignors[name] for name in options["assignors"]],
                session_timeout_ms=options["session_ms"],
                heartbeat_interval_ms=options["heartbeat_ms"],
                max_poll_interval_ms=options["max_poll_ms"],
                rebalance_timeout_ms=options["max_poll_ms"],
                auto_offset_reset="earliest",
                enable_auto_commit=options["auto_commit"],
                auto_commit_interval_ms=200,
                metadata_max_age_ms=options["metadata_ms"],
                retry_backoff_ms=50,
            )
            if "pattern" in options:
                consumer.subscribe(pattern=options["pattern"], listener=Listener())
            else:
                consumer.subscribe(topics=options["topics"], listener=Listener())
            await consumer.start()  # which may assign already

        self._wait(start())

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def poll(self) -> None:
        for records in self._wait(self.consumer.getmany(timeout_ms=50)).values():
            for one in records:
                self.record(one.topic, one.partition, one.offset, one.value)

    def assignment(self) -> set[Pair]:
        return {(tp.topic, tp.partition) for tp in self.consumer.assignment()}

    def commit(self, offsets: dict[Pair, int] | None) -> None:
        wanted = None
        if offsets is not None:
            wanted = {self._tp(pair): offset for pair, offset in offsets.items()}
        self._wait(self.consumer.commit(wanted))

    def committed(self, pair: Pair) -> int | None:
        found = self._wait(self.consumer.committed(self._tp(pair)))
        return None if found is None else int(found)

    def position(self, pair: Pair) -> int:
        return int(self._wait(self.consumer.position(self._tp(pair))))

    def seek(self, pair: Pair, offset: int) -> None:
        self._there(self.consumer.seek, self._tp(pair), offset)

    def pause(self, pair: Pair) -> None:
        self._there(self.consumer.pause, self._tp(pair))

    def resume(self, pair: Pair) -> None:
        self._there(self.consumer.resume, self._tp(pair))

    def _there(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call on the loop's thread, which we are on in a listener."""
        if threading.current_thread() is self.thread:
            call(*arguments)
            return

        async def there() -> None:
            call(*arguments)

        self._wait(there())

    def close(self) -> None:
        self._wait(self.consumer.stop())

    def _tp(self, pair: Pair) -> Any:
        return self.aiokafka.TopicPartition(*pair)


MEMBERS: dict[str, type[Member]] = {
    "kafka-python": KafkaPython,
    "confluent-kafka": Confluent,
    "aiokafka": AioKafka,
}


def main() -> None:
    name, options = sys.argv[1:]
    MEMBERS[name](json.loads(options)).run()


if __name__ == "__main__":
    main()
