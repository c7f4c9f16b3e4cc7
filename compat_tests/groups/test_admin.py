"""What Kafka's tool and the clients' admin APIs do with groups."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient, MemberToRemove
from kafka.admin._partitions import OffsetSpec
from kafka.structs import OffsetAndMetadata

from compat_tests.groups.conftest import Tool
from compat_tests.groups.consumers import Consumer, wait_shared
from compat_tests.harness.brokers import Broker


def pairs(topic: str, count: int = 4) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(count)}


def rows(printed: str, topic: str) -> list[list[str]]:
    """The columns of the lines about a topic, by partition."""
    lines = [line.split() for line in printed.splitlines() if topic in line.split()]
    return sorted(lines, key=lambda columns: columns[columns.index(topic) + 1])


class TestKafkasTool:
    def test_describe_with_members_and_lag(
        self, tool: Tool, live: Consumer, group: str, four: str
    ) -> None:
        described = rows(tool("--describe", "--group", group), four)
        assert [columns[2:6] for columns in described] == [
            [str(partition), "5", "8", "3"] for partition in range(4)
        ]
        assert all(live.name in columns[-1] for columns in described), "client id"
        assert all(columns[-2].startswith("/") for columns in described), "host"
        members = tool("--describe", "--group", group, "--members", "--verbose")
        (line,) = [line for line in members.splitlines() if live.name in line]
        assert f"{four}(0,1,2,3)" in line.replace(" ", "") or f"{four}:0,1,2,3" in line
        state = tool("--describe", "--group", group, "--state")
        assert "Stable" in state
        assert "range" in state

    def test_list_by_state(self, tool: Tool, live: Consumer, group: str) -> None:
        assert group in tool("--list").split()
        listed = tool("--list", "--state", "Stable")
        assert [line.split() for line in listed.splitlines() if group in line] == [
            [group, "Stable"]
        ]
        assert group not in tool("--list", "--state", "Empty").split()

    def test_a_missing_group(self, tool: Tool) -> None:
        assert "not found" in tool("--describe", "--group", "nobody-has-this")

    def test_reset_and_delete_are_refused_while_there_are_members(
        self, tool: Tool, live: Consumer, group: str, four: str
    ) -> None:
        printed = tool(
            *("--group", group, "--topic", four),
            *("--reset-offsets", "--to-earliest", "--execute"),
        )
        assert "inactive" in printed
        assert "not empty" in tool("--delete", "--group", group).lower().replace("-", " ")
        assert live.committed((four, 0)) == 5

    @pytest.mark.parametrize(
        ("how", "expected"),
        [
            (["--to-earliest"], "0"),
            (["--to-latest"], "8"),
            (["--to-offset", "3"], "3"),
            (["--to-offset", "99"], "8"),
            (["--shift-by", "-2"], "3"),
            (["--to-datetime", "2001-01-01T00:00:00.000"], "0"),
            (["--by-duration", "P1D"], "0"),
            (["--to-current"], "5"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else value,
    )
    def test_reset(
        self, tool: Tool, empty: Consumer, group: str, four: str, how: list[str], expected: str
    ) -> None:
        printed = tool("--group", group, "--topic", four, "--reset-offsets", *how, "--execute")
        assert [columns[-1] for columns in rows(printed, four)] == [expected] * 4
        described = rows(tool("--describe", "--group", group), four)
        assert [columns[3] for columns in described] == [expected] * 4

    def test_reset_from_a_file_that_was_exported(
        self, tool: Tool, empty: Consumer, group: str, four: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "offsets.csv"
        export = ("--reset-offsets", "--shift-by", "-1", "--export", "--dry-run")
        path.write_text(tool("--group", group, "--topic", four, *export))
        assert f"{four},2,4" in path.read_text().replace('"', "")
        tool("--group", group, "--reset-offsets", "--from-file", str(path), "--execute")
        described = rows(tool("--describe", "--group", group), four)
        assert [columns[3] for columns in described] == ["4"] * 4

    def test_delete_offsets_and_group(
        self, tool: Tool, empty: Consumer, group: str, four: str
    ) -> None:
        printed = tool("--group", group, "--topic", f"{four}:0,1", "--delete-offsets")
        assert "Successful" in printed
        assert len(rows(tool("--describe", "--group", group), four)) == 2
        assert "was successful" in tool("--delete", "--group", group)
        assert group not in tool("--list").split()


class TestKafkaPython:
    @pytest.fixture
    def admin(self, broker: Broker) -> Any:
        client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        yield client
        client.close()

    def test_list_and_describe(self, admin: Any, live: Consumer, group: str, four: str) -> None:
        assert group in {one["group_id"] for one in admin.list_groups()}
        stable = admin.list_groups(states_filter=["Stable"])
        assert group in {one["group_id"] for one in stable}
        assert group not in {one["group_id"] for one in admin.list_groups(states_filter=["Empty"])}
        described = admin.describe_groups([group])[group]
        assert described["group_state"] == "Stable"
        (member,) = described["members"]
        assert member["client_id"] == live.name
        assert four in str(member["member_assignment"])

    def test_offsets(self, admin: Any, empty: Consumer, group: str, four: str) -> None:
        places = [kafka.TopicPartition(four, partition) for partition in range(4)]
        found = admin.list_group_offsets({group: None})[group]
        assert {place: found[place].offset for place in places} == dict.fromkeys(places, 5)
        admin.alter_group_offsets(group, {places[0]: OffsetAndMetadata(2, "moved", -1)})
        found = admin.list_group_offsets({group: [places[0]]})[group]
        assert (found[places[0]].offset, found[places[0]].metadata) == (2, "moved")
        admin.reset_group_offsets(group, {places[1]: OffsetSpec.LATEST})
        admin.delete_group_offsets(group, [places[2]])
        found = admin.list_group_offsets({group: None})[group]
        assert {place.partition: at.offset for place, at in found.items() if at.offset >= 0} == {
            0: 2,
            1: 8,
            3: 5,
        }
        admin.delete_groups([group])
        assert group not in {one["group_id"] for one in admin.list_groups()}

    def test_members_are_removed(self, admin: Any, live: Consumer, group: str, four: str) -> None:
        """A member that is removed hears of it with its next heartbeat, and joins again."""
        (member,) = admin.describe_groups([group])[group]["members"]
        admin.remove_group_members(group, [MemberToRemove(member_id=member["member_id"])])
        deadline = time.monotonic() + 60
        while True:
            members = admin.describe_groups([group])[group]["members"]
            if members and members[0]["member_id"] != member["member_id"]:
                break
            assert time.monotonic() < deadline, members
            time.sleep(0.1)
        wait_shared([live], pairs(four))


class TestConfluent:
    @pytest.fixture
    def admin(self, broker: Broker) -> AdminClient:
        return AdminClient({"bootstrap.servers": broker.bootstrap})

    def test_list_and_describe(
        self, admin: AdminClient, live: Consumer, group: str, four: str
    ) -> None:
        listed = admin.list_consumer_groups().result().valid
        assert {one.group_id: one.state.name for one in listed}[group] == "STABLE"
        described = admin.describe_consumer_groups([group])[group].result()
        assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
        (member,) = described.members
        assert member.client_id == live.name
        owned = {(tp.topic, tp.partition) for tp in member.assignment.topic_partitions}
        assert owned == pairs(four)

    def test_offsets(self, admin: AdminClient, empty: Consumer, group: str, four: str) -> None:
        asked = [ConsumerGroupTopicPartitions(group)]
        found = admin.list_consumer_group_offsets(asked)[group].result()
        assert {tp.partition: tp.offset for tp in found.topic_partitions} == dict.fromkeys(
            range(4), 5
        )
        moved = ConsumerGroupTopicPartitions(group, [TopicPartition(four, 1, 7)])
        admin.alter_consumer_group_offsets([moved])[group].result()
        found = admin.list_consumer_group_offsets(asked)[group].result()
        assert {tp.partition: tp.offset for tp in found.topic_partitions}[1] == 7
        admin.delete_consumer_groups([group])[group].result()
        listed = admin.list_consumer_groups().result().valid
        assert group not in {one.group_id for one in listed}
