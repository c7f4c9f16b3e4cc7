"""The commands that speak to a cluster, against a broker in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.serving import Serving, ottla

from ottla.broker.cli import main
from ottla.broker.cli_client import ClientError, Cluster, addresses
from ottla.broker.cli_partitioner import murmur2, partition_of


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data")
    broker = Serving("--data-dir", str(folder), "--durability", "os")
    yield broker.address
    assert broker.stop() == (0, "")


class Run:
    """Runs commands in this process and keeps what they print."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._address = address
        self._capsys = capsys

    def __call__(self, *args: str) -> tuple[int, str, str]:
        status = main([*args, "--bootstrap-server", self._address])
        return status, *self._capsys.readouterr()

    def json(self, *args: str) -> list[dict[str, object]]:
        status, out, _ = self(*args, "--json")
        assert status == 0
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def run(address: str, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(address, capsys)


def produce(address: str, topic: str, text: str, *args: str) -> str:
    done = ottla("produce", topic, "-b", address, *args, stdin=text)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


# ----------------------------------------------------------------------------------------- topics


def test_a_topic_from_its_making_to_its_end(run: Run) -> None:
    assert run("topics", "create", "life", "--partitions", "2", "--config", "retention.ms=7") == (
        0,
        "",
        "created life\n",
    )
    (found,) = run.json("topics", "describe", "life")
    assert found["configs"] == {"retention.ms": "7"}
    assert found["partitions"] == [
        {"partition": n, "leader": 1, "start": 0, "end": 0, "offsets": 0} for n in (0, 1)
    ]
    alter = ("topics", "alter", "life", "--partitions", "3", "--config", "segment.ms=9")
    assert run(*alter, "--delete-config", "retention.ms") == (0, "", "altered life\n")
    (found,) = run.json("topics", "describe", "life")
    assert found["configs"] == {"segment.ms": "9"}
    assert len(found["partitions"]) == 3  # type: ignore[arg-type]
    assert [
        (topic["topic"], topic["partitions"])
        for topic in run.json("topics", "list")
        if topic["topic"] == "life"
    ] == [("life", 3)]
    assert run("topics", "delete", "life") == (0, "", "deleted life\n")
    assert run("topics", "describe", "life")[::2] == (
        1,
        "ottla: life: UNKNOWN_TOPIC_OR_PARTITION\n",
    )


def test_lists_are_tab_separated_where_they_are_piped(run: Run) -> None:
    run("topics", "create", "tabs")
    _, out, _ = run("topics", "list")
    lines = [line.split("\t") for line in out.splitlines()]
    assert lines[0] == ["topic", "partitions", "topic_id"]
    assert [line[:2] for line in lines if line[0] == "tabs"] == [["tabs", "1"]]


def test_what_cannot_be_done_is_said_and_the_rest_done(run: Run) -> None:
    assert run("topics", "create", "there")[0] == 0
    status, _, errors = run("topics", "create", "there", "b d", "other")
    assert status == 1
    assert errors.splitlines() == [
        "ottla: TOPIC_ALREADY_EXISTS: there: topic 'there' already exists",
        "ottla: INVALID_TOPIC_EXCEPTION: b d: topic name 'b d' may hold only letters, digits,"
        " '.', '_' and '-'",
        "created other",
    ]
    assert run("topics", "create", "there", "--if-not-exists") == (0, "", "exists there\n")
    status, _, errors = run("topics", "alter", "there", "--config", "retention.ms=soon")
    assert (status, errors) == (1, "ottla: retention.ms=soon: must be a whole number (64 bit)\n")
    status, _, errors = run("topics", "alter", "there")
    assert status == 1
    assert "nothing to alter" in errors
    assert run("topics", "create", "x", "--config", "retention.ms")[::2] == (
        1,
        "ottla: --config=retention.ms: must be key=value\n",
    )


# ------------------------------------------------------------------------------- produce, consume


def test_lines_become_records_and_lines_again(address: str, run: Run) -> None:
    said = produce(address, "lines", "a\nb\nc\n")
    assert said == "3 records, 3 bytes to 1 partitions of lines\n"
    assert run("consume", "lines", "--exit") == (0, "a\nb\nc\n", "3 records\n")


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


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_json_lines_carry_everything_through_every_codec(
    address: str, run: Run, codec: str
) -> None:
    topic = f"json-{codec}"
    run("topics", "create", topic, "--partitions", "2")
    sent = {
        "key": "ü",
        "value": None,
        "headers": {"h": "1", "n": None},
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


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("earliest", "0123456789"),
        ("latest", ""),
        ("7", "789"),
        ("-3", "789"),
        ("-99", "0123456789"),
        ("@1700000000004", "456789"),
        ("@1900000000000", ""),
    ],
)
def test_where_to_begin(address: str, run: Run, where: str, expected: str) -> None:
    topic = "begin"
    if all(found["topic"] != topic for found in run.json("topics", "list")):
        rows = [{"value": str(n), "timestamp": 1_700_000_000_000 + n} for n in range(10)]
        produce(address, topic, "".join(json.dumps(row) + "\n" for row in rows), "--json")
    _, out, _ = run("consume", topic, "--exit", f"--from={where}")
    assert "".join(out.split()) == expected
    _, out, _ = run("consume", topic, "--from=2", "--max-records", "3")
    assert "".join(out.split()) == "234"


