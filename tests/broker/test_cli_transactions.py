"""`ottla transactions`, against a broker in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.commands import Producer, Run
from tests.broker.serving import Serving, ottla

from ottla.broker.cli import main
from ottla.wire.errors import Error


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data")
    settings = folder / "server.properties"
    settings.write_text("transaction.partition.verification.enable=false\n")
    data = str(folder / "data")
    broker = Serving(str(settings), "--data-dir", data, "--durability", "os")
    keep = ("--partitions", "2", "--config", "retention.ms=-1")  # of records dated 2023
    assert ottla("topics", "create", "t", *keep, "-b", broker.address).returncode == 0
    yield broker.address
    assert broker.stop() == (0, "")


@pytest.fixture
def run(address: str, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(address, capsys, "transactions")


def test_listing_describing_and_aborting_one(address: str, run: Run) -> None:
    producer = Producer(address, "orders-1")
    row = {"transactional_id": "orders-1", "producer_id": producer.id, "state": "Empty"}
    assert run.json("list", "--pattern", "orders-.*") == [row]
    assert producer.produce(1) is Error.NONE
    assert run.json("list", "--pattern", "orders-.*", "--state", "Ongoing") == [
        row | {"state": "Ongoing"}
    ]
    assert run.json("list", "--pattern", "orders-.*", "--longer-than", "1000") == []
    (found,) = run.json("describe", "orders-1")
    age_ms = found.pop("open_ms")
    assert isinstance(age_ms, int)
    assert 0 <= age_ms < 60_000
    assert found == {
        "transactional_id": "orders-1",
        "state": "Ongoing",
        "producer_id": producer.id,
        "producer_epoch": 0,
        "timeout_ms": 60_000,
        "partitions": [{"topic": "t", "partition": 1}],
    }
    assert run.json("list", "--hanging") == []
    status, out, _ = run("describe", "orders-1")
    assert status == 0
    assert f"orders-1  Ongoing  producer {producer.id} epoch 0  timeout 60000 ms  open for " in out
    assert "t\t1\n" in out

    status, _, said = run("abort", "orders-1")
    assert (status, said) == (0, "orders-1 is aborted and its producer fenced\n")
    assert producer.produce(1, sequence=1) is Error.INVALID_PRODUCER_EPOCH
    assert run.json("describe", "orders-1")[0]["state"] == "CompleteAbort"
    status, _, said = run("abort", "orders-1")
    assert (status, said) == (
        1,
        "ottla: orders-1 has no transaction open: it is CompleteAbort\n",
    )


def test_finding_and_ending_what_hangs(address: str, run: Run) -> None:
    producer = Producer(address, "late")
    assert producer.produce(0, version=9) is Error.NONE
    (found,) = run.json("list", "--hanging")
    assert (found["topic"], found["partition"], found["producer_id"]) == ("t", 0, producer.id)
    place = ("--topic", "t", "--partition", "0", "--producer-id")
    status, _, said = run("abort", *place, str(producer.id))
    assert (status, said) == (
        0,
        f"the transaction of producer {producer.id} in t-0 is aborted\n",
    )
    assert run.json("list", "--hanging") == []
    status, _, said = run("abort", *place, str(producer.id))
    assert status == 1
    assert f"producer {producer.id} has no transaction open in t-0" in said


def test_what_its_coordinator_will_end_is_left_to_it(address: str, run: Run) -> None:
    producer = Producer(address, "steady")
    assert producer.produce(0) is Error.NONE
    args = ("--topic", "t", "--partition", "0", "--producer-id", str(producer.id))
    status, _, said = run("abort", *args)
    assert status == 1
    assert "abort it by its transactional id" in said
    assert run("abort", "steady")[0] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("describe", "nobody"), "there is no transactional id 'nobody'"),
        (("abort", "nobody"), "there is no transactional id 'nobody'"),
        (("describe", ""), "a transactional id has 1 to 32767 bytes of UTF-8"),
        (("abort", ""), "a transactional id has 1 to 32767 bytes of UTF-8"),
        (("describe", "x" * 32_768), "a transactional id has 1 to 32767 bytes of UTF-8"),
        (("describe", "\udcff"), "a transactional id has 1 to 32767 bytes of UTF-8"),
        (("list", "--state", "Busy"), "--state: there is no state 'Busy'"),
        (("list", "--state", ""), "--state: there is no state ''"),
        (("list", "--longer-than", "-1"), "--longer-than -1 is not a number of seconds, 0 or more"),
        (("list", "--longer-than", "nan"), "--longer-than nan is not a number of seconds"),
        (("list", "--longer-than", "1e300"), "--longer-than 1e+300 is not a number of seconds"),
        (("list", "--hanging", "--state", "Empty"), "leave them out"),
        (("list", "--pattern", "("), "is not a valid regular expression"),
        (("abort",), "give a transactional id"),
        (("abort", "--topic", "t"), "--partition and --producer-id"),
        (("abort", "x", "--topic", "t"), "give a transactional id, or"),
        (
            ("abort", "--topic", "t", "--partition", "9", "--producer-id", "0"),
            "--partition: t has no partition 9, but 0 to 1",
        ),
        (
            ("abort", "--topic", "t", "--partition", "-1", "--producer-id", "0"),
            "--partition: t has no partition -1, but 0 to 1",
        ),
        (
            ("abort", "--topic", "t", "--partition", "0", "--producer-id", "-7"),
            "--producer-id: producer -7 has no transaction open in t-0",
        ),
        (
            ("abort", "--topic", "", "--partition", "0", "--producer-id", "0"),
            "--topic : there is none",
        ),
        (
            ("abort", "--topic", "no", "--partition", "0", "--producer-id", "0"),
            "--topic no: there is none; `ottla transactions list --hanging`",
        ),
    ],
)
def test_what_cannot_be_done_is_said(run: Run, args: tuple[str, ...], said: str) -> None:
    status, out, errors = run(*args)
    assert (status, out) == (1, "")
    assert said in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize("action", [("list",), ("describe", "x"), ("abort", "x")])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("127.0.0.1:1", "cannot connect to 127.0.0.1:1: connection refused (set --boot"),
        ("nowhere:x", "--bootstrap-server: 'nowhere:x' is not HOST or HOST:PORT"),
    ],
)
def test_a_broker_that_is_not_there_is_said(
    capsys: pytest.CaptureFixture[str], action: tuple[str, ...], given: str, said: str
) -> None:
    assert main(["transactions", *action, "--bootstrap-server", given]) == 1
    out, errors = capsys.readouterr()
    assert out == ""
    assert said in errors
    assert errors.count("\n") == 1
