"""The commands that speak to a cluster, against a broker in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.commands import Run
from tests.broker.serving import Serving

from ottla.broker.cli import main
from ottla.broker.cli_client import ClientError, Cluster, addresses
from ottla.broker.cli_partitioner import murmur2


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data")
    broker = Serving("--data-dir", str(folder), "--durability", "os")
    yield broker.address
    assert broker.stop() == (0, "")


@pytest.fixture
def run(address: str, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(address, capsys)


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
        "ottla: life: there is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION)\n",
    )


def test_lists_are_tab_separated_where_they_are_piped(run: Run) -> None:
    run("topics", "create", "tabs")
    _, out, _ = run("topics", "list")
    lines = [line.split("\t") for line in out.splitlines()]
    assert lines[0] == ["topic", "partitions", "records", "bytes"]
    assert [line for line in lines if line[0] == "tabs"] == [["tabs", "1", "0", "0"]]


def test_what_cannot_be_done_is_said_and_the_rest_done(run: Run) -> None:
    assert run("topics", "create", "there")[0] == 0
    status, _, errors = run("topics", "create", "there", "b d", "other")
    assert status == 1
    assert errors.splitlines() == [
        "ottla: there: topic 'there' already exists (TOPIC_ALREADY_EXISTS)",
        "ottla: b d: topic name 'b d' may hold only letters, digits, '.', '_' and '-'"
        " (INVALID_TOPIC_EXCEPTION)",
        "created other",
    ]
    assert run("topics", "create", "there", "--if-not-exists") == (0, "", "exists there\n")
    status, _, errors = run("topics", "alter", "there", "--config", "retention.ms=soon")
    assert (status, errors) == (
        1,
        "ottla: there: retention.ms=soon: must be a whole number (64 bit) (INVALID_CONFIG)\n",
    )
    status, _, errors = run("topics", "alter", "there")
    assert status == 1
    assert "nothing to alter" in errors
    assert run("topics", "create", "x", "--config", "retention.ms")[::2] == (
        1,
        "ottla: --config=retention.ms: must be key=value\n",
    )


# --------------------------------------------------------------------------------------- the client


def test_an_address_nobody_listens_at() -> None:
    with pytest.raises(ClientError, match=r"cannot connect to 127\.0\.0\.1:1: connection refused"):
        Cluster("127.0.0.1:1")
    assert addresses("a:1, [::1]:2,b,[::1]") == [("a", 1), ("::1", 2), ("b", 9092), ("::1", 9092)]
    for bad in ("", ":1", "a:b", "http://a:1", "a:1,"):
        with pytest.raises(ClientError, match="is not HOST or HOST:PORT"):
            addresses(bad)
    for bad in ("a:0", "a:65536", "a:99999999999"):
        with pytest.raises(ClientError, match="a port is a number from 1 to 65535"):
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_shells_complete_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "delete-records" in capsys.readouterr().out
