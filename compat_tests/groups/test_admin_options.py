"""The rest of what administrators can say: every option of Kafka's tools, filters, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import kafka
import kafka.errors
import pytest
from confluent_kafka import ConsumerGroupState as State
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka import ConsumerGroupType as Type
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from compat_tests.groups.conftest import Start, Tool, pairs
from compat_tests.groups.consumers import Consumer, wait_shared
from compat_tests.harness.brokers import Broker
from compat_tests.harness.tools import ToolFailed, run_tool


def columns(printed: str, word: str) -> list[list[str]]:
    """The lines with this word, sorted, in columns."""
    return sorted(line.split() for line in printed.splitlines() if word in line.split())


class TestKafkasTool:
    def test_list_by_type(self, tool: Tool, live: Consumer, group: str) -> None:
        assert columns(tool("--list", "--type"), group) == [[group, "Classic"]]
        assert group in tool("--list", "--type", "classic").split()
        assert group not in tool("--list", "--type", "consumer").split()
        both = tool("--list", "--type", "classic", "--state", "stable,empty")
        assert columns(both, group) == [[group, "Classic", "Stable"]]
        assert group not in tool("--list", "--type", "classic", "--state", "dead").split()

    def test_describe_in_every_way(self, tool: Tool, live: Consumer, group: str, four: str) -> None:
        members = columns(tool("--describe", "--group", group, "--members"), group)
        assert [row[-1] for row in members] == ["4"], "partitions"
        state = columns(tool("--describe", "--group", group, "--state", "--verbose"), group)
        assert {"range", "Stable"} <= set(state[0])
        offsets = columns(tool("--describe", "--group", group, "--offsets", "--verbose"), group)
        assert [(row[1], row[2], row[4]) for row in offsets] == [
            (four, str(partition), "5") for partition in range(4)
        ]
        everybody = tool("--describe", "--all-groups")
        assert [row[3:6] for row in columns(everybody, group)] == [["5", "8", "3"]] * 4

    def test_a_reset_is_a_dry_run_unless_told_otherwise(
        self, tool: Tool, empty: Consumer, group: str, four: str
    ) -> None:
        printed = tool("--group", group, "--all-topics", "--reset-offsets", "--to-earliest")
        assert [row[-1] for row in columns(printed, four)] == ["0"] * 4
        described = tool("--describe", "--group", group)
        assert [row[3] for row in columns(described, four)] == ["5"] * 4
        tool(
            *("--group", group, "--topic", f"{four}:0,2"),
            *("--reset-offsets", "--to-latest", "--execute"),
        )
        described = tool("--describe", "--group", group)
        assert [row[3] for row in columns(described, four)] == ["8", "5", "8", "5"]

    def test_offsets_of_topics_in_use_are_not_deleted(
        self, tool: Tool, live: Consumer, group: str, four: str
    ) -> None:
        printed = tool("--group", group, "--topic", four, "--delete-offsets")
        assert printed.count("GroupSubscribedToTopicException") == 4
        assert live.committed((four, 0)) == 5

    def test_several_groups_are_deleted_one_by_one(
        self, tool: Tool, empty: Consumer, group: str
    ) -> None:
        printed = tool("--delete", "--group", group, "--group", "nobody-has-this")
        assert "'nobody-has-this' could not be deleted" in printed
        assert "GroupIdNotFoundException" in printed
        assert f"deleted successfully: '{group}'" in printed

    def test_all_kinds_of_groups_are_listed(
        self, broker: Broker, tool: Tool, live: Consumer, group: str
    ) -> None:
        listed = run_tool(
            "org.apache.kafka.tools.GroupsCommand",
            *("--bootstrap-server", broker.bootstrap, "--list"),
        )
        assert columns(listed, group) == [[group, "Classic", "consumer"]]

    def test_members_are_removed_by_force(
        self, broker: Broker, tool: Tool, start: Start, group: str, four: str
    ) -> None:
        """Kafka's tool that does it: it resets the applications of Kafka Streams."""
        member = start("confluent-kafka", four, session_ms=60_000, max_poll_ms=60_000)
        wait_shared([member], pairs(four))
        member.commit({(four, partition): 5 for partition in range(4)})

        def reset(*more: str) -> str:
            return run_tool(
                "org.apache.kafka.tools.StreamsResetter",
                *("--bootstrap-server", broker.bootstrap, "--application-id", group),
                *("--input-topics", four, *more),
            )

        with pytest.raises(ToolFailed, match="is still active and has following members"):
            reset()
        member.freeze()  # it would be back before the tool has written the offsets
        assert f"Topic: {four} Partition: 3 Offset: 0" in reset("--force")
        described = tool("--describe", "--group", group)
        assert [row[3] for row in columns(described, four)] == ["0"] * 4
        member.thaw()
        member.wait(lambda: len(member.seen("assigned")) == 2, "it has lost all and is back", 60)
        wait_shared([member], pairs(four))


class TestKafkaPython:
    @pytest.fixture
    def admin(self, broker: Broker) -> Iterator[Any]:
        client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        yield client
        client.close()

    def test_list_by_type(self, admin: Any, live: Consumer, group: str) -> None:
        def listed(**filters: list[str]) -> bool:
            return group in {one["group_id"] for one in admin.list_groups(**filters)}

        assert listed(types_filter=["classic"])
        assert not listed(types_filter=["consumer"])
        assert listed(types_filter=["classic", "consumer"], states_filter=["Stable", "Empty"])
        assert not listed(types_filter=["classic"], states_filter=["Empty"])

    def test_a_group_with_members_is_not_changed(
        self, admin: Any, live: Consumer, group: str, four: str
    ) -> None:
        place = kafka.TopicPartition(four, 0)

        def refused(error: type[Exception], change: Callable[[], Any]) -> None:
            """As an exception, or as what is answered for the group or the partition."""
            try:
                answer = change()
            except error:
                return
            assert error.__name__ in repr(answer), answer

        moved = {place: OffsetAndMetadata(1, "", -1)}
        refused(kafka.errors.UnknownMemberIdError, lambda: admin.alter_group_offsets(group, moved))
        refused(
            kafka.errors.GroupSubscribedToTopicError,
            lambda: admin.delete_group_offsets(group, [place]),
        )
        refused(kafka.errors.NonEmptyGroupError, lambda: admin.delete_groups([group]))
        assert live.committed((four, 0)) == 5


class TestConfluent:
    @pytest.fixture
    def admin(self, broker: Broker) -> AdminClient:
        return AdminClient({"bootstrap.servers": broker.bootstrap})

    def test_list_by_state_and_type(self, admin: AdminClient, live: Consumer, group: str) -> None:
        def listed(**filters: Any) -> bool:
            found = admin.list_consumer_groups(**filters).result()
            assert not found.errors
            return group in {one.group_id for one in found.valid}

        assert listed(states={State.STABLE}, types={Type.CLASSIC})
        assert not listed(states={State.EMPTY})
        assert not listed(types={Type.CONSUMER})

    def test_a_group_with_members_is_not_changed(
        self, admin: AdminClient, live: Consumer, group: str, four: str
    ) -> None:
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result()
        moved = ConsumerGroupTopicPartitions(group, [TopicPartition(four, 1, 7)])
        answer = admin.alter_consumer_group_offsets([moved])[group].result()
        (partition,) = answer.topic_partitions
        assert partition.error is not None
        assert partition.error.name() == "UNKNOWN_MEMBER_ID"
        assert live.committed((four, 1)) == 5

    def test_a_missing_group(self, admin: AdminClient) -> None:
        with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
            admin.delete_consumer_groups(["nobody"])["nobody"].result()
