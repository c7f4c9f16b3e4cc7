"""Groups in a whole broker: what waits for which commit, loading, failing, stopping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Client, Harness
from tests.group.simulated import commit_request, subscription

from ottla.broker import coordinator
from ottla.log.errors import Damaged, WriteFailed
from ottla.log.options import Table
from ottla.log.writer import CommitFailed
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_delete import OffsetDeleteRequest
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import Error
from ottla.wire.schema import Message


def join_request(member_id: str = "", *, group_id: str = "g", **changes: Any) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
    )
    for name, value in changes.items():
        setattr(request, name, value)
    return request


class Member:
    """A member on a connection of its own; version 3, so that it joins at once."""

    def __init__(self, harness: Harness, group_id: str = "g") -> None:
        self.harness = harness
        self.client = harness.client()
        self.group_id = group_id
        self.member_id = ""
        self.generation_id = -1

    def join(self) -> None:
        self.client.send(join_request(self.member_id, group_id=self.group_id), 3)
        self.harness.pass_time(1)

    def joined(self) -> Any:
        answer = self.client.receive()
        assert answer is not None
        if not answer.error_code:
            self.member_id, self.generation_id = answer.member_id, answer.generation_id
        return answer

    def sync_request(self, *members: Member) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=one.member_id, assignment=b"part")
                for one in members
            ],
        )

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id
        )

    def heartbeat(self) -> Error:
        return Error(self.client.call(self.heartbeat_request(), 4).error_code)

    def commit_request(self, offset: int) -> Message:
        return commit_request(
            self.group_id,
            {0: offset},
            topic="t",
            generation_id=self.generation_id,
            member_id=self.member_id,
        )


def stable(harness: Harness, group_id: str = "g") -> Member:
    """The only member of a stable group."""
    member = Member(harness, group_id)
    member.join()
    assert member.joined().error_code == 0
    assert member.client.call(member.sync_request(member), 3).error_code == 0
    return member


def committed(client: Client, group_id: str = "g") -> list[int]:
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None)]
    answer = client.call(OffsetFetchRequest(groups=groups), 9).groups[0]
    assert answer.error_code == 0
    return [p.committed_offset for topic in answer.topics for p in topic.partitions]


def state(client: Client, group_id: str = "g") -> str:
    answer = client.call(DescribeGroupsRequest(groups=[group_id]), 6).groups[0]
    return str(answer.group_state)


@pytest.fixture
def broken(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every commit fails; `broken.undo()` mends it."""

    def commit(groups: object) -> None:
        raise CommitFailed(WriteFailed("the disk is gone"), poisoned=False)

    monkeypatch.setattr(harness.store.pipeline.committer, "commit", commit)
    return monkeypatch


class TestWaitingForCommits:
    def test_no_answer_leaves_before_its_commit(self, harness: Harness) -> None:
        member = Member(harness)
        frame = member.client.frame(join_request(), 3)
        member.client.connection.feed(frame)
        harness.broker.timers.run_due()
        member.client.take(member.client.connection.take_output())
        assert member.client.receive() is None
        assert harness.store.get(Table.GROUPS, b"\0\0\0\1") is None
        harness.turn()
        assert member.joined().generation_id == 1
        assert harness.store.get(Table.GROUPS, b"\0\0\0\1") is not None

    def test_heartbeats_do_not_wait_for_commits_of_their_group(self, harness: Harness) -> None:
        harness.topic("t")
        member = stable(harness)
        other = harness.client()
        member.client.connection.feed(member.client.frame(member.commit_request(5), 9))
        other.connection.feed(other.frame(member.heartbeat_request(), 4))
        other.take(other.connection.take_output())
        assert other.receive().error_code == Error.NONE
        member.client.take(member.client.connection.take_output())
        assert member.client.receive() is None

    def test_reads_see_what_was_admitted_before_them(self, harness: Harness) -> None:
        harness.topic("t")
        member = stable(harness)
        reader = harness.client()
        member.client.connection.feed(member.client.frame(member.commit_request(5), 9))
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        reader.connection.feed(reader.frame(asked, 9))
        reader.take(reader.connection.take_output())
        assert reader.receive() is None
        harness.turn()
        assert reader.receive().groups[0].topics[0].partitions[0].committed_offset == 5

    def test_commits_of_one_connection_share_a_turn(self, harness: Harness) -> None:
        harness.topic("t")
        member = stable(harness)
        frames = [member.client.frame(member.commit_request(n), 9) for n in range(10)]
        member.client.raw(b"".join(frames))
        for _ in range(10):
            assert member.client.receive().topics[0].partitions[0].error_code == 0
        assert committed(member.client) == [9]


