"""From the archive back into a topic, and the audit of what came out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from compat_tests.harness.brokers import Broker
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from tests.spark.sending import Sent, produce

from ottla.spark.archive import ArchiveOptions, archive
from ottla.spark.audit import archive_side, audit, topic_side
from ottla.spark.audit_report import verdict, write_report
from ottla.spark.backfill import BackfillOptions, backfill, folder_sink
from ottla.spark.cluster import Cluster
from ottla.spark.errors import JobError
from ottla.spark.replay import ReplayOptions, replay
from ottla.spark.store import ParquetStore

pytestmark = pytest.mark.timeout(600)  # Spark is slow to start where cores are few

Make = Callable[..., str]
COUNT = 30


def records(count: int, first: int = 0) -> list[Sent]:
    return [
        Sent(
            n % 2,
            None if n % 5 == 0 else b"key-%d" % (n % 10),
            (None, b"", b"value-%d" % n)[n % 3],
            1_400_000_000_000 + n,
            [("a", b"1"), ("a", None), ("ü", b"")] if n % 2 else None,
        )
        for n in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def archived(
    spark: SparkSession,
    cluster: Cluster,
    broker: Broker,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, ParquetStore]:
    """A topic of two partitions and its archive."""
    cluster.create("source", 2, {"retention.ms": "-1"})
    produce(broker.bootstrap, "source", records(2 * COUNT))
    store = ParquetStore(tmp_path_factory.mktemp("replayed"))
    archive(spark, cluster, store, ArchiveOptions(["source"]))
    return "source", store


def test_a_replayed_topic_holds_the_same_records(
    spark: SparkSession,
    cluster: Cluster,
    archived: tuple[str, ParquetStore],
    topic: Make,
    tmp_path: Path,
) -> None:
    source, store = archived
    target = topic(2)
    options = ReplayOptions(source, target)
    assert replay(spark, cluster, store, options, tmp_path).sent == 2 * COUNT
    again = replay(spark, cluster, store, options, tmp_path)
    assert (again.sent, again.held) == (0, 2 * COUNT)
    left = topic_side(spark, cluster, target)
    for right, align in (
        (archive_side(spark, store, source, "x"), "order"),
        (topic_side(spark, cluster, source), "offsets"),
    ):
        result = audit(left, right, align=align)
        assert result.same, verdict(result)
        assert [row.left.records for row in result.partitions] == [COUNT, COUNT]
    report = tmp_path / "report.html"
    write_report(result, str(report))
    assert "data:image/png;base64," in report.read_text()
    assert "The same: 60 records" in report.read_text()


def test_a_replay_goes_on_behind_what_the_target_holds(
    spark: SparkSession,
    cluster: Cluster,
    archived: tuple[str, ParquetStore],
    topic: Make,
    broker: Broker,
    tmp_path: Path,
) -> None:
    source, store = archived
    target = topic(2)
    options = ReplayOptions(source, target)
    # A killed driver: the plan is written, and a prefix of each partition has been sent.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ottla.spark.replay._send", _die)
        with pytest.raises(KeyboardInterrupt):
            replay(spark, cluster, store, options, tmp_path)
    produce(broker.bootstrap, target, records(17))
    done = replay(spark, cluster, store, options, tmp_path)
    assert (done.held, done.sent) == (17, 2 * COUNT - 17)
    result = audit(
        topic_side(spark, cluster, target), archive_side(spark, store, source, "x"), align="order"
    )
    assert result.same, verdict(result)


def test_a_foreign_record_in_the_target_is_found(
    spark: SparkSession,
    cluster: Cluster,
    archived: tuple[str, ParquetStore],
    topic: Make,
    broker: Broker,
    tmp_path: Path,
) -> None:
    source, store = archived
    target = topic(2)
    options = ReplayOptions(source, target)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ottla.spark.replay._send", _die)
        with pytest.raises(KeyboardInterrupt):
            replay(spark, cluster, store, options, tmp_path)
    produce(broker.bootstrap, target, [*records(4), Sent(0, b"foreign", b"x", 1)])
    with pytest.raises(JobError, match="somebody else writes to it"):
        replay(spark, cluster, store, options, tmp_path)


def test_a_range_by_offset_and_time(
    spark: SparkSession,
    cluster: Cluster,
    archived: tuple[str, ParquetStore],
    topic: Make,
    tmp_path: Path,
) -> None:
    source, store = archived
    target = topic(2)
    options = ReplayOptions(source, target, start="0:10,1:29", end="@1400000000040", rate=10_000)
    replay(spark, cluster, store, options, tmp_path)
    ends = {p: end for p, (_, end) in cluster.offsets(target).items()}
    assert ends == {0: 10, 1: 0}


def test_an_audit_names_what_is_wrong(
    spark: SparkSession,
    cluster: Cluster,
    archived: tuple[str, ParquetStore],
    topic: Make,
    broker: Broker,
    tmp_path: Path,
) -> None:
    source, store = archived
    other = topic(2)
    changed = records(2 * COUNT - 1)
    changed[6] = Sent(0, changed[6].key, b"forged", changed[6].timestamp, changed[6].headers)
    produce(broker.bootstrap, other, changed)
    right = topic_side(spark, cluster, other)
    result = audit(archive_side(spark, store, source, "x"), right, align="order")
    assert not result.same
    assert result.partitions[0].differences == {"records with other content": 1}
    assert result.partitions[1].differences == {f"records missing in {right.name}": 1}
    assert {(row["partition"], row["place"]) for row in result.examples} == {(0, 3), (1, 29)}
    report = tmp_path / "report.html"
    write_report(result, str(report))
    assert "Not the same in 2 of 2 partitions" in report.read_text()


def test_transactions_leave_gaps_that_are_explained(
    spark: SparkSession, cluster: Cluster, broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for finish in (
        producer.commit_transaction,
        producer.abort_transaction,
        producer.commit_transaction,
        producer.flush,  # stays open
    ):
        producer.begin_transaction()
        for n in range(5):
            producer.produce(name, b"%d" % n, b"k", 0)
        producer.flush()
        finish(30)
    store = ParquetStore(tmp_path)
    assert archive(spark, cluster, store, ArchiveOptions([name])).records == 10
    result = audit(
        topic_side(spark, cluster, name), archive_side(spark, store, name, "x"), align="offsets"
    )
    assert result.same, verdict(result)
    (row,) = result.partitions
    assert (row.left.records, row.right.records) == (10, 10)
    assert row.left.gaps == {"aborted transactions": 5, "transaction markers": 2}
    assert sum(row.right.gaps.values()) == 7
    producer.abort_transaction(30)


def test_backfill_hands_over_at_the_exact_offset(
    spark: SparkSession, cluster: Cluster, broker: Broker, topic: Make, tmp_path: Path
) -> None:
    name = topic(2)
    produce(broker.bootstrap, name, records(20))
    store = ParquetStore(tmp_path / "archive")
    archive(spark, cluster, store, ArchiveOptions([name]))
    produce(broker.bootstrap, name, records(12, 20))
    options = BackfillOptions(name, str(tmp_path / "checkpoint"))
    sink = folder_sink(str(tmp_path / "out"))
    done = backfill(spark, cluster, store, sink, options)
    assert (done.archived, done.live) == (20, 12)
    produce(broker.bootstrap, name, records(6, 32))
    archive(
        spark, cluster, store, ArchiveOptions([name])
    )  # the archive moves on; it must not matter
    done = backfill(spark, cluster, store, sink, options)
    assert (done.archived, done.live) == (0, 6)
    rows = spark.read.parquet(str(tmp_path / "out")).select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == [(p, o) for p in range(2) for o in range(19)]


def _die(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt
