"""The broker is killed at every step of a rebalance; members with live sockets come back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from compat_tests.conftest import MakeTopic
from compat_tests.groups.script import subscription
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw.errors import name_of
from compat_tests.raw.wire import Closed, Silent, Wire

RETRY = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "REBALANCE_IN_PROGRESS",
)


class Member:
    """A member on a raw socket that does what clients do: it reconnects and asks again."""

    def __init__(self, broker: Broker, group: str, topic: str, name: str) -> None:
        self.broker = broker
        self.group = group
        self.topic = topic
        self.name = name
        self.member_id = ""
        self.generation_id = -1
        self.leads = False
        self.others: list[str] = []
        self.assignment = b""
        self.synced = False
        """Has its assignment in this generation."""
        self._wire: Wire | None = None

    def call(self, api: str, version: int, **fields: Any) -> Any:
        """Ask until there is an answer; over a new connection when the old one is gone."""
        deadline = time.monotonic() + 120
        while True:
            try:
                if self._wire is None:
                    self._wire = Wire(
                        self.broker.host, self.broker.port, client_id=self.name, timeout=60
                    )
                return self._wire.call(api, version, **fields)
            except (Closed, Silent, OSError):
                self.close()
                assert time.monotonic() < deadline, f"{api}: no answer"
                time.sleep(0.05)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def join(self) -> None:
        """Until it is in a generation."""
        while True:
            answer = self.call(
                "JoinGroup",
                5,
                group_id=self.group,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=30_000,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": subscription(self.topic)}],
            )
            error = name_of(answer.error_code)
            if error == "NONE":
                self.member_id = answer.member_id
                self.generation_id = answer.generation_id
                self.synced = False
                self.leads = answer.leader == answer.member_id
                self.others = [member.member_id for member in answer.members]
                return
            if error == "MEMBER_ID_REQUIRED":
                self.member_id = answer.member_id
            elif error == "UNKNOWN_MEMBER_ID":
                self.member_id = ""
            else:
                assert error in RETRY, error
                time.sleep(0.05)

    def sync(self) -> str:
        parts = [
            {"member_id": other, "assignment": f"{self.name} to {other}".encode()}
            for other in self.others
        ]
        answer = self.call(
            "SyncGroup",
            4,
            group_id=self.group,
            generation_id=self.generation_id,
            member_id=self.member_id,
            assignments=parts if self.leads else [],
        )
        self.assignment = answer.assignment
        self.synced = answer.error_code == 0
        return name_of(answer.error_code)

    def come_in(self) -> None:
        """Join and sync until it has an assignment."""
        while True:
            self.join()
            error = self.sync()
            if error == "NONE":
                return
            assert error in (*RETRY, "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"), error
            if error == "UNKNOWN_MEMBER_ID":
                self.member_id = ""

    def heartbeat(self) -> str:
        answer = self.call(
            "Heartbeat",
            3,
            group_id=self.group,
            generation_id=self.generation_id,
            member_id=self.member_id,
        )
        return name_of(answer.error_code)

    def stay(self) -> None:
        """What a client does next: finish joining, or say that it is there and do as it is told."""
        error = self.heartbeat() if self.synced else self.sync()
        if error == "UNKNOWN_MEMBER_ID":
            self.member_id = ""
        if error in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"):
            self.join()

    def commit(self, offset: int) -> str:
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        answer = self.call(
            "OffsetCommit",
            8,
            group_id=self.group,
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            topics=[{"name": self.topic, "partitions": [part]}],
        )
        return name_of(answer.topics[0].partitions[0].error_code)

    def committed(self) -> int:
        wanted = [{"name": self.topic, "partition_indexes": [0]}]
        while True:
            answer = self.call(
                "OffsetFetch", 8, groups=[{"group_id": self.group, "topics": wanted}]
            ).groups[0]
            if answer.error_code == 0:
                return int(answer.topics[0].partitions[0].committed_offset)
            assert name_of(answer.error_code) in RETRY, name_of(answer.error_code)
            time.sleep(0.05)


@contextmanager
def staying(*members: Member) -> Iterator[None]:
    """These members do what clients do, each in a thread of its own."""
    stop = threading.Event()

    def stay(member: Member) -> None:
        while not stop.is_set():
            member.stay()
            time.sleep(0.02)

    threads = [threading.Thread(target=stay, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()


def together(*members: Member) -> None:
    """Until all of them have been in one generation for a while."""
    deadline = time.monotonic() + 120
    calm = 0
    with staying(*members):
        while calm < 10:
            generations = {member.generation_id for member in members}
            calm = calm + 1 if len(generations) == 1 and all(m.synced for m in members) else 0
            assert time.monotonic() < deadline, [(m.generation_id, m.synced) for m in members]
            time.sleep(0.05)


@pytest.fixture
def pair(broker: Broker, new_topic: MakeTopic, group: str) -> Iterator[tuple[Member, Member]]:
    """Two members of a stable group; 5 is committed."""
    topic = new_topic(1)
    a, b = (Member(broker, group, topic, name) for name in "ab")
    wait_until_coordinated(a)
    a.come_in()
    with staying(a):
        b.come_in()
    together(a, b)
    assert a.commit(5) == "NONE"
    yield a, b
    a.close()
    b.close()


def wait_until_coordinated(member: Member) -> None:
    """Kafka makes the topic of its groups when the first one is asked for."""
    while (
        member.call("FindCoordinator", 4, coordinator_keys=[member.group])
        .coordinators[0]
        .error_code
    ):
        time.sleep(0.2)


def kill(broker: Broker, *members: Member) -> None:
    broker.kill()
    for member in members:
        member.close()
    broker.start()


def check(a: Member, b: Member, before: int, rebalances: int) -> None:
    """Both are back, in one generation, not more than `rebalances` behind what was; 5 is there."""
    together(a, b)
    assert a.generation_id == b.generation_id
    assert before <= a.generation_id <= before + rebalances
    assert a.assignment
    assert b.assignment
    assert a.committed() == 5
    assert a.commit(6) == "NONE"
    assert b.committed() == 6


def test_before_the_rebalance(broker: Broker, pair: tuple[Member, Member]) -> None:
    a, b = pair
    before = a.generation_id
    kill(broker, a, b)
    check(a, b, before, 0)


def test_while_members_join(broker: Broker, pair: tuple[Member, Member]) -> None:
    a, b = pair
    before = a.generation_id
    joining = threading.Thread(target=a.join)  # the leader: a rebalance
    joining.start()
    time.sleep(0.5)
    kill(broker, b)
    with staying(b):
        joining.join()
    check(a, b, before, 1)


def test_after_some_have_their_join_answer(broker: Broker, pair: tuple[Member, Member]) -> None:
    a, b = pair
    rejoin(a, b)
    before = a.generation_id
    kill(broker, a, b)
    check(a, b, before, 1)


def test_after_the_generation_is_written(broker: Broker, pair: tuple[Member, Member]) -> None:
    a, b = pair
    rejoin(a, b)
    before = a.generation_id
    assert a.sync() == "NONE"
    assigned = a.assignment
    kill(broker, a, b)
    assert b.sync() in ("NONE", *RETRY)
    check(a, b, before, 0)
    assert a.assignment == assigned


def test_after_some_have_their_sync_answer(broker: Broker, pair: tuple[Member, Member]) -> None:
    a, b = pair
    rejoin(a, b)
    before = a.generation_id
    assert a.sync() == "NONE"
    assert b.sync() == "NONE"
    kill(broker, a, b)
    check(a, b, before, 0)


def rejoin(a: Member, b: Member) -> None:
    """The leader first, so that there is a rebalance."""
    assert a.leads
    joining = threading.Thread(target=a.join)
    joining.start()
    while b.heartbeat() == "NONE":
        time.sleep(0.02)
    b.join()
    joining.join()
    assert a.generation_id == b.generation_id


def keep_committing(member: Member, stop: threading.Event, result: dict[str, int]) -> None:
    """Commit one offset after another; remember the last that was sent and acknowledged, and that
    the generation never goes back."""
    offset = 0
    while not stop.is_set():
        generation = member.generation_id
        offset += 1
        result["sent"] = offset
        error = member.commit(offset)
        if error == "NONE":
            result["acknowledged"] = offset
        elif error in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS"):
            member.come_in()
            assert member.generation_id >= generation
        else:
            assert error in RETRY, error
            time.sleep(0.02)


@pytest.mark.parametrize(
    "kills", [2, pytest.param(30, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_killed_at_random_under_commits(
    broker: Broker, new_topic: MakeTopic, group: str, kills: int
) -> None:
    topic = new_topic(1)
    members = [Member(broker, f"{group}-{n}", topic, f"m{n}") for n in range(8)]
    wait_until_coordinated(members[0])
    for member in members:
        member.come_in()
    stop = threading.Event()
    results: list[dict[str, int]] = [{"sent": 0, "acknowledged": 0} for _ in members]
    threads = [
        threading.Thread(target=keep_committing, args=(member, stop, result))
        for member, result in zip(members, results, strict=True)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: all(result["acknowledged"] for result in results), "all commit")
    for number in range(kills):
        time.sleep(0.3 + 0.37 * (number % 5))
        broker.kill()
        broker.start()
    time.sleep(0.5)
    stop.set()
    for thread in threads:
        thread.join()
    for member, result in zip(members, results, strict=True):
        assert result["acknowledged"] > 0
        assert result["acknowledged"] <= member.committed() <= result["sent"]
        member.close()
