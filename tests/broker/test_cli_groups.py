"""`ottla groups`, against a broker in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.commands import Run
from tests.broker.serving import Serving, ottla
from tests.group.simulated import commit_request, subscription

from ottla.broker import cli_groups
from ottla.broker.cli import main
from ottla.broker.cli_client import Connection
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.wire.api.offset_commit import OffsetCommitResponse
from ottla.wire.api.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.wire.errors import Error

ALL_OF_T = b"\0\0\0\0\0\1\0\1t\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\2\xff\xff\xff\xff"
"""An assignment: partitions 0, 1, 2 of topic t."""
NOT_EMPTY = "the group has members; stop them first (NON_EMPTY_GROUP)"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = Serving("--data-dir", str(tmp_path_factory.mktemp("data")), "--durability", "os")
    assert ottla("topics", "create", "t", "--partitions", "3", "-b", broker.address).returncode == 0
    for partition in range(3):
        lines = "".join(f"{n}\n" for n in range(10))
        sent = ottla(
            "produce", "t", "--partition", str(partition), "-b", broker.address, stdin=lines
        )
        assert sent.returncode == 0, sent.stderr
    yield broker.address
    assert broker.stop() == (0, "")


@pytest.fixture
def run(address: str, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(address, capsys, "groups")


class Member:
    """The only member of a group, on a connection of its own; owns all of topic t."""

    def __init__(self, address: str, group_id: str) -> None:
        host, _, port = address.rpartition(":")
        self.connection = Connection(host, int(port))
        self.group_id = group_id
        joined = self.connection.call(
            JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=30_000,
                rebalance_timeout_ms=30_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
            ),
            JoinGroupResponse,
            3,
        )
        self.member_id, self.generation_id = joined.member_id, joined.generation_id
        assigned = SyncGroupRequestAssignment(member_id=self.member_id, assignment=ALL_OF_T)
        synced = self.connection.call(
            SyncGroupRequest(
                group_id=group_id,
                generation_id=self.generation_id,
                member_id=self.member_id,
                assignments=[assigned],
            ),
            SyncGroupResponse,
            3,
        )
        assert synced.error_code == 0

    def heartbeat(self) -> Error:
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id
        )
        return Error(self.connection.call(request, HeartbeatResponse).error_code)

    def commit(self, offsets: dict[int, int]) -> Error:
        request = commit_request(
            self.group_id,
            offsets,
            topic="t",
            generation_id=self.generation_id,
            member_id=self.member_id,
        )
        answer = self.connection.call(request, OffsetCommitResponse, 9)
        return Error(answer.topics[0].partitions[0].error_code)


def committed(run: Run, group_id: str) -> dict[int, int]:
    (group,) = run.json("describe", group_id)
    partitions = group["partitions"]
    assert isinstance(partitions, list)
    return {one["partition"]: one["committed"] for one in partitions}


def test_list_and_describe(run: Run, address: str) -> None:
    member = Member(address, "seen")
    member.commit({0: 4, 1: 10})
    assert {"group": "seen", "state": "Stable", "type": "classic", "protocol": "consumer"} in (
        run.json("list")
    )
    assert run.json("list", "--state", "stable")
    assert all(group["group"] != "seen" for group in run.json("list", "--state", "Empty"))
    (group,) = run.json("describe", "seen")
    assert (group["state"], group["protocol"], group["members"]) == ("Stable", "range", 1)
    assert group["lag"] == 6
    rows = group["partitions"]
    assert isinstance(rows, list)
    assert [(r["partition"], r["committed"], r["end"], r["lag"]) for r in rows] == [
        (0, 4, 10, 6),
        (1, 10, 10, 0),
        (2, None, 10, None),
    ]
    assert {row["member"] for row in rows} == {member.member_id}
    status, out, _ = run("describe", "seen")
    assert (status, out.splitlines()[0]) == (0, "seen  Stable  range  1 member  lag 6")


def test_a_group_that_is_not_there(run: Run) -> None:
    missing = "ottla: nobody: there is no such group (GROUP_ID_NOT_FOUND)\n"
    assert run("describe", "nobody") == (1, "", missing)
    assert run("delete", "nobody") == (1, "", missing)
    assert run("reset", "nobody", "--to", "latest")[2].startswith("ottla: nobody has committed")


def test_reset_makes_a_group(run: Run) -> None:
    assert run("reset", "new", "--to", "latest", "--topic", "t")[0] == 0
    assert committed(run, "new") == {0: 10, 1: 10, 2: 10}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (("--to", "earliest"), 0),
        (("--to", "latest"), 10),
        (("--to", "7"), 7),
        (("--to", "99"), 10),
        (("--to", "-3"), 7),
        (("--to", "@0"), 0),
        (("--to", "@99999999999999"), 10),
        (("--shift", "-2"), 3),
        (("--shift", "-20"), 0),
    ],
)
def test_reset_to(run: Run, where: tuple[str, str], expected: int) -> None:
    run("reset", "moved", "--to", "5", "--topic", "t")
    assert run("reset", "moved", *where)[0] == 0
    assert committed(run, "moved") == dict.fromkeys(range(3), expected)


def test_reset_of_some_partitions_and_dry_run(run: Run) -> None:
    run("reset", "some", "--to", "5", "--topic", "t")
    assert run.json("reset", "some", "--to", "1", "--topic", "t:0,2", "--dry-run") == [
        {"topic": "t", "partition": 0, "before": 5, "after": 1},
        {"topic": "t", "partition": 2, "before": 5, "after": 1},
    ]
    assert committed(run, "some") == {0: 5, 1: 5, 2: 5}
    run("reset", "some", "--to", "1", "--topic", "t:0,2")
    assert committed(run, "some") == {0: 1, 1: 5, 2: 1}


def test_reset_from_a_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text("t,0,3\nt,2,4\n")
    assert run("reset", "filed", "--from-file", str(path))[0] == 0
    assert committed(run, "filed") == {0: 3, 2: 4}
    path.write_text("t,0\n")
    status, _, errors = run("reset", "filed", "--from-file", str(path))
    assert (status, "topic,partition,offset" in errors) == (1, True)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--to", "yesterday"), "--to yesterday: not earliest, latest, an offset, -N or @TIME"),
        (("--to", "1", "--topic", "t:9"), "no such partition: t 9"),
        (("--to", "1", "--topic", "t:x"), "--topic t:x: not TOPIC or TOPIC:0,3"),
        (
            ("--to", "1", "--topic", "nowhere"),
            "nowhere: there is no such topic or partition (UNKNOWN_TOPIC_OR_PARTITION)",
        ),
        (("--shift", "1", "--topic", "t"), "nothing is committed for t 0 to shift from"),
    ],
)
def test_wrong_resets(run: Run, args: tuple[str, ...], text: str) -> None:
    run("reset", "wrong", "--to", "5", "--topic", "t:1")
    assert run("reset", "wrong", *args) == (1, "", f"ottla: {text}\n")
    assert committed(run, "wrong") == {1: 5}


def test_a_live_group_is_fenced_first(run: Run, address: str) -> None:
    member = Member(address, "live")
    assert member.commit({0: 9, 1: 9, 2: 9}) == Error.NONE
    status, _, errors = run("reset", "live", "--to", "earliest")
    assert (status, errors) == (0, "reset live: 3 partitions, 1 member removed first\n")
    assert member.commit({0: 9}) == Error.UNKNOWN_MEMBER_ID
    assert member.heartbeat() == Error.UNKNOWN_MEMBER_ID
    assert committed(run, "live") == {0: 0, 1: 0, 2: 0}
    back = Member(address, "live")
    assert back.generation_id > member.generation_id
    assert committed(run, "live") == {0: 0, 1: 0, 2: 0}


def test_members_that_come_back_at_once_are_fenced_again(
    run: Run, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Member(address, "eager")
    back: list[Member] = []
    commit = cli_groups._commit

    def late(*args: object) -> Error | None:
        if len(back) < 3:
            back.append(Member(address, "eager"))
        return commit(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(cli_groups, "_commit", late)
    assert run("reset", "eager", "--to", "2", "--topic", "t")[0] == 0
    assert all(member.heartbeat() == Error.UNKNOWN_MEMBER_ID for member in back)
    assert committed(run, "eager") == {0: 2, 1: 2, 2: 2}


def test_reset_of_members_that_have_committed_nothing(run: Run, address: str) -> None:
    member = Member(address, "fresh")
    status, out, errors = run("describe", "fresh")
    assert out.splitlines()[0] == "fresh  Stable  range  1 member  lag -"
    assert out.splitlines()[2].startswith("t\t0\t-\t10\t-\t")
    assert out.splitlines()[-1] == "nothing committed: 3 partitions"
    (group,) = run.json("describe", "fresh")
    assert group["lag"] is None
    status, _, errors = run("reset", "fresh", "--to", "earliest")
    assert (status, errors) == (0, "reset fresh: 3 partitions, 1 member removed first\n")
    assert member.heartbeat() == Error.UNKNOWN_MEMBER_ID
    assert committed(run, "fresh") == {0: 0, 1: 0, 2: 0}


def test_delete(run: Run, address: str) -> None:
    Member(address, "used")
    run("reset", "unused", "--to", "1", "--topic", "t")
    status, _, errors = run("delete", "used", "unused")
    assert (status, errors) == (1, f"ottla: used: {NOT_EMPTY}\ndeleted unused\n")
    assert run("describe", "unused")[0] == 1


def test_names_may_be_patterns(run: Run) -> None:
    for name in ("fleet-1", "fleet-2", "fleet-*", "other"):
        run("reset", name, "--to", "1", "--topic", "t:0")

    def described(*names: str) -> list[object]:
        return [group["group"] for group in run.json("describe", *names)]

    assert described("fleet-?", "fleet-1") == ["fleet-*", "fleet-1", "fleet-2"]
    assert described("fleet-*") == ["fleet-*"], "there is one of that name"
    assert run("describe", "nothing*") == (1, "", "ottla: no group matches nothing*\n")
    assert run("delete", "fleet-[12]")[2] == "deleted fleet-1\ndeleted fleet-2\n"
    assert described("fleet-*", "oth*") == ["fleet-*", "other"]


def test_watch_shows_a_group_when_it_has_changed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("reset", "watched", "--to", "1", "--topic", "t:0")
    rounds = iter(range(4))

    def between(_: float) -> None:
        number = next(rounds)
        if number == 3:
            raise KeyboardInterrupt
        if number == 1:
            assert main(["groups", "reset", "watched", "--to", "4", "-b", run.address]) == 0

    monkeypatch.setattr("ottla.broker.cli_groups.time.sleep", between)
    status, out, _ = run("watch", "watched")
    assert status == 130
    shown = [line for line in out.splitlines() if line.startswith("watched")]
    assert shown == ["watched  Empty  0 members  lag 9", "watched  Empty  0 members  lag 6"]


def test_watch_waits_for_a_group_that_is_not_there(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = iter(range(4))

    def between(_: float) -> None:
        match next(rounds):
            case 0:
                assert run("reset", "comes", "--to", "4", "--topic", "t:0")[0] == 0
            case 1:
                assert run("delete", "comes")[0] == 0
            case 2:
                raise KeyboardInterrupt

    shown: list[str] = []
    monkeypatch.setattr("ottla.broker.cli_groups.time.sleep", between)
    monkeypatch.setattr(
        "ottla.broker.cli_groups._print", lambda group, *_: shown.append(group.group_state)
    )
    assert run("watch", "comes")[0] == 130
    assert shown == ["Dead", "Empty", "Dead"]
