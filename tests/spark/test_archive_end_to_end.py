"""Topics into Parquet and what is true of the files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from tests.spark.sending import Sent

from ottla.spark.archive import ArchiveOptions, archive
from ottla.spark.cluster import Cluster
from ottla.spark.compact import compact
from ottla.spark.errors import JobError
from ottla.spark.store import ParquetStore, Plan
from ottla.spark.values import ValueSchema

DAY = 86_400_000
pytestmark = pytest.mark.timeout(600)  # Spark is slow to start where cores are few

Make = Callable[..., str]
Send = Callable[[str, list[Sent]], None]


def records(count: int, first: int = 0, partitions: int = 2) -> list[Sent]:
    """Over two days, with nulls, empty values and repeated headers among them."""
    headers: list[list[tuple[str, bytes | None]] | None] = [
        None,
        [("a", b"1"), ("a", None), ("ü", b"")],
    ]
    return [
        Sent(
            n % partitions,
            None if n % 7 == 0 else b"key-%d" % (n % 10),
            (None, b"", b"value-%d" % n)[n % 3],
            1_700_000_000_000 + n % 2 * DAY + n,
            headers[n % 2],
        )
        for n in range(first, first + count)
    ]


def plain_rows(root: Path) -> list[tuple[int, int]]:
    """Partition and offset of every row, as any Parquet reader finds them."""
    table = pyarrow.dataset.dataset(root, partitioning="hive").to_table()
    return sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def test_what_is_archived_is_what_was_sent(
    spark: SparkSession, cluster: Cluster, topic: Make, send: Send, root: Path
) -> None:
    name = topic(2)
    sent = records(60)
    send(name, sent)
    store = ParquetStore(root)
    done = archive(spark, cluster, store, ArchiveOptions([name], batch_size=25))
    assert (done.records, done.batches, done.recovered) == (60, 3, False)
    for partition in range(2):
        rows = store.read(spark, name).where(f"partition = {partition}").sort("offset").collect()
        assert [row["offset"] for row in rows] == list(range(30))
        assert [
            (
                row["key"] and bytes(row["key"]),
                row["value"] if row["value"] is None else bytes(row["value"]),
                int(row["timestamp"].timestamp() * 1000),
                [
                    (h["key"], h["value"] if h["value"] is None else bytes(h["value"]))
                    for h in row["headers"] or []
                ]
                or None,
            )
            for row in rows
        ] == [(s.key, s.value, s.timestamp, s.headers) for s in sent if s.partition == partition]
        assert {row["timestampType"] for row in rows} == {0}
    assert len(list(root.glob(f"topic={name}/date=*"))) == 2
    again = archive(spark, cluster, store, ArchiveOptions([name]))
    assert again.records == 0
    assert plain_rows(root) == [(p, o) for p in range(2) for o in range(30)]


@pytest.mark.parametrize("step", ["stage", "publish", "place", "commit"])
def test_a_driver_that_dies_at_any_step_neither_loses_nor_doubles(
    step: str,
    spark: SparkSession,
    cluster: Cluster,
    topic: Make,
    send: Send,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Died(Exception):
        pass

    name = topic(2)
    send(name, records(20))
    placed: list[Path] = []

    def die(*arguments: object) -> None:
        raise Died

    def place_one(staged: Path, final: Path) -> int:
        if placed:
            raise Died
        placed.append(final)
        return original(staged, final)

    original = ParquetStore.place
    with monkeypatch.context() as patched:
        replacement = staticmethod(place_one) if step == "place" else die
        patched.setattr(ParquetStore, step, replacement)
        with pytest.raises(Died):
            archive(spark, cluster, ParquetStore(root), ArchiveOptions([name]))
    send(name, records(6, 20))
    assert ParquetStore(root).snapshot(name) == []  # nothing is promised yet
    done = archive(spark, cluster, ParquetStore(root), ArchiveOptions([name]))
    assert (done.recovered, done.records) == (True, 26)
    assert plain_rows(root) == [(p, o) for p in range(2) for o in range(13)]


def test_two_jobs_do_not_write_one_archive(
    spark: SparkSession, cluster: Cluster, topic: Make, root: Path
) -> None:
    store = ParquetStore(root)
    with store.writing(), pytest.raises(JobError, match="another archive job"), store.writing():
        pass


def test_small_files_become_one_and_no_record_is_seen_twice(
    spark: SparkSession, cluster: Cluster, topic: Make, send: Send, root: Path
) -> None:
    name = topic(1)
    store = ParquetStore(root)
    for first in range(0, 40, 10):
        send(name, records(10, first, 1))
        archive(spark, cluster, store, ArchiveOptions([name]))
    assert len(store.files()) == 8
    held = compact(spark, store, grace=3600)
    assert (held.replaced, held.written, held.removed) == (8, 2, 0)
    # Both are there, as after a crash: a reader of the archive still sees each record once.
    assert len(store.files()) == 10
    assert store.read(spark, name).count() == 40
    assert compact(spark, store).removed == 8
    assert plain_rows(root) == [(0, n) for n in range(40)]
    assert archive(spark, cluster, store, ArchiveOptions([name])).records == 0


def test_replaced_files_go_as_soon_as_their_merged_one_is_there(
    spark: SparkSession,
    cluster: Cluster,
    topic: Make,
    send: Send,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = topic(2)
    store = ParquetStore(root)
    for first in range(0, 40, 10):
        send(name, records(10, first, 2))
        archive(spark, cluster, store, ArchiveOptions([name]))
    before = plain_rows(root)
    seen = []
    place = ParquetStore.place

    def look_first(staged: Path, final: Path) -> int:
        seen.append(plain_rows(root))
        return place(staged, final)

    monkeypatch.setattr(ParquetStore, "place", staticmethod(look_first))
    assert compact(spark, store).written == len(seen) > 1
    assert all(rows == before for rows in seen)  # nothing twice but between two system calls


def test_bad_values_go_to_the_dead_letter_topic_with_where_and_why(
    spark: SparkSession, cluster: Cluster, topic: Make, send: Send, root: Path
) -> None:
    name, dead = topic(1), topic(1)
    values = [b'{"n": 1}', b"{", None, b'{"n": "one"}']
    time = 1_700_000_000_000
    send(name, [Sent(0, b"k", value, time, [("h", b"x")]) for value in values])
    schema = ValueSchema("json", "n INT")
    options = ArchiveOptions([name], schema=schema, dead_letter_topic=dead)
    archive(spark, cluster, ParquetStore(root), options)
    rows = ParquetStore(root).read(spark, name, parsed=schema.struct()).sort("offset").collect()
    assert [row["data"] and row["data"]["n"] for row in rows] == [1, None, None, None]
    assert [row["error"] is None for row in rows] == [True, False, True, False]
    letters = _all(cluster.bootstrap, dead, 2)
    assert sorted(value or b"" for value, _ in letters) == [b"{", b'{"n": "one"}']
    for _, headers in letters:
        assert headers[0] == ("h", b"x")
        assert dict(headers)["ottla.origin.topic"] == name.encode()
        assert dict(headers)["ottla.origin.offset"] in (b"1", b"3")
        assert b"not JSON of the given schema" in dict(headers)["ottla.error"]


def test_a_recreated_topic_is_refused_with_advice(
    spark: SparkSession, cluster: Cluster, topic: Make, send: Send, root: Path
) -> None:
    name = topic(1)
    send(name, records(4, 0, 1))
    store = ParquetStore(root)
    archive(spark, cluster, store, ArchiveOptions([name]))
    last = max((root / "_ottla/commits").iterdir())
    state = json.loads(last.read_text())
    state["topic_ids"][name] = "another"
    last.write_text(json.dumps(state))
    with pytest.raises(JobError, match="another --archive"):
        archive(spark, cluster, store, ArchiveOptions([name]))


def test_a_plan_of_a_killed_run_is_found(root: Path) -> None:
    store = ParquetStore(root)
    assert store.pending() is None
    state = store.state()
    state.commit = 1
    with store.writing():
        store.begin(Plan([], state))
    assert store.pending() == Plan([], state)


def _all(
    bootstrap: str, topic: str, count: int
) -> list[tuple[bytes | None, list[tuple[str, bytes]]]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes | None, list[tuple[str, bytes]]]] = []
    while len(found) < count:
        for message in consumer.consume(count, 10):
            assert message.error() is None
            found.append((message.value(), message.headers()))
    consumer.close()
    return found