class TestTime:
    def test_sessions_end_by_the_clock_that_never_jumps(self, harness: Harness) -> None:
        member = stable(harness)
        harness.pass_time(9_999)
        assert state(harness.client()) == "Stable"
        harness.pass_time(1)
        assert state(harness.client()) == "Empty"
        assert member.heartbeat() == Error.UNKNOWN_MEMBER_ID

    def test_one_timer_for_all_groups(self, harness: Harness) -> None:
        before = len(harness.broker.timers)
        for n in range(20):
            stable(harness, f"g{n}")
        assert len(harness.broker.timers) == before + 1

    def test_a_rebalance_is_told_in_one_line(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "ottla.broker.coordinator")
        member = stable(harness)
        (line,) = caplog.messages
        assert line.startswith("group g is at generation 1 with 1 member after ")
        assert line.endswith(f"{member.member_id} joins")


class TestDeletedTopics:
    def test_their_offsets_go(self, harness: Harness) -> None:
        harness.topic("t")
        harness.topic("u")
        client = harness.client()
        for topic in ("t", "u"):
            client.call(commit_request("g", {0: 5}, topic=topic), 9)
        deleting = DeleteTopicsRequest(timeout_ms=1000, topics=[DeleteTopicState(name="t")])
        assert client.call(deleting, 6).responses[0].error_code == 0
        assert committed(client) == [5]
        harness.pass_time(1)
        assert len(list(harness.store.scan(Table.OFFSETS))) == 1

    def test_a_topic_made_again_starts_without_offsets(self, harness: Harness) -> None:
        harness.topic("t")
        client = harness.client()
        client.call(commit_request("g", {0: 5}, topic="t"), 9)
        harness.delete_topic("t")
        harness.topic("t")
        assert committed(client) == []


class TestStart:
    def test_groups_and_offsets_are_there_again(self, tmp_path: Path) -> None:
        harness = Harness(tmp_path / "data")
        harness.topic("t")
        member = stable(harness)
        member.client.call(member.commit_request(7), 9)
        harness.store.close()
        harness = Harness(tmp_path / "data")
        try:
            again = Member(harness)
            again.member_id, again.generation_id = member.member_id, member.generation_id
            assert again.heartbeat() == Error.NONE
            assert committed(again.client) == [7]
            assert again.client.call(again.sync_request(), 3).assignment == b"part"
        finally:
            harness.store.close()

    def test_while_groups_are_read_nothing_wrong_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(coordinator, "LOAD_PAGE", 2)
        harness = Harness(tmp_path / "data")
        harness.topic("t")
        members = [stable(harness, f"g{n}") for n in range(5)]
        harness.store.close()
        harness = Harness(tmp_path / "data")
        try:
            client = harness.client()
            last = members[-1]
            loading = Error.COORDINATOR_LOAD_IN_PROGRESS
            assert client.call(last.heartbeat_request(), 4).error_code == Error.NONE
            assert client.call(join_request(last.member_id), 9).error_code == loading
            assert client.call(last.sync_request(), 3).error_code == loading
            assert client.call(ListGroupsRequest(), 5).error_code == loading
            assert client.call(OffsetDeleteRequest(group_id="g4"), 0).error_code == loading
            answer = client.call(last.commit_request(5), 9)
            assert answer.topics[0].partitions[0].error_code == loading
            described = client.call(DescribeGroupsRequest(groups=["g4"]), 6).groups[0]
            assert (described.group_id, described.error_code) == ("g4", loading)
            deleted = client.call(DeleteGroupsRequest(groups_names=["g4"]), 2).results[0]
            assert (deleted.group_id, deleted.error_code) == ("g4", loading)
            leaving = LeaveGroupRequest(group_id="g4", members=[MemberIdentity(member_id="x")])
            assert client.call(leaving, 5).error_code == loading
            for version in range(1, 10):
                assert fetch_error(client, version) == loading
            harness.pass_time(0)
            harness.pass_time(0)
            assert client.call(ListGroupsRequest(), 5).error_code == 0
            for member in members:
                assert client.call(member.heartbeat_request(), 4).error_code == Error.NONE
        finally:
            harness.store.close()


def fetch_error(client: Client, version: int) -> Error:
    """Where OffsetFetch of this version has its error."""
    if version >= 8:
        groups = [OffsetFetchRequestGroup(group_id="g4", topics=None)]
        return Error(client.call(OffsetFetchRequest(groups=groups), version).groups[0].error_code)
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    answer = client.call(OffsetFetchRequest(group_id="g4", topics=topics), version)
    if version >= 2:
        assert answer.error_code == answer.topics[0].partitions[0].error_code
    return Error(answer.topics[0].partitions[0].error_code)


