"""Members of a group on raw connections, for the facts about groups."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from compat_tests.groups.script import subscription
from compat_tests.harness.waiting import eventually
from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire

JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT, FETCH = 9, 5, 4, 5, 9, 9
"""Versions, where a test is not about others."""


def error(answer: Struct) -> str:
    return name_of(answer.error_code)


class Member:
    """One member, or somebody who says to be one, on a connection of its own."""

    def __init__(self, wire: Wire, group: str, topic: str, **options: Any) -> None:
        self.wire = wire
        self.group = group
        self.topic = topic
        self.instance_id: str | None = options.get("instance_id")
        self.session_ms: int = options.get("session_ms", 30_000)
        self.rebalance_ms: int = options.get("rebalance_ms", 30_000)
        self.protocols: dict[str, bytes] = {"range": subscription(topic)}
        self.member_id = ""
        self.generation_id = -1
        self.leads = False

    def _who(self, version: int, static_from: int) -> dict[str, Any]:
        named = {"group_instance_id": self.instance_id} if version >= static_from else {}
        return {"group_id": self.group, "member_id": self.member_id, **named}

    def send_join(self, version: int = JOIN) -> None:
        fields = self._who(version, 5) | {
            "session_timeout_ms": self.session_ms,
            "protocol_type": "consumer",
            "protocols": [{"name": n, "metadata": m} for n, m in self.protocols.items()],
        }
        if version >= 1:
            fields["rebalance_timeout_ms"] = self.rebalance_ms
        self.wire.send("JoinGroup", version, **fields)

    def joined(self, version: int = JOIN, timeout: float = 60) -> Struct:
        """The answer to JoinGroup, taken to heart."""
        _, answer = self.wire.receive("JoinGroup", version, timeout=timeout)
        if error(answer) in ("NONE", "MEMBER_ID_REQUIRED"):
            self.member_id = answer.member_id
        if error(answer) == "NONE":
            self.generation_id = answer.generation_id
            self.leads = answer.leader == answer.member_id
        return answer

    def join(self, version: int = JOIN) -> Struct:
        self.send_join(version)
        return self.joined(version)

    def ask_to_come_in(self) -> None:
        """JoinGroup twice: for an id, if that is how it goes, and with it, which may wait."""
        if self.instance_id is None and not self.member_id:
            assert error(self.join()) == "MEMBER_ID_REQUIRED"
        self.send_join()

    def sync(self, *others: Member, version: int = SYNC, **changes: Any) -> Struct:
        """SyncGroup; a leader gives each of `others` its own member id as assignment."""
        fields = self._who(version, 3) | {
            "generation_id": self.generation_id,
            "assignments": [
                {"member_id": one.member_id, "assignment": one.member_id.encode()} for one in others
            ],
        }
        if version >= 5:
            fields |= {"protocol_type": "consumer", "protocol_name": "range"}
        return self.wire.call("SyncGroup", version, **fields | changes)

    def heartbeat(self, **changes: Any) -> str:
        fields = self._who(HEARTBEAT, 3) | {"generation_id": self.generation_id}
        return error(self.wire.call("Heartbeat", HEARTBEAT, **fields | changes))

    def leave(self) -> str:
        who = {"member_id": self.member_id, "group_instance_id": self.instance_id}
        answer = self.wire.call("LeaveGroup", LEAVE, group_id=self.group, members=[who])
        assert error(answer) == "NONE"
        return error(answer.members[0])

    def commit(self, offset: int, version: int = COMMIT, **changes: Any) -> str:
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        fields = self._who(version, 7) | {
            "generation_id_or_member_epoch": self.generation_id,
            "topics": [{"name": self.topic, "partitions": [part]}],
        }
        answer = self.wire.call("OffsetCommit", version, **fields | changes)
        return error(answer.topics[0].partitions[0])

    def committed(self) -> int:
        wanted = [{"name": self.topic, "partition_indexes": [0]}]
        groups = [{"group_id": self.group, "topics": wanted}]
        (group,) = self.wire.call("OffsetFetch", FETCH, groups=groups).groups
        return int(group.topics[0].partitions[0].committed_offset)

    def state(self) -> str:
        """Of its group."""
        return described(self.wire, self.group).group_state  # type: ignore[no-any-return]

    def sees(self, state: str) -> None:
        """The group is in this state, or will be in a moment: requests of others take their time.
        Not to be asked of a member whose JoinGroup waits: nothing passes that."""
        eventually(lambda: self.state() == state, f"{self.group} is {state}")


def described(wire: Wire, group: str, version: int = 5) -> Struct:
    return wire.call("DescribeGroups", version, groups=[group]).groups[0]  # type: ignore[no-any-return]


MakeMember = Callable[..., Member]


def wait_for_coordinator(wire: Wire, group: str) -> None:
    """Kafka makes its offsets topic when a coordinator is first looked for."""
    deadline = time.monotonic() + 60
    while True:
        answer = wire.call("FindCoordinator", 4, key_type=0, coordinator_keys=[group])
        if error(answer.coordinators[0]) == "NONE":
            listed = described(wire, group)
            if error(listed) == "NONE":
                return
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)


def form(*members: Member) -> None:
    """Bring new members into one stable generation; the first of them leads."""
    first, *others = members
    first.ask_to_come_in()
    assert error(first.joined()) == "NONE"
    for number, one in enumerate(others):
        one.ask_to_come_in()
        first.sees("PreparingRebalance")  # the newcomer has come
        for before in members[: number + 1]:  # it calls back those who are in
            before.send_join()
        for each in (*members[: number + 1], one):
            assert error(each.joined()) == "NONE"
    assert first.leads
    assert error(first.sync(*members)) == "NONE"
    for one in others:
        assert one.sync().assignment == one.member_id.encode()
