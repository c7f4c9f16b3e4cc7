"""What a healthy cluster of one broker answers to the calls of clusters of many."""

from __future__ import annotations

from typing import Any

import pytest

from compat_tests.conftest import MakeTopic
from compat_tests.harness.waiting import eventually
from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Closed, Wire

QUORUM = "__cluster_metadata"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def node_of(wire: Wire) -> int:
    (broker,) = wire.call("Metadata", 12, topics=[]).brokers
    return int(broker.node_id)


def errors(parts: list[Struct]) -> list[str]:
    return [name_of(part.error_code) for part in parts]


# ------------------------------------------------------------------------------------------ quorum


def quorum(wire: Wire, version: int, *topics: tuple[str, list[int]]) -> Struct:
    asked = [
        {"topic_name": name, "partitions": [{"partition_index": i} for i in indexes]}
        for name, indexes in topics
    ]
    return wire.call("DescribeQuorum", version, topics=asked)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_this_broker(wire: Wire, new_topic: MakeTopic, version: int) -> None:
    node = node_of(wire)
    answer = quorum(wire, version, (QUORUM, [0]))
    assert answer.error_code == 0
    ((partition,),) = [topic.partitions for topic in answer.topics]
    assert (partition.error_code, partition.leader_id) == (0, node)
    assert partition.leader_epoch > 0
    (voter,) = partition.current_voters
    assert (voter.replica_id, partition.observers) == (node, [])
    assert voter.log_end_offset >= partition.high_watermark > 0
    if version >= 1:
        assert voter.last_caught_up_timestamp >= voter.last_fetch_timestamp > 0
    if version >= 2:
        (described,) = answer.nodes
        assert described.node_id == node
        assert [listener.port > 0 for listener in described.listeners] == [True]
    new_topic()

    def moved() -> bool:
        later = quorum(wire, version, (QUORUM, [0])).topics[0].partitions[0]
        return bool(later.high_watermark > partition.high_watermark)

    eventually(moved, "the end of the log moves")


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "topics",
    [
        [(QUORUM, [1])],
        [(QUORUM, [0, 0])],
        [(QUORUM, [0, 1])],
        [(QUORUM, [0]), (QUORUM, [0])],
        [(QUORUM, [0]), ("other", [0])],
        [("other", [-1, 7])],
        [(QUORUM, [])],
        [],
    ],
)
def test_there_is_one_quorum(wire: Wire, version: int, topics: list[tuple[str, list[int]]]) -> None:
    answer = quorum(wire, version, *topics)
    assert answer.error_code == 0
    assert [(t.topic_name, [p.partition_index for p in t.partitions]) for t in answer.topics] == (
        topics
    )
    for topic in answer.topics:
        assert set(errors(topic.partitions)) <= {"UNKNOWN_TOPIC_OR_PARTITION"}
    if version >= 2:
        assert answer.nodes == []


# --------------------------------------------------------------------------------------- elections


def elect(wire: Wire, version: int, *topics: tuple[str, list[int]], **fields: Any) -> Struct:
    asked = [{"topic": name, "partitions": indexes} for name, indexes in topics]
    return wire.call(
        "ElectLeaders", version, **{"topic_partitions": asked, "timeout_ms": 20_000, **fields}
    )


def elected(answer: Struct) -> list[tuple[str, list[tuple[int, str]]]]:
    return [
        (r.topic, [(p.partition_id, name_of(p.error_code)) for p in r.partition_result])
        for r in answer.replica_election_results
    ]