class TestFailedCommits:
    def test_a_member_that_joins_is_sent_to_look_for_the_coordinator(
        self, harness: Harness, broken: pytest.MonkeyPatch
    ) -> None:
        member = Member(harness)
        member.join()
        assert member.joined().error_code == Error.COORDINATOR_NOT_AVAILABLE
        broken.undo()
        assert harness.client().call(ListGroupsRequest(), 5).groups == []

    def test_everybody_who_is_parked_is_told(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness.topic("t")
        first, second = stable(harness), Member(harness)
        second.join()
        assert second.client.receive() is None
        elsewhere = stable(harness, "h")

        def commit(groups: object) -> None:
            raise CommitFailed(WriteFailed("the disk is gone"), poisoned=False)

        monkeypatch.setattr(harness.store.pipeline.committer, "commit", commit)
        answer = elsewhere.client.call(elsewhere.commit_request(5), 9)
        assert answer.topics[0].partitions[0].error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert second.joined().error_code == Error.COORDINATOR_NOT_AVAILABLE
        monkeypatch.undo()
        assert first.heartbeat() == Error.NONE
        assert state(harness.client()) == "Stable"

    def test_reads_that_wait_for_it_are_told_what_old_consumers_understand(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness.topic("t")
        member, reader, describer = stable(harness), harness.client(), harness.client()

        def commit(groups: object) -> None:
            raise CommitFailed(WriteFailed("the disk is gone"), poisoned=False)

        monkeypatch.setattr(harness.store.pipeline.committer, "commit", commit)
        member.client.connection.feed(member.client.frame(member.commit_request(5), 9))
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        reader.connection.feed(reader.frame(asked, 9))
        describer.connection.feed(describer.frame(DescribeGroupsRequest(groups=["g"]), 6))
        harness.turn()
        assert reader.receive().groups[0].error_code == Error.NOT_COORDINATOR
        assert describer.receive().groups[0].error_code == Error.COORDINATOR_NOT_AVAILABLE

    def test_while_the_log_refuses_writes_sessions_do_not_end(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        harness.topic("t")
        member = stable(harness)
        refusing = property(lambda _: WriteFailed("the disk is full"))
        monkeypatch.setattr(type(harness.store), "refusing", refusing)
        harness.pass_time(60_000)
        assert member.heartbeat() == Error.NONE
        answer = member.client.call(member.commit_request(5), 9)
        assert answer.topics[0].partitions[0].error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert state(harness.client()) == "Stable"
        monkeypatch.undo()
        harness.pass_time(coordinator.REFUSED_MS)
        assert member.heartbeat() == Error.NONE

    def test_a_deadline_that_cannot_be_served_does_not_end_all_others(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Damaged rows, when offsets are looked at: groups are read anew, and again until they
        can be."""
        harness.topic("t")
        client = harness.client()
        client.call(commit_request("g", {0: 5}, topic="t"), 9)

        def damaged(*args: Any) -> Any:
            raise Damaged(Path("state.lmdb"), "is altered")

        with monkeypatch.context() as patch:
            patch.setattr(harness.store, "page", damaged)
            harness.pass_time(harness.broker.config.offsets_retention_minutes * 60_000)
            assert "is altered" in caplog.text
            loading = Error.COORDINATOR_LOAD_IN_PROGRESS
            assert client.call(ListGroupsRequest(), 5).error_code == loading
            harness.pass_time(coordinator.REFUSED_MS)
            assert client.call(ListGroupsRequest(), 5).error_code == loading
        harness.pass_time(coordinator.REFUSED_MS)
        member = stable(harness)
        harness.pass_time(10_000)
        assert member.heartbeat() == Error.UNKNOWN_MEMBER_ID


def test_a_stop_answers_whoever_waits(harness: Harness) -> None:
    stable(harness)
    waiting = Member(harness)
    waiting.join()
    assert waiting.client.receive() is None
    harness.broker.stopping = True
    for fn in harness.broker.on_stop:
        fn()
    harness.turn()
    assert waiting.joined().error_code == Error.COORDINATOR_NOT_AVAILABLE
    late = Member(harness)
    late.join()
    assert late.joined().error_code == Error.COORDINATOR_NOT_AVAILABLE


def test_a_bug_in_the_machine_is_not_built_upon(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    member = stable(harness)
    machine = harness.broker.coordinator._machine

    def bug(*args: Any) -> Any:
        machine.registry.groups.clear()
        raise ZeroDivisionError

    monkeypatch.setattr(machine, "handle", bug)
    answer = harness.client().call(member.sync_request(), 3)
    assert answer.error_code == Error.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text
    assert member.heartbeat() == Error.NONE


def test_what_is_on_its_way_when_a_bug_shows_is_built_upon(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The generation that is being committed is not given out twice."""
    member, other = stable(harness), harness.client()
    machine = harness.broker.coordinator._machine

    def bug(*args: Any) -> Any:
        raise ZeroDivisionError

    before = member.generation_id
    rejoin = member.client.frame(join_request(member.member_id), 3)
    member.client.connection.feed(rejoin)  # it leads: the next generation
    monkeypatch.setattr(machine, "handle", bug)
    other.connection.feed(other.frame(member.sync_request(), 3))
    harness.turn()
    assert other.receive().error_code == Error.UNKNOWN_SERVER_ERROR
    assert member.joined().generation_id == before + 1
    assert member.client.call(member.sync_request(member), 3).error_code == 0
    assert member.heartbeat() == Error.NONE
