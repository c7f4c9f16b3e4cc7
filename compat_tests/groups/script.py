"""A conversation with a broker about one group, byte by byte, written down line by line.

The lines say everything that the answers say, with member ids replaced by the members' names, so
that two brokers that answer alike write the same lines.

Whoever knows the lines that are to come hands them in: an answer that is due is then waited for,
however slow the machine is, and only one that must not come yet is given up soon.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Closed, Silent, Wire

AT_ONCE = 1.0
"""Seconds after which an answer that has not come is waiting for something, where nobody knows."""
NOT_YET = 0.4
"""Seconds for which an answer is looked for that is not to come yet."""
PATIENCE = 60.0
"""Seconds for which an answer is waited for that is to come."""

MEMBER_ID = re.compile(r"(\w+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Client or instance id, and a random UUID."""


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, version 0."""
    names = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return (0).to_bytes(2) + len(topics).to_bytes(4) + names + (-1).to_bytes(4, signed=True)


class Script:
    """All members of a conversation, and what was said. `expected`: the lines, where known."""

    def __init__(
        self,
        host: str,
        port: int,
        group: str,
        topic: str,
        topic_id: uuid.UUID,
        expected: Sequence[str] = (),
    ) -> None:
        self.address = host, port
        self.group = group
        self.topic = topic
        self.expected = list(expected)
        self.lines: list[str] = []
        self.names: dict[str, str] = {group: "GROUP", topic: "TOPIC", str(topic_id): "TOPIC-ID"}
        self.ids: dict[str, list[str]] = {}
        """Member ids by the name in front, in the order in which they were seen."""
        self.topic_id = topic_id
        self.members: list[Speaker] = []

    def member(self, name: str, **options: Any) -> Speaker:
        speaker = Speaker(self, name, **options)
        self.members.append(speaker)
        return speaker

    def pause(self, seconds: float) -> None:
        """Let time pass; answers that come are written down."""
        self.lines.append(f"-- {seconds} s later")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
        self.collect()

    def until_answered(self, speaker: Speaker) -> None:
        """Until nothing that this member has asked waits any longer."""
        self.lines.append(f"-- until {speaker.name} is answered")
        deadline = time.monotonic() + PATIENCE
        while speaker.waiting:
            assert time.monotonic() < deadline, f"{self.lines[-5:]}: no answer"
            speaker.collect(0.1)

    def next_line(self) -> str:
        """The line that is to come; empty when that is not known, or things went another way."""
        said = len(self.lines)
        if said < len(self.expected) and self.lines == self.expected[:said]:
            return self.expected[said]
        return ""

    def collect(self) -> None:
        """Write down what members have been waiting for and is there now, or is to come now."""
        while " at last: " in (line := self.next_line()):
            if not any(speaker.answered(line) for speaker in self.members):
                break
        for speaker in self.members:
            speaker.collect(0.15 if speaker.waiting and not self.expected else 0)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def shown(self, value: Any) -> str:
        """A value without what differs from run to run."""
        match value:
            case Struct():
                fields = {k: v for k, v in vars(value).items() if k != "_name"}
                fields.pop("throttle_time_ms", None)
                return "{" + ", ".join(f"{k}: {self._field(k, v)}" for k, v in fields.items()) + "}"
            case list() | tuple():
                return "[" + ", ".join(sorted(map(self.shown, value))) + "]"
            case str() | uuid.UUID():
                return self._name(str(value))
            case bytes():
                return self._name(value.decode(errors="backslashreplace"))
        return str(value)

    def _field(self, name: str, value: Any) -> str:
        return name_of(value) if name == "error_code" else self.shown(value)

    def _name(self, text: str) -> str:
        for real, name in self.names.items():
            text = text.replace(real, name)
        return repr(MEMBER_ID.sub(self._member_id, text))

    def _member_id(self, found: re.Match[str]) -> str:
        """<a> for the first id of a member called a, <a2> for the next."""
        known = self.ids.setdefault(found[1], [])
        if found[0] not in known:
            known.append(found[0])
        number = known.index(found[0])
        return f"<{found[1]}{number + 1}>" if number else f"<{found[1]}>"

    def close(self) -> None:
        for speaker in self.members:
            speaker.close()


class Speaker:
    """One member, or somebody who would like to be; each request names its own version."""

    def __init__(
        self,
        script: Script,
        name: str,
        *,
        instance_id: str | None = None,
        session_ms: int = 30_000,
        rebalance_ms: int = 30_000,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
    ) -> None:
        self.script = script
        self.name = name
        self.instance_id = instance_id
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.protocols = dict(protocols or {"range": subscription(script.topic)})
        self.protocol_type = protocol_type
        self.member_id = ""
        self.generation_id = -1
        self.waiting: list[tuple[Wire, str, int]] = []
        self._free: list[Wire] = []
        self._wires: list[Wire] = []

    # ------------------------------------------------------------------------------------ requests

    def ask(self, api: str, version: int, note: str = "", /, **fields: Any) -> Struct | None:
        """Send, and write down the answer, or that there is none yet."""
        if not self._free:
            wire = Wire(*self.script.address, client_id=self.name)
            self._free.append(wire)
            self._wires.append(wire)
        wire = self._free.pop()
        wire.send(api, version, **fields)
        what = f"{self.name} {api} v{version}{note and ' ' + note}"
        try:
            _, answer = wire.receive(api, version, timeout=self._patience(what))
        except Silent:
            self.script.say(f"{what}: waits")
            self.waiting.append((wire, api, version))
            self.script.collect()
            return None
        except Closed:
            self.script.say(f"{what}: closed")
            return None
        self._free.append(wire)
        self._told(api, answer, what)
        self.script.collect()
        return answer

    def _patience(self, what: str) -> float:
        """Seconds to wait for the answer to this."""
        line = self.script.next_line()
        if not line.startswith(f"{what}: "):
            return AT_ONCE
        return NOT_YET if line == f"{what}: waits" else PATIENCE

    def answered(self, line: str) -> bool:
        """Wait for the answer that this line tells of; False when it is not ours, or not there."""
        ours = [one for one in self.waiting if line.startswith(self._at_last(one[1], one[2]))]
        deadline = time.monotonic() + PATIENCE
        while ours and time.monotonic() < deadline:
            waited_for = len(self.waiting)
            self.collect(0.05)
            if len(self.waiting) < waited_for:
                return True
        return False

    def _at_last(self, api: str, version: int) -> str:
        return f"{self.name} {api} v{version} at last"

    def _told(self, api: str, answer: Struct, what: str) -> None:
        if api == "JoinGroup":
            if answer.error_code in (0, 79):
                self.member_id = answer.member_id
            if answer.error_code == 0:
                self.generation_id = answer.generation_id
        self.script.say(f"{what}: {self.script.shown(answer)}")

    def collect(self, seconds: float) -> None:
        still = []
        for wire, api, version in self.waiting:
            try:
                _, answer = wire.receive(api, version, timeout=max(seconds, 0.01))
            except Silent:
                still.append((wire, api, version))
            else:
                self._free.append(wire)
                self._told(api, answer, self._at_last(api, version))
        self.waiting = still

    def close(self) -> None:
        for wire in self._wires:
            wire.close()

    # ------------------------------------------------------------------------------------ messages

    def join(self, version: int = 9, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "group_id": self.script.group,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms,
            "member_id": self.member_id,
            "protocol_type": self.protocol_type,
            "protocols": [{"name": n, "metadata": m} for n, m in self.protocols.items()],
        }
        if version >= 5:
            fields["group_instance_id"] = self.instance_id
        self.ask("JoinGroup", version, **fields | changes)

    def come_in(self, version: int = 9) -> None:
        """Ask for an id first, where that is how it goes, and join with it."""
        self.join(version)
        if self.generation_id < 0 and self.member_id and not self.waiting:
            self.join(version)

    def sync(self, *parts: Speaker, version: int = 5, **changes: Any) -> None:
        """SyncGroup; a leader gives each of `parts` its name as assignment."""
        fields: dict[str, Any] = {
            "group_id": self.script.group,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "assignments": [
                {"member_id": part.member_id, "assignment": f"for {part.name}".encode()}
                for part in parts
            ],
        }
        if version >= 3:
            fields["group_instance_id"] = self.instance_id
        if version >= 5:
            fields |= {
                "protocol_type": self.protocol_type,
                "protocol_name": next(iter(self.protocols)),
            }
        self.ask("SyncGroup", version, **fields | changes)

    def heartbeat(self, version: int = 4, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "group_id": self.script.group,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
        }
        if version >= 3:
            fields["group_instance_id"] = self.instance_id
        self.ask("Heartbeat", version, **fields | changes)

    def leave(self, version: int = 5, **changes: Any) -> None:
        fields: dict[str, Any] = {"group_id": self.script.group}
        if version < 3:
            fields["member_id"] = self.member_id
        else:
            fields["members"] = [
                {"member_id": self.member_id, "group_instance_id": self.instance_id}
            ]
        self.ask("LeaveGroup", version, **fields | changes)

    def commit(self, offset: int, version: int = 9, **changes: Any) -> None:
        part = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_metadata": f"at {offset}",
        }
        fields: dict[str, Any] = {
            "group_id": self.script.group,
            "generation_id_or_member_epoch": self.generation_id,
            "member_id": self.member_id,
            "topics": [self.topic(version, [part])],
        }
        if version >= 7:
            fields["group_instance_id"] = self.instance_id
        self.ask("OffsetCommit", version, **fields | changes)

    def topic(self, version: int, partitions: Sequence[Any], key: str = "partitions") -> Any:
        named = {"name": self.script.topic} if version < 10 else {"topic_id": self.script.topic_id}
        return {**named, key: list(partitions)}

    def committed(self, version: int = 9, *, everything: bool = False) -> None:
        wanted = None if everything else [self.topic(version, [0, 1], "partition_indexes")]
        if version < 8:
            self.ask("OffsetFetch", version, group_id=self.script.group, topics=wanted)
        else:
            groups = [{"group_id": self.script.group, "topics": wanted}]
            self.ask("OffsetFetch", version, groups=groups)

    def describe(self, version: int = 6) -> None:
        self.ask("DescribeGroups", version, groups=[self.script.group])

    def delete(self, version: int = 2) -> None:
        self.ask("DeleteGroups", version, groups_names=[self.script.group])

    def forget(self, *partitions: int) -> None:
        topics = [
            {
                "name": self.script.topic,
                "partitions": [{"partition_index": index} for index in partitions],
            }
        ]
        self.ask("OffsetDelete", 0, group_id=self.script.group, topics=topics)