@pytest.mark.parametrize("election", [0, 1])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_no_election_is_needed(
    wire: Wire, new_topic: MakeTopic, version: int, election: int
) -> None:
    topic, election_type = new_topic(2), {"election_type": election} if version else {}
    asked = [(topic, [1, 0, 2, -1, 0]), ("no-such-topic", [0]), ("", [0]), (topic, [])]
    answer = elect(wire, version, *asked, **election_type)
    needless, unknown = "ELECTION_NOT_NEEDED", "UNKNOWN_TOPIC_OR_PARTITION"
    assert elected(answer) == [
        (topic, [(1, needless), (0, needless), (2, unknown), (-1, unknown), (0, needless)]),
        ("no-such-topic", [(0, unknown)]),
        ("", [(0, unknown)]),
        (topic, []),
    ]
    if version:
        assert answer.error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_everywhere_names_only_partitions_that_had_one(
    wire: Wire, topic: str, version: int
) -> None:
    found = dict(elected(elect(wire, version, topic_partitions=None)))
    assert found[topic] == []
    assert all(partitions == [] for partitions in found.values())
    assert elected(elect(wire, version, topic_partitions=[])) == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"election_type": 2}, "INVALID_REQUEST"),
        ({"election_type": -1}, "INVALID_REQUEST"),
        ({"timeout_ms": 0}, "REQUEST_TIMED_OUT"),
        ({"timeout_ms": -1}, "REQUEST_TIMED_OUT"),
        ({"timeout_ms": 0, "election_type": 2}, "REQUEST_TIMED_OUT"),
    ],
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_elections_that_are_refused(
    wire: Wire, topic: str, version: int, fields: dict[str, Any], error: str
) -> None:
    if version == 0:
        fields = {name: value for name, value in fields.items() if name != "election_type"}
        error = error if fields else "ELECTION_NOT_NEEDED"
    answer = elect(wire, version, (topic, [0, 7]), **fields)
    ((_, parts),) = elected(answer)
    assert parts[0] == (0, error)
    if version:
        assert name_of(answer.error_code) == error
        every = elect(wire, version, topic_partitions=None, **fields)
        assert (name_of(every.error_code), elected(every)) == (error, [])
    assert elected(elect(wire, version, **fields)) == []


