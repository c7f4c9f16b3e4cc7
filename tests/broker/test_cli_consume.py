"""`ottla consume`, against brokers in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.commands import Producer, Run, eventually, produce
from tests.broker.serving import Serving, ottla

from ottla.broker.cli_member import ranges


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data")
    keep = ("--override", "log.retention.ms=-1")  # records here have old timestamps
    broker = Serving("--data-dir", str(folder), "--durability", "os", *keep)
    rows = [{"value": str(n), "timestamp": 1_700_000_000_000 + n} for n in range(10)]
    produce(broker.address, "ten", "".join(json.dumps(row) + "\n" for row in rows), "--json")
    yield broker.address
    assert broker.stop() == (0, "")


@pytest.fixture
def run(address: str, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(address, capsys)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("earliest", "0123456789"),
        ("latest", ""),
        ("7", "789"),
        ("0:7", "789"),
        ("0:-2", "89"),
        ("-3", "789"),
        ("-99", "0123456789"),
        ("@1700000000004", "456789"),
        ("0:@1700000000004", "456789"),
        ("@2023-11-14T22:13:20.004", "456789"),
        ("@2023-11-14T23:13:20.004+01:00", "456789"),
        ("@2023-11-14", "0123456789"),
        ("@1900000000000", ""),
        ("99", ""),
        ("99999999999999999999999", ""),
    ],
)
def test_where_to_begin(run: Run, where: str, expected: str) -> None:
    _, out, errors = run("consume", "ten", "--exit", f"--from={where}")
    assert "".join(out.split()) == expected
    assert ("ten partition 0 ends at offset 10, before 9" in errors) == where.startswith("99")


def test_how_many(run: Run) -> None:
    assert "".join(run("consume", "ten", "--from=2", "--max-records", "3")[1].split()) == "234"
    assert run("consume", "ten", "--max-records", "0") == (0, "", "0 records\n")


def test_partitions_may_begin_at_different_places(address: str, run: Run) -> None:
    run("topics", "create", "two", "--partitions", "2")
    for partition in ("0", "1"):
        produce(address, "two", "a\nb\nc\n", "--partition", partition)
    records = run.json("consume", "two", "--exit", "--from", "0:2,1:@2100-01-01")
    assert [(r["partition"], r["offset"]) for r in records] == [(0, 2)]
    records = run.json("consume", "two", "--exit", "--partition", "1", "--from", "-1")
    assert [(r["partition"], r["offset"]) for r in records] == [(1, 2)]


def test_fields_that_are_asked_for(address: str, run: Run) -> None:
    row = {"key": "k", "value": None, "timestamp": 1_700_000_000_000}
    rows = [row | {"headers": [["a", "1"], ["b", None]]}, row | {"timestamp": -1}]
    produce(address, "fields", "".join(json.dumps(row) + "\n" for row in rows), "--json")
    fields = "partition,offset,timestamp,key,headers,value"
    assert run("consume", "fields", "--exit", "--print", fields)[1].splitlines() == [
        "0\t0\t2023-11-14T22:13:20.000Z\tk\ta=1,b=NULL\tNULL",
        "0\t1\t-1\tk\t\tNULL",
    ]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("none",), "none: there is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION)"),
        (("ten", "--partition", "4"), "ten has no partition 4, but 0 to 0"),
        (("ten", "--from", "4:1"), "ten has no partition 4, but 0 to 0"),
        (("ten", "--from", "0:1,x"), "--from 0:1,x: not PARTITION:WHERE, with commas between"),
        (("ten", "--from", "0:1", "--partition", "0"), "--from names partitions, and so does"),
        (("ten", "--from", "soon"), "--from soon: not earliest, latest, an offset, -N or @TIME"),
        (("ten", "--from", "@soon"), "--from @soon: not a time such as @2024-05-01"),
        (("ten", "--from", "@-5"), "--from @-5: not a time"),
        (("ten", "--from", "@99999999999999999999999"), "not a time"),
        (("ten", "--from", "0x5"), "--from 0x5: not earliest"),
        (("ten", "--max-records", "-1"), "-1 is not a number from 0"),
        (("ten", "--print", "key,colour"), "'colour' is not one of partition, offset"),
    ],
)
def test_wrong_options(run: Run, args: tuple[str, ...], words: str) -> None:
    status, out, errors = run("consume", *args)
    assert status in (1, 2)
    assert out == ""
    assert words in errors


def test_exit_ends_before_an_open_transaction(address: str, run: Run) -> None:
    run("topics", "create", "txn")
    run("topics", "create", "t")
    produce(address, "txn", "before\n")
    producer = Producer(address, "id")
    producer.produce(topic="txn", value=b"aborted")
    producer.end(committed=False)
    producer.produce(topic="txn", value=b"committed")
    producer.end(committed=True)
    producer.produce(topic="txn", value=b"open")
    produce(address, "txn", "behind\n")
    status, out, errors = run("consume", "txn", "--exit")
    assert (status, out) == (0, "before\ncommitted\n")
    assert errors == (
        "the last 2 offsets, at and behind an open transaction, are not shown: --isolation"
        " read_uncommitted does\n2 records\n"
    )
    _, out, errors = run("consume", "txn", "--exit", "--isolation", "read_uncommitted")
    assert out.split() == ["before", "aborted", "committed", "open", "behind"]
    assert errors == "5 records\n"
    producer.end(committed=True)
    assert run("consume", "txn", "--exit")[1].split() == ["before", "committed", "open", "behind"]


def test_records_that_retention_deleted_are_skipped_with_a_line(address: str, run: Run) -> None:
    produce(address, "gone", "a\nb\nc\n")
    assert run("topics", "delete-records", "gone", "--before", "2")[0] == 0
    _, out, errors = run("consume", "gone", "--exit", "--from", "1")
    assert (out, errors) == ("c\n", "gone partition 0 begins at offset 2, after 1\n1 record\n")


def test_a_full_disk_is_one_line(address: str) -> None:
    for args in (("consume", "ten", "--exit"), ("topics", "list")):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                (sys.executable, "-m", "ottla", *args, "-b", address),
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=120,
                check=False,
            )
        assert done.returncode == 1
        assert done.stderr.endswith("ottla: standard output: No space left on device\n")
        assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_ends_it(address: str) -> None:
    process = subprocess.Popen(
        (sys.executable, "-m", "ottla", "consume", "ten", "--exit", "-b", address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_consuming_continues_after_a_kill_and_a_restart(tmp_path: Path) -> None:
    broker = Serving("--data-dir", str(tmp_path))
    port = broker.address.rpartition(":")[2]
    produce(broker.address, "t", "a\nb\n")
    reader = subprocess.Popen(
        (sys.executable, "-m", "ottla", "consume", "t", "-b", broker.address, "--max-records", "3"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert [reader.stdout.readline() for _ in range(2)] == ["a\n", "b\n"]
    broker.process.kill()
    broker.process.wait()
    assert reader.stderr is not None
    assert "; trying again for 60 s" in reader.stderr.readline()
    again = Serving("--data-dir", str(tmp_path), "--port", port)
    produce(again.address, "t", "c\n")
    out, errors = reader.communicate(timeout=120)
    assert (reader.returncode, out, errors) == (0, "c\n", "3 records\n")
    broker.stop()
    again.stop()


def test_giving_up_says_where_to_go_on(tmp_path: Path) -> None:
    broker = Serving("--data-dir", str(tmp_path))
    produce(broker.address, "t", "a\nb\n")
    reader = subprocess.Popen(
        (sys.executable, "-m", "ottla", "consume", "t", "-b", broker.address, "--timeout", "0.2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert [reader.stdout.readline() for _ in range(2)] == ["a\n", "b\n"]
    broker.stop()
    _, errors = reader.communicate(timeout=120)
    assert reader.returncode == 1
    assert "2 records were printed; go on with --from 0:2\n" in errors
    assert "Traceback" not in errors


def test_the_help_names_the_isolation(address: str) -> None:
    assert "read_committed" in ottla("consume", "--help").stdout


# ------------------------------------------------------------------------------------------ groups


def test_a_group_continues_where_it_stopped(address: str, run: Run) -> None:
    as_group = ("consume", "ten", "--group", "readers")
    assert "".join(run(*as_group, "--max-records", "4")[1].split()) == "0123"
    (group,) = run.json("groups", "describe", "readers")
    assert (group["state"], group["lag"]) == ("Empty", 6)
    assert "".join(run(*as_group, "--exit")[1].split()) == "456789"
    assert run(*as_group, "--exit")[1] == ""
    latest = ("consume", "ten", "--group", "late", "--from", "-2")
    assert "".join(run(*latest, "--exit")[1].split()) == "89"


def test_members_of_a_group_share_the_partitions(address: str, run: Run) -> None:
    run("topics", "create", "shared", "--partitions", "2")
    args = ("consume", "shared", "--group", "both", "--max-records", "1", "-b", address)
    readers = [
        subprocess.Popen((sys.executable, "-m", "ottla", *args), stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]

    def members() -> set[str]:
        status, out, _ = run("groups", "describe", "both", "--json")
        return {one["member"] for one in json.loads(out)["partitions"]} if not status else set()

    eventually(lambda: len(members() - {""}) == 2)
    for partition in ("0", "1"):
        produce(address, "shared", f"{partition}\n", "--partition", partition)
    assert sorted(reader.communicate(timeout=120)[0] for reader in readers) == ["0\n", "1\n"]
    (group,) = run.json("groups", "describe", "both")
    assert (group["state"], group["lag"]) == ("Empty", 0)


def test_a_group_decides_about_partitions(run: Run) -> None:
    for args in (("--partition", "0"), ("--from", "0:5")):
        status, _, errors = run("consume", "ten", "--group", "g", *args)
        assert status == 1
        assert "with --group the group decides about partitions" in errors


def test_ranges() -> None:
    assert ranges(["a", "b", "c"], 7) == {"a": range(3), "b": range(3, 5), "c": range(5, 7)}
    assert ranges(["a", "b"], 1) == {"a": range(1), "b": range(1, 1)}
