"""What file names promise, what a consistent reader takes, and how a batch is planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.spark.archive import backlog, share
from ottla.spark.cluster import Range
from ottla.spark.compact import groups
from ottla.spark.errors import JobError
from ottla.spark.layout import Archived, DataFile, State, visible
from ottla.spark.records import connector_options, key_values
from ottla.spark.replay import bounds
from ottla.spark.store import ParquetStore, Plan


def file(start: int, end: int, partition: int = 0, date: str = "2013-01-01") -> DataFile:
    return DataFile("t", date, partition, start, end)


def state(reached: int) -> State:
    return State(commit=3, partitions={"t": {0: Archived(0, reached)}})


def test_a_name_says_the_range() -> None:
    name = Path(file(12, 40).path).name
    assert name == "p00000-00000000000000000012-00000000000000000040.parquet"
    assert DataFile.parse("t", "2013-01-01", name) == file(12, 40)
    assert DataFile.parse("t", "2013-01-01", "part-0000.parquet") is None


def test_uncommitted_files_are_not_read() -> None:
    assert visible([file(0, 10), file(10, 20)], state(10)) == [file(0, 10)]
    assert visible([file(0, 10, partition=7)], state(10)) == []


def test_replaced_files_are_passed_over_while_they_are_still_there() -> None:
    files = [file(0, 10), file(10, 20), file(0, 20), file(20, 30), file(0, 10, date="2013-01-02")]
    chosen = visible(files, state(30))
    assert chosen == [file(0, 20), file(20, 30), file(0, 10, date="2013-01-02")]


def test_a_state_survives_its_file() -> None:
    before = State(4, "c", {"t": "id"}, {"t": {0: Archived(5, 90, [[10, 20]])}})
    assert State.from_json(json.loads(json.dumps(before.to_json()))) == before


def test_an_archive_of_another_format_is_refused() -> None:
    with pytest.raises(JobError, match="format 99"):
        State.from_json(State().to_json() | {"format": 99})


def test_a_published_file_is_kept_when_the_plan_is_repeated(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(path: Path, values: list[int]) -> Path:
        pq.write_table(pa.table({"offset": values}), path)
        return path

    final = write(tmp_path / "final.parquet", [1, 2, 3])
    again = write(tmp_path / "again.parquet", [1])  # the topic has been compacted in between
    assert ParquetStore.place(again, final) == 3
    assert not again.exists()


def test_object_stores_are_refused_with_advice() -> None:
    with pytest.raises(JobError, match="--format delta"):
        ParquetStore("s3a://bucket/archive")


def test_a_plan_becomes_the_state_when_it_is_committed(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path)
    plan = Plan([Range("t", 0, 0, 5)], State(1, "c", {"t": "id"}, {"t": {0: Archived(0, 5)}}))
    store.begin(plan)
    assert store.state() == State()
    assert store.pending() == plan
    store.commit(plan)
    assert store.state() == plan.state
    assert store.pending() is None


def test_a_batch_takes_from_each_partition_in_proportion() -> None:
    waiting = [Range("t", 0, 100, 1100), Range("t", 1, 0, 10), Range("u", 0, 0, 90)]
    assert share(waiting, 5000) == waiting
    assert share(waiting, 110) == [
        Range("t", 0, 100, 200),
        Range("t", 1, 0, 1),
        Range("u", 0, 0, 9),
    ]


def test_new_partitions_start_where_their_log_does() -> None:
    known = state(10)
    waiting = backlog(known, "t", {0: (0, 15), 1: (7, 9)}, allow_gaps=False)
    assert waiting == [Range("t", 0, 10, 15), Range("t", 1, 7, 9)]
    assert known.partitions["t"][1] == Archived(7, 7)


def test_records_that_were_deleted_too_early_are_an_error_or_a_noted_gap() -> None:
    with pytest.raises(JobError, match="--allow-gaps"):
        backlog(state(10), "t", {0: (25, 30)}, allow_gaps=False)
    known = state(10)
    assert backlog(known, "t", {0: (25, 30)}, allow_gaps=True) == [Range("t", 0, 25, 30)]
    assert known.partitions["t"][0].lost == [[10, 25]]


def test_a_topic_with_fewer_records_than_the_archive_is_refused() -> None:
    with pytest.raises(JobError, match="ends at 4, but 10 is archived"):
        backlog(state(10), "t", {0: (0, 4)}, allow_gaps=True)


def test_neighbours_are_merged_up_to_the_target() -> None:
    files = [file(0, 1), file(1, 2), file(2, 3), file(0, 9, partition=1)]
    assert groups(files, dict.fromkeys(files, 40), 100) == [files[:2]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@1000", 1000),
        ("@1970-01-01", 0),
        ("@1970-01-01T00:00:01+00:00", 1000),
        ("0:5,3:7", {0: 5, 3: 7}),
    ],
)
def test_bounds_are_times_or_offsets(text: str, expected: object) -> None:
    assert bounds(text, "--from") == expected


@pytest.mark.parametrize("text", ["", "5", "@yesterday", "0=5"])
def test_bounds_that_are_neither_name_the_option(text: str) -> None:
    with pytest.raises(JobError, match="--until"):
        bounds(text, "--until")


def test_settings_are_key_and_value() -> None:
    assert key_values(["a=b=c"], "--conf") == {"a": "b=c"}
    with pytest.raises(JobError, match="--conf nothing"):
        key_values(["nothing"], "--conf")


def test_java_is_told_user_and_certificate_in_its_own_words() -> None:
    assert connector_options(
        "b:1",
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "u",
            "sasl.password": 'p"\\',
            "ssl.ca.location": "/ca.pem",
        },
    ) == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
        'required username="u" password="p\\"\\\\";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
    }