# ------------------------------------------------------------------------------------------- moves


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_can_only_be_moved_where_it_is(
    wire: Wire, new_topic: MakeTopic, version: int
) -> None:
    topic, node = new_topic(2), node_of(wire)
    moves: list[tuple[int, list[int] | None, str]] = [
        (0, [node], "NONE"),
        (0, [node], "NONE"),
        (1, None, "NO_REASSIGNMENT_IN_PROGRESS"),
        (0, [node, 99], "INVALID_REPLICA_ASSIGNMENT"),
        (0, [99], "INVALID_REPLICA_ASSIGNMENT"),
        (0, [node, node], "INVALID_REPLICA_ASSIGNMENT"),
        (0, [], "INVALID_REPLICA_ASSIGNMENT"),
        (0, [-1], "INVALID_REPLICA_ASSIGNMENT"),
        (2, [node], "UNKNOWN_TOPIC_OR_PARTITION"),
        (-1, None, "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    parts = [{"partition_index": i, "replicas": replicas} for i, replicas, _ in moves]
    unknown = {"name": "no-such-topic", "partitions": parts[:1]}
    for fixed in [False, True] if version else [None]:
        more = {} if fixed is None else {"allow_replication_factor_change": not fixed}
        answer = wire.call(
            "AlterPartitionReassignments",
            version,
            timeout_ms=20_000,
            topics=[{"name": topic, "partitions": parts}, unknown, {"name": topic}],
            **more,
        )
        assert answer.error_code == 0
        if version:
            assert answer.allow_replication_factor_change is not fixed
        moved, missing, empty = answer.responses
        assert errors(moved.partitions) == [error for _, _, error in moves]
        assert errors(missing.partitions) == ["UNKNOWN_TOPIC_OR_PARTITION"]
        assert empty.partitions == []
    assert wire.call("ListPartitionReassignments", 0, topics=None).topics == []


@pytest.mark.parametrize("version", [0, 1])
def test_a_move_without_time_is_timed_out(wire: Wire, topic: str, version: int) -> None:
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": None}]}]
    answer = wire.call("AlterPartitionReassignments", version, timeout_ms=0, topics=asked)
    assert name_of(answer.error_code) == "REQUEST_TIMED_OUT"
    assert errors(answer.responses[0].partitions) == ["REQUEST_TIMED_OUT"]
    assert wire.call("AlterPartitionReassignments", version, timeout_ms=0).error_code == 0


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_is_where_the_only_log_dir_is(
    wire: Wire, new_topic: MakeTopic, version: int
) -> None:
    topic = new_topic(2)
    (folder,) = [result.log_dir for result in wire.call("DescribeLogDirs", 4, topics=None).results]

    def alter(*dirs: tuple[str, list[tuple[str, list[int]]]]) -> dict[tuple[str, int], str]:
        asked = [
            {"path": path, "topics": [{"name": n, "partitions": p} for n, p in topics]}
            for path, topics in dirs
        ]
        answer = wire.call("AlterReplicaLogDirs", version, dirs=asked)
        return {
            (result.topic_name, part.partition_index): name_of(part.error_code)
            for result in answer.results
            for part in result.partitions
        }

    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert alter((folder, [(topic, [0, 1, 1]), (topic, [0])])) == {
        (topic, 0): "NONE",
        (topic, 1): "NONE",
    }
    assert alter((folder, [(topic, [2, -1]), ("none", [0]), ("", [0])])) == {
        (topic, 2): unknown,
        (topic, -1): unknown,
        ("none", 0): unknown,
        ("", 0): unknown,
    }
    for path in ("/other", "relative", "", folder + "/"):
        assert alter((path, [(topic, [0, 9])])) == {
            (topic, 0): "LOG_DIR_NOT_FOUND",
            (topic, 9): "LOG_DIR_NOT_FOUND",
        }
    assert alter((folder, [(topic, [0])]), ("/other", [(topic, [0])])) == {
        (topic, 0): "LOG_DIR_NOT_FOUND"
    }
    assert alter((folder, [(topic, [])]), ("/other", [])) == {}


# ---------------------------------------------------------------------------- what nobody has set


@pytest.mark.parametrize("version", [0, 1])
def test_there_are_no_quotas_and_filters_make_sense(wire: Wire, version: int) -> None:
    def ask(*components: tuple[str, int, str | None]) -> tuple[str, Any]:
        asked = [{"entity_type": t, "match_type": m, "match": x} for t, m, x in components]
        answer = wire.call("DescribeClientQuotas", version, components=asked)
        return name_of(answer.error_code), answer.entries

    for fine in (
        [],
        [("user", 0, "ann")],
        [("user", 0, "")],
        [("user", 1, None), ("client-id", 2, None)],
        [("ip", 2, None)],
        [("ip", 0, "no address")],
    ):
        assert ask(*fine) == ("NONE", [])
    for bad in (
        [("user", 0, None)],
        [("user", 1, "ann")],
        [("user", 2, "ann")],
        [("user", 3, None)],
        [("user", -1, None)],
        [("", 2, None)],
        [("user", 2, None), ("user", 0, "ann")],
        [("user", 2, None), ("ip", 2, None)],
        [("ip", 2, None), ("client-id", 2, None)],
    ):
        assert ask(*bad) == ("INVALID_REQUEST", None)
    for unknown in ([("group", 2, None)], [("ip", 2, None), ("group", 9, None), ("ip", 2, None)]):
        assert ask(*unknown) == ("UNSUPPORTED_VERSION", None)


def test_no_user_has_credentials(wire: Wire) -> None:
    def ask(*names: str) -> list[tuple[str, str]]:
        users = [{"name": name} for name in names]
        answer = wire.call("DescribeUserScramCredentials", 0, users=users)
        assert answer.error_code == 0
        assert all(result.credential_infos == [] for result in answer.results)
        return [(result.user, name_of(result.error_code)) for result in answer.results]

    assert wire.call("DescribeUserScramCredentials", 0, users=None).results == []
    assert ask() == []
    assert ask("ann", "", "bob", "ann") == [
        ("ann", "DUPLICATE_RESOURCE"),
        ("", "RESOURCE_NOT_FOUND"),
        ("bob", "RESOURCE_NOT_FOUND"),
    ]


ANY_RULE = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_without_an_authorizer_there_are_no_acls(wire: Wire, version: int) -> None:
    for change in ({}, {"resource_type_filter": 2}, {"operation": 100}, {"permission_type": -1}):
        asked = {**ANY_RULE, "permission_type": 1, **change}
        answer = wire.call("DescribeAcls", version, **asked)
        assert (name_of(answer.error_code), answer.resources) == ("SECURITY_DISABLED", [])
        assert answer.error_message


@pytest.mark.parametrize("field", [*ANY_RULE, "permission_type"])
def test_a_filter_of_acls_that_says_unknown_closes_the_connection(wire: Wire, field: str) -> None:
    with pytest.raises(Closed):
        wire.call("DescribeAcls", 2, **{**ANY_RULE, "permission_type": 1, field: 0})


# ---------------------------------------------------------------------------------------- features


def update(
    wire: Wire, version: int, *updates: tuple[str, int, int], validate_only: bool = False
) -> Struct:
    asked = [
        {"feature": name, "max_version_level": level}
        | ({"upgrade_type": how} if version else {"allow_downgrade": how > 1})
        for name, level, how in updates
    ]
    more = {"validate_only": validate_only} if version else {}
    return wire.call("UpdateFeatures", version, feature_updates=asked, **more)


def finalized(wire: Wire) -> tuple[dict[str, int], int]:
    answer = wire.call("ApiVersions", 4, client_software_name="a", client_software_version="1")
    levels = {f.name: f.max_version_level for f in answer.finalized_features}
    return levels, answer.finalized_features_epoch


@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_that_are_where_they_should_be(wire: Wire, version: int) -> None:
    levels, _ = finalized(wire)
    asked = [(name, levels[name], UPGRADE) for name in ("metadata.version", "transaction.version")]
    answer = update(wire, version, *asked)
    assert answer.error_code == 0
    if version < 2:
        assert [(r.feature, r.error_code) for r in answer.results] == [(n, 0) for n, _, _ in asked]
    assert finalized(wire)[0] == levels
    assert update(wire, version).error_code == 0


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("name", "level", "how"),
    [
        ("metadata.version", 31, UPGRADE),
        ("metadata.version", 6, UNSAFE_DOWNGRADE),
        ("metadata.version", 29, UPGRADE),
        ("metadata.version", 29, SAFE_DOWNGRADE),
        ("metadata.version", 29, UNSAFE_DOWNGRADE),
        ("transaction.version", 3, UPGRADE),
        ("transaction.version", -1, SAFE_DOWNGRADE),
        ("transaction.version", 1, UPGRADE),
        ("transaction.version", 2, 0),
        ("transaction.version", 2, 4),
        ("no.such.feature", 1, UPGRADE),
        ("no.such.feature", 0, SAFE_DOWNGRADE),
        ("", 1, UPGRADE),
    ],
)
def test_updates_of_features_that_are_refused(
    wire: Wire, version: int, name: str, level: int, how: int
) -> None:
    before = finalized(wire)
    answer = update(wire, version, ("transaction.version", 1, SAFE_DOWNGRADE), (name, level, how))
    assert name_of(answer.error_code) == "INVALID_UPDATE_VERSION"
    assert name in answer.error_message
    if version < 2:
        assert answer.results == []
    assert finalized(wire)[0] == before[0]


@pytest.mark.parametrize("how", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_the_level_of_transactions_goes_down_and_up(wire: Wire, how: int) -> None:
    levels, epoch = finalized(wire)
    assert levels["transaction.version"] == 2
    try:
        assert update(wire, 2, ("transaction.version", 1, how), validate_only=True).error_code == 0
        assert finalized(wire)[0] == levels
        assert update(wire, 2, ("transaction.version", 1, how)).error_code == 0
        eventually(lambda: finalized(wire)[0]["transaction.version"] == 1, "level 1")
        assert finalized(wire)[1] > epoch
        back = update(wire, 2, ("transaction.version", 2, how))
        assert name_of(back.error_code) == "INVALID_UPDATE_VERSION"
        assert update(wire, 2, ("transaction.version", 0, how)).error_code == 0
        eventually(lambda: "transaction.version" not in finalized(wire)[0], "level 0")
    finally:
        assert update(wire, 2, ("transaction.version", 2, UPGRADE)).error_code == 0
    eventually(lambda: finalized(wire)[0] == levels, "the levels of before")
