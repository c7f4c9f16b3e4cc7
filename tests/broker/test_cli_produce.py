"""`ottla produce`, against brokers in processes of their own."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.commands import Run, eventually, produce
from tests.broker.serving import Serving, ottla

from ottla.broker.cli_partitioner import partition_of


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data")
    keep = ("--override", "log.retention.ms=-1")  # records here have old timestamps
    broker = Serving("--data-dir", str(folder), "--durability", "os", *keep)
    yield broker.address
    assert broker.stop() == (0, "")


@pytest.fixture
def run(address: str, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(address, capsys)


def started(
    address: str, topic: str, *args: str, stdin: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (sys.executable, "-m", "ottla", "produce", topic, "-b", address, *args),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def values(run: Run, topic: str) -> list[object]:
    """The values of a topic that may not be there yet."""
    status, out, _ = run("consume", topic, "--exit")
    return [] if status else list(out.splitlines())


# ----------------------------------------------------------------------------------- lines, records


def test_lines_become_records_and_lines_again(address: str, run: Run) -> None:
    assert produce(address, "lines", "a\nb\r\nc") == "3 records, 3 bytes to 1 partition of lines\n"
    assert run("consume", "lines", "--exit") == (0, "a\nb\nc\n", "3 records\n")
    assert produce(address, "lines", "") == "0 records, 0 bytes to 0 partitions of lines\n"


def test_many_short_lines_fit_into_batches(address: str, run: Run) -> None:
    text = "".join(f"{n}\n" for n in range(200_000))
    assert "200,000 records, 1,088,890 bytes to 1 partition" in produce(address, "short", text)
    assert run("consume", "short", "--exit")[1] == text


def test_headers_and_empty_values_fill_batches(address: str, run: Run) -> None:
    header = "x" * 2000
    produce(address, "heads", "\n" * 3000, "--header", f"h={header}", "--header", "a=")
    (found,) = (row for row in run.json("topics", "list") if row["topic"] == "heads")
    assert found["records"] == 3000
    (record,) = run.json("consume", "heads", "--max-records", "1")
    assert (record["value"], record["headers"]) == ("", [["h", header], ["a", ""]])


def test_batches_that_are_too_large_for_the_topic_are_split(address: str, run: Run) -> None:
    run("topics", "create", "small", "--config", "max.message.bytes=1000")
    text = "".join(f"{n:090}\n" for n in range(100))
    produce(address, "small", text)
    assert run("consume", "small", "--exit")[1] == text
    done = ottla("produce", "small", "-b", address, stdin="a\n" + "x" * 2000 + "\nb\n")
    assert done.returncode == 1
    assert "small partition 0, line 2: " in done.stderr
    assert "MESSAGE_TOO_LARGE" in done.stderr
    assert "1 record was acknowledged; go on with line 2\n" in done.stderr


def test_keys_keep_their_partition_and_their_order(address: str, run: Run) -> None:
    run("topics", "create", "keyed", "--partitions", "3")
    produce(address, "keyed", "a:1\nb:2\na:3\nc:4\na:5\n", "--key-separator", ":")
    records = run.json("consume", "keyed", "--exit")
    for record in records:
        key = str(record["key"]).encode()
        assert record["partition"] == partition_of(key, 3)
    assert [r["value"] for r in records if r["key"] == "a"] == ["1", "3", "5"]
    _, out, _ = run("consume", "keyed", "--exit", "--key-separator", "=")
    assert sorted(out.splitlines()) == ["a=1", "a=3", "a=5", "b=2", "c=4"]


def test_tabs_and_nulls(address: str, run: Run) -> None:
    args = ("--key-separator", r"\t", "--null", "NIL")
    produce(address, "nulls", "k\tNIL\nNIL\tv\n\t\n", *args)
    assert [(r["key"], r["value"]) for r in run.json("consume", "nulls", "--exit")] == [
        ("k", None),
        (None, "v"),
        ("", ""),
    ]
    assert run("consume", "nulls", "--exit", "--key-separator", "=")[1] == "k=NULL\nNULL=v\n=\n"
    assert run("consume", "nulls", "--exit", "--null", "")[1] == "\nv\n\n"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_json_lines_carry_everything_through_every_codec(
    address: str, run: Run, codec: str
) -> None:
    topic = f"json-{codec}"
    run("topics", "create", topic, "--partitions", "2")
    sent = {
        "key": "ü",
        "value": None,
        "headers": [["h", "1"], ["h", {"base64": "/w=="}], ["n", None]],
        "timestamp": 1_700_000_000_000,
        "partition": 1,
    }
    said = produce(address, topic, json.dumps(sent) + "\n", "--json", "--compression", codec)
    assert json.loads(said) == {
        "topic": topic,
        "partition": 1,
        "records": 1,
        "first_offset": 0,
        "last_offset": 0,
    }
    assert run.json("consume", topic, "--exit") == [sent | {"offset": 0}]


def test_consumed_json_is_produced_as_the_same_bytes(address: str, run: Run) -> None:
    rows = [
        {"key_base64": "/wA=", "value_base64": "gA==", "headers": [], "timestamp": 5},
        {"key": None, "value": "\u2028\n\t\0", "headers": [["", ""]], "timestamp": 6},
        {"key": "", "value": None, "headers": [["a", "1"], ["a", None]], "timestamp": 7},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    run("topics", "create", "from", "--partitions", "2")
    run("topics", "create", "to", "--partitions", "2")
    produce(address, "from", text, "--json", "--partition", "1")
    _, out, _ = run("consume", "from", "--exit", "--json")
    produce(address, "to", out, "--json")
    assert run("consume", "to", "--exit", "--json")[1] == out
    assert [json.loads(line) for line in out.removesuffix("\n").split("\n")] == [
        row | {"partition": 1, "offset": n} for n, row in enumerate(rows)
    ]


def test_without_acks_the_records_arrive_all_the_same(address: str, run: Run) -> None:
    run("topics", "create", "noacks")
    produce(address, "noacks", "a\nb\n", "--acks", "0")
    assert run("consume", "noacks", "--max-records", "2")[1] == "a\nb\n"


@pytest.mark.parametrize(
    ("args", "text", "words", "status"),
    [
        (("--key-separator", ":"), "ab\n", "line 1 has no ':' between key and value", 1),
        (("--json",), "[]\n", "line 1 is not a JSON object", 1),
        (("--partition", "9"), "a\n", "line 1 cannot go to partition 9: p has", 1),
        (("--partition", "-1"), "a\n", "-1 is not a number from 0 to", 2),
        (("--key-separator", ""), "a\n", "argument --key-separator: it cannot be empty", 2),
        (("--header", "a"), "a\n", "'a' is not NAME=VALUE", 2),
        (("/nowhere/at/all",), "", "/nowhere/at/all: No such file or directory", 1),
        (("/",), "", "the input cannot be read: Is a directory", 1),
    ],
)  # fmt: skip
def test_wrong_lines_and_options(
    address: str, args: tuple[str, ...], text: str, words: str, status: int
) -> None:
    done = ottla("produce", "p", *args, "-b", address, stdin=text)
    assert done.returncode == status
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_lines_before_a_bad_one_are_sent(address: str, run: Run) -> None:
    done = ottla("produce", "bad", "--json", "-b", address, stdin='{"value":"a"}\n' * 3 + "{}\n")
    assert done.returncode == 1
    assert json.loads(done.stdout)["records"] == 3
    assert done.stderr.splitlines() == [
        "3 records were acknowledged; go on with line 4",
        'ottla: line 4 has no value: give "value", "value_base64", or "value": null for a'
        " tombstone",
    ]
    assert values(run, "bad") == ["a"] * 3


def test_a_topic_that_no_broker_creates_is_refused_at_once(tmp_path: Path) -> None:
    settings = ("--override", "auto.create.topics.enable=false")
    broker = Serving("--data-dir", str(tmp_path), *settings)
    done = ottla("produce", "nope", "-b", broker.address, stdin="a\n")
    assert done.returncode == 1
    assert done.stderr == (
        "ottla: nope: there is no such topic and the cluster creates none by itself"
        " (auto.create.topics.enable=false); `ottla topics create nope` does"
        " (UNKNOWN_TOPIC_OR_PARTITION)\n"
    )
    broker.stop()


def test_a_missing_file_leaves_the_cluster_alone(address: str, run: Run) -> None:
    assert ottla("produce", "untouched", "/nowhere", "-b", address).returncode == 1
    assert run("consume", "untouched", "--exit")[0] == 1


# ------------------------------------------------------------------------------- pauses and signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_lines_are_sent_when_the_input_pauses(address: str, run: Run, number: int) -> None:
    topic = f"slow-{number}"
    process = started(address, topic)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nthr")
    process.stdin.flush()
    eventually(lambda: values(run, topic) == ["one", "two"])
    process.stdin.write(b"ee\n")
    process.stdin.flush()
    eventually(lambda: values(run, topic) == ["one", "two", "three"])
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert errors.decode() == f"3 records, 11 bytes to 1 partition of {topic}\n"


def test_typed_lines_are_sent_one_by_one(address: str, run: Run) -> None:
    master, slave = pty.openpty()
    process = started(address, "typed", stdin=slave)
    os.close(slave)
    os.write(master, b"three\n")
    eventually(lambda: values(run, "typed") == ["three"])
    os.write(master, b"four\n\x04")
    _, errors = process.communicate(timeout=60)
    os.close(master)
    assert errors.decode().splitlines() == [
        "one record a line; Ctrl-D ends the input",
        "2 records, 9 bytes to 1 partition of typed",
    ]
    assert values(run, "typed") == ["three", "four"]


# ----------------------------------------------------------------------------------- broken brokers


def test_records_arrive_once_through_a_kill_and_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Serving("--data-dir", str(tmp_path))
    port = broker.address.rpartition(":")[2]
    run = Run(broker.address, capsys)
    process = started(broker.address, "long")
    assert process.stdin is not None

    def feed() -> None:
        assert process.stdin is not None
        for n in range(100):
            process.stdin.write(b"".join(b"%d\n" % (n * 1000 + i) for i in range(1000)))
            process.stdin.flush()
            time.sleep(0.02)
        process.stdin.close()

    feeder = threading.Thread(target=feed)
    feeder.start()
    eventually(lambda: len(values(run, "long")) > 2000)
    broker.process.kill()
    broker.process.wait()
    again = Serving("--data-dir", str(tmp_path), "--port", port)
    feeder.join()
    assert process.wait(120) == 0
    assert process.stderr is not None
    assert b"100,000 records" in process.stderr.read()
    assert values(run, "long") == [str(n) for n in range(100_000)]
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()
    broker.stop()
    again.stop()


def test_giving_up_says_with_which_line_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Serving("--data-dir", str(tmp_path))
    run = Run(broker.address, capsys)
    process = started(broker.address, "cut", "--timeout", "0.5")
    assert process.stdin is not None
    process.stdin.write(b"a\nb\n")
    process.stdin.flush()
    eventually(lambda: values(run, "cut") == ["a", "b"])
    broker.process.kill()
    broker.process.wait()
    process.stdin.write(b"c\n")
    process.stdin.flush()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    lines = errors.decode().splitlines()
    assert "; trying again for 0.5 s" in lines[0]
    assert lines[1:3] == [
        "2 records, 2 bytes to 1 partition of cut",
        "2 records were acknowledged; go on with line 3; lines from there on may have arrived all"
        " the same",
    ]
    assert re.match("ottla: .*connection refused", lines[3])
    broker.stop()


def test_a_port_that_answers_nothing_is_said_to_be_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        done = ottla("topics", "list", "-b", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr == (
        f"ottla: 127.0.0.1:{port} accepts connections but answers nothing: is it a Kafka broker?"
        " (set --bootstrap-server)\n"
    )
