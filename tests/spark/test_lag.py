"""A stream's progress as a consumer group, by a listener and from a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from tests.spark.sending import Sent

from ottla.spark.errors import JobError
from ottla.spark.lag import GroupCommits, LagListener, committed, follow, offsets_of

Send = Callable[[str, list[Sent]], None]


def shown(broker: Broker, group: str) -> dict[tuple[str, int], int]:
    """What a lag tool sees."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    places = asked[group].result(30).topic_partitions
    return {(place.topic, place.partition): place.offset for place in places}


def records(count: int, partition: int = 0) -> list[Sent]:
    return [Sent(partition, None, b"%d" % n, 1_767_225_600_000 + n) for n in range(count)]


def stream(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("startingOffsets", "earliest").load()


def test_offsets_of_kafka_and_of_nothing_else() -> None:
    sources = ['{"a":{"0":5,"1":7}}', '{"a":{"1":3},"b":{"0":0}}', '{"logOffset":4}', "17", None]
    assert offsets_of(sources) == {("a", 0): 5, ("a", 1): 3, ("b", 0): 0}
    assert offsets_of(['{"a":{"0":-1}}', "", "{", '{"a":[1]}']) == {}


def checkpoint(folder: Path, batches: dict[int, dict[str, dict[str, int]]], done: int) -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    for batch, offsets in batches.items():
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offsets)}\n-")
        if batch <= done:
            (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
            (folder / "commits" / f".{batch}.crc").touch()
    return folder


def test_the_last_finished_batch_counts(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, {n: {"t": {"0": n * 10}} for n in (8, 9, 10, 11)}, done=10)
    assert committed(folder) == (10, {("t", 0): 100})


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="--checkpoint"):
        committed(tmp_path)
    assert committed(checkpoint(tmp_path, {0: {"t": {"0": 1}}}, done=-1)) is None
    (tmp_path / "commits" / "0").touch()
    (tmp_path / "offsets" / "0").write_text("v7\n")
    with pytest.raises(JobError, match="only v1"):
        committed(tmp_path)


def test_a_listener_shows_each_batch(
    spark: SparkSession,
    broker: Broker,
    topic: Callable[..., str],
    send: Send,
    tmp_path: Path,
) -> None:
    mine, other = topic(2), topic(1)
    send(mine, [*records(5), *records(3, 1)])
    send(other, records(1))
    listener = LagListener("listened", broker.bootstrap, query="the-one")
    spark.streams.addListener(listener)
    queries = [
        stream(spark, broker, name)
        .writeStream.format("noop")
        .queryName(title)
        .option("checkpointLocation", str(tmp_path / title))
        .start()
        for name, title in ((mine, "the-one"), (other, "another"))
    ]
    try:
        wanted = {(mine, 0): 5, (mine, 1): 3}
        eventually(lambda: shown(broker, "listened") == wanted, f"{wanted}", 60)
        send(mine, records(4))
        wanted[mine, 0] = 9
        eventually(lambda: shown(broker, "listened") == wanted, f"{wanted}", 60)
    finally:
        for query in queries:
            query.stop()
        spark.streams.removeListener(listener)
        listener.close()


def test_a_checkpoint_shows_a_stream_of_any_language(
    spark: SparkSession,
    broker: Broker,
    topic: Callable[..., str],
    send: Send,
    tmp_path: Path,
) -> None:
    name = topic(2)
    send(name, [*records(6), *records(2, 1)])
    query = (
        stream(spark, broker, name)
        .writeStream.format("noop")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    assert query.awaitTermination(60)
    commits = GroupCommits("from-checkpoint", broker.bootstrap)
    said: list[int] = []
    assert follow(tmp_path, commits, say=lambda batch, _: said.append(batch)) == 1
    assert follow(tmp_path, commits) == 0
    assert said == [0]
    assert shown(broker, "from-checkpoint") == {(name, 0): 6, (name, 1): 2}
    commits.close()


def test_a_group_with_members_is_left_alone(
    broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1)
    member = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "alive", "auto.offset.reset": "latest"}
    )
    member.subscribe([name])

    def joined() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    eventually(joined, "an assignment", 60)
    folder = checkpoint(tmp_path, {0: {name: {"0": 0}}}, done=0)
    commits = GroupCommits("alive", broker.bootstrap)
    with pytest.raises(JobError, match="--group alive"):
        follow(folder, commits)
    commits.close()
    member.close()