def test_without_acks_the_records_arrive_all_the_same(address: str, run: Run) -> None:
    run("topics", "create", "noacks")
    produce(address, "noacks", "a\nb\n", "--acks", "0")
    assert run("consume", "noacks", "--max-records", "2")[1] == "a\nb\n"


def test_what_produce_and_consume_refuse(address: str, run: Run) -> None:
    for args, text, says in (
        (("p", "--key-separator", ":"), "ab\n", "line 1 has no ':'"),
        (("p", "--json"), "[]\n", "line 1 is no record in JSON"),
        (("p", "--partition", "9"), "a\n", "p has no partition 9"),
        (("b d",), "a\n", "INVALID_TOPIC_EXCEPTION"),
    ):
        done = ottla("produce", *args, "-b", address, stdin=text)
        assert done.returncode == 1
        assert says in done.stderr
    assert run("consume", "none", "--exit")[::2] == (
        1,
        "ottla: none: UNKNOWN_TOPIC_OR_PARTITION\n",
    )
    assert "p has no partition 4" in run("consume", "p", "--partition", "4")[2]
    assert "--from soon" in run("consume", "p", "--from", "soon")[2]


# --------------------------------------------------------------------------------------- the client


def test_an_address_nobody_listens_at() -> None:
    with pytest.raises(ClientError, match=r"no broker at 127\.0\.0\.1:1: Connection refused"):
        Cluster("127.0.0.1:1")
    assert addresses("a:1, [::1]:2") == [("a", 1), ("::1", 2)]
    for bad in ("a", ":1", "a:b"):
        with pytest.raises(ClientError, match="is not host:port"):
            addresses(bad)


def test_the_first_address_that_answers_is_taken(address: str) -> None:
    with Cluster(f"127.0.0.1:1,{address}") as cluster:
        cluster.topics()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_that_of_kafkas_own_clients(key: bytes, value: int) -> None:
    """The values are those Kafka's own tests hold its hash against, as Java's signed ints."""
    assert murmur2(key) == value & 0xFFFFFFFF


def test_help_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["--help"], ["serve", "--help"], ["topics", "create", "--help"]):
        with pytest.raises(SystemExit) as caught:
            main(args)
        assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "./ottla-data" in out
    assert "127.0.0.1:9092" in out


def test_inspect_of_a_stopped_broker_shows_topics_and_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Serving("--data-dir", str(tmp_path))
    produce(broker.address, "seen", "a\nb\nc\n", "--compression", "lz4")
    assert main(["inspect", str(tmp_path), "--json"]) == 0, "while the broker runs"
    broker.stop()
    capsys.readouterr()
    assert main(["inspect", str(tmp_path), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (part,) = [row for row in rows if row.get("topic") == "seen-0"]
    assert (part["first_offset"], part["last_offset"]) == (0, 2)
    number = str(part["partition"])
    assert main(["inspect", str(tmp_path), "--records", "--partition", number, "--json"]) == 0
    (batch,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (batch["offset"], batch["last_offset"], batch["codec"]) == (0, 2, "lz4")
    assert main(["inspect", str(tmp_path), "--records"]) == 1
    assert main(["inspect", str(tmp_path / "none")]) == 1
    assert "is no data folder" in capsys.readouterr().err


def test_repair_of_a_sound_folder_and_of_one_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Serving("--data-dir", str(tmp_path))
    produce(broker.address, "kept", "a\n")
    assert main(["repair", str(tmp_path)]) == 1
    assert f"is in use by pid {broker.process.pid}" in capsys.readouterr().err
    broker.stop()
    assert main(["repair", str(tmp_path)]) == 0
    assert "nothing is lost" in capsys.readouterr().out
    assert main(["repair", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lost"] is False
