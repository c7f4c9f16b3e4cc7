"""Long requests in slices: what others are answered in between, and what may change meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Client, Harness, VirtualClock
from tests.broker.txnkit import NEW, OLD, TxnProducer, seen

from ottla.broker.slices import SLICE_MS
from ottla.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from ottla.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from ottla.wire.api.elect_leaders import (
    ElectLeadersRequest,
    TopicPartitions,
)
from ottla.wire.api.list_transactions import (
    ListTransactionsRequest,
)
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.errors import Error
from ottla.wire.schema import Message

WIDE = 200


class TickingClock(VirtualClock):
    """Looking at it takes a tenth of a slice: nothing is done in less time than that."""

    def monotonic_ms(self) -> float:
        self.passed_ms += SLICE_MS / 10
        return self.passed_ms


class Disk:
    """Fails commits when told to."""

    broken = False

    def step(self, name: str) -> None:
        if self.broken and name == "commit: write":
            raise OSError(errno.EIO, "broken")


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def slow(tmp_path: Path, disk: Disk) -> Iterator[Harness]:
    """A broker on which anything takes long."""
    made = Harness(tmp_path / "slow", clock=TickingClock(), step=disk.step)
    made.topic("wide", WIDE)
    yield made
    made.store.close()


def producers(harness: Harness, count: int) -> list[TxnProducer]:
    made = [TxnProducer(harness, f"x{number:03}", NEW) for number in range(count)]
    for producer in made:
        assert producer.init() is Error.NONE
    return made


def turns(harness: Harness, client: Client, most: int = 1000) -> tuple[Any, int]:
    """The answer, and how many turns it took in which another client was answered."""
    for count in range(most):
        answer = client.receive()
        if answer is not None:
            return answer, count
        harness.client().call(ApiVersionsRequest(), 0)
        harness.pass_time(SLICE_MS)
    raise AssertionError(f"no answer after {most} turns")


def names(answer: Any) -> list[str]:
    assert answer.error_code == 0
    return sorted(found.transactional_id for found in answer.transaction_states)


def written(producer: TxnProducer, topic: str = "wide", count: int = WIDE) -> None:
    """One record into each partition, in one request."""
    request = producer.produce_request(topic, 0, b"a")
    (data,) = request.topic_data
    one = data.partition_data[0]
    data.partition_data = [type(one)(index=n, records=one.records) for n in range(count)]
    (found,) = producer.client.call(request, 12).responses
    assert {answer.error_code for answer in found.partition_responses} == {Error.NONE}


# ---------------------------------------------------------------------------------- in their turns


def test_listing_gives_others_a_turn(slow: Harness) -> None:
    expected = [producer.name for producer in producers(slow, 60)]
    asking = slow.client()
    asking.send(ListTransactionsRequest(), 2)
    answer, count = turns(slow, asking)
    assert names(answer) == expected
    assert count >= 5


def test_describing_transactions_gives_others_a_turn(slow: Harness) -> None:
    one, two = producers(slow, 2)
    written(one)
    written(two)
    asking = slow.client()
    asking.send(DescribeTransactionsRequest(transactional_ids=["x000", "none", "x001"]), 0)
    answer, count = turns(slow, asking)
    assert count >= 30
    first, missing, second = answer.transaction_states
    assert missing.error_code == Error.TRANSACTIONAL_ID_NOT_FOUND
    for state in (first, second):
        assert state.transaction_state == "Ongoing"
        assert [(one.topic, one.partitions) for one in state.topics] == [
            ("wide", list(range(WIDE)))
        ]


def test_describing_producers_gives_others_a_turn(slow: Harness) -> None:
    for producer in producers(slow, 3):
        written(producer)
    asking = slow.client()
    topics = [
        TopicRequest(name="wide", partition_indexes=list(range(WIDE))),
        TopicRequest(name="none", partition_indexes=[0]),
    ]
    asking.send(DescribeProducersRequest(topics=topics), 0)
    answer, count = turns(slow, asking)
    assert count >= 50
    wide, none = answer.topics
    assert [one.partition_index for one in wide.partitions] == list(range(WIDE))
    for one in wide.partitions:
        assert [state.producer_id for state in one.active_producers] == [0, 1, 2]
        assert [state.current_txn_start_offset for state in one.active_producers] == [0, 1, 2]
    assert none.partitions[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


MANY = [TopicPartitions(topic="wide", partitions=[0] * WIDE) for _ in range(10)]
MANY_MOVES = [
    ReassignableTopic(
        name="wide", partitions=[ReassignablePartition(partition_index=n) for n in range(WIDE)]
    )
]
MANY_DIRS = [
    AlterReplicaLogDir(
        path="/x", topics=[AlterReplicaLogDirTopic(name="wide", partitions=list(range(WIDE)))]
    )
]
MANY_QUORUMS = [
    RequestTopicData(
        topic_name="wide", partitions=[RequestPartitionData(partition_index=n) for n in range(WIDE)]
    )
]
MANY_USERS = [UserName(name=f"u{n}") for n in range(WIDE)]
MANY_FEATURES = [
    FeatureUpdateKey(feature="transaction.version", max_version_level=2) for _ in range(WIDE)
]


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (ElectLeadersRequest(topic_partitions=MANY), 0),
        (ElectLeadersRequest(topic_partitions=MANY), 2),
        (ElectLeadersRequest(topic_partitions=MANY, timeout_ms=0), 2),
        (AlterPartitionReassignmentsRequest(topics=MANY_MOVES), 1),
        (AlterReplicaLogDirsRequest(dirs=MANY_DIRS), 1),
        (AlterReplicaLogDirsRequest(dirs=MANY_DIRS), 2),
        (DescribeQuorumRequest(topics=MANY_QUORUMS), 1),
        (DescribeQuorumRequest(topics=MANY_QUORUMS), 2),
        (DescribeUserScramCredentialsRequest(users=MANY_USERS), 0),
        (UpdateFeaturesRequest(feature_updates=MANY_FEATURES), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else f"v{value}",
)
def test_requests_that_name_thousands_give_others_a_turn(
    slow: Harness, request_: Message, version: int
) -> None:
    asking = slow.client()
    asking.send(request_, version)
    answer, count = turns(slow, asking)
    assert count >= 10
    assert str(answer).count("error_code=") >= WIDE


def test_writing_markers_gives_others_a_turn(slow: Harness) -> None:
    (producer,) = producers(slow, 1)
    written(producer)
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=True,
        coordinator_epoch=0,
        topics=[WritableTxnMarkerTopic(name="wide", partition_indexes=[*range(WIDE), WIDE])],
    )
    asking = slow.client()
    asking.send(WriteTxnMarkersRequest(markers=[marker]), 1)
    answer, count = turns(slow, asking)
    assert count >= 15
    (result,) = answer.markers
    found = {one.partition_index: one.error_code for one in result.topics[0].partitions}
    assert found.pop(WIDE) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert set(found.values()) == {Error.NONE}
    assert seen(slow, "wide", WIDE - 1) == [b"a"]


# ------------------------------------------------------------------------------- meanwhile, changes


def test_ids_may_come_and_go_while_they_are_listed(slow: Harness) -> None:
    producers(slow, 60)
    asking = slow.client()
    asking.send(ListTransactionsRequest(), 2)
    last = TxnProducer(slow, "x059", NEW)
    last.begin()
    written(last, count=1)
    assert TxnProducer(slow, "y", NEW).init() is Error.NONE
    answer, _ = turns(slow, asking)
    assert set(names(answer)) - {"y"} == {f"x{number:03}" for number in range(60)}
    states = {one.transactional_id: one.transaction_state for one in answer.transaction_states}
    assert states["x059"] == "Ongoing"


def test_a_listing_over_what_then_failed_is_not_told(slow: Harness, disk: Disk) -> None:
    producers(slow, 60)
    asking = slow.client()
    asking.send(ListTransactionsRequest(), 2)
    disk.broken = True
    assert TxnProducer(slow, "y", NEW).init() is Error.COORDINATOR_NOT_AVAILABLE
    disk.broken = False
    answer, _ = turns(slow, asking)
    assert answer.error_code == Error.COORDINATOR_NOT_AVAILABLE
    slow.store.tick(slow.clock.wall_ms() + 10_000)
    asking.send(ListTransactionsRequest(), 2)
    answer, _ = turns(slow, asking)
    assert len(names(answer)) == 60


def test_nothing_is_made_for_a_client_that_has_gone(slow: Harness) -> None:
    producers(slow, 60)
    timers = len(slow.broker.timers)
    asking = slow.client()
    asking.send(ListTransactionsRequest(), 2)
    assert len(slow.broker.timers) == timers + 1
    asking.connection.close("gone")
    slow.pass_time(SLICE_MS)
    assert len(slow.broker.timers) == timers


# -------------------------------------------------------------------------- refusals, many of them


def test_markers_that_are_refused_are_judged_once_each(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one, each refusal would have all the others judged anew."""
    harness.topic("wide", WIDE)
    producer = TxnProducer(harness, "x", OLD)
    producer.begin()
    for index in range(WIDE):
        assert producer.add("wide", index) is Error.NONE
    assert producer.produce("wide", 0, b"a") is Error.NONE
    # An administrator has written markers with a newer coordinator epoch into half of them.
    marker = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        coordinator_epoch=7,
        topics=[WritableTxnMarkerTopic(name="wide", partition_indexes=list(range(1, WIDE, 2)))],
    )
    answer = harness.client().call(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert {one.error_code for one in answer.markers[0].topics[0].partitions} == {Error.NONE}
    judged = 0
    judge = harness.store.producers.judge_marker

    def count(marker: Any) -> Any:
        nonlocal judged
        judged += 1
        return judge(marker)

    monkeypatch.setattr(harness.store.producers, "judge_marker", count)
    assert producer.end() is Error.NONE
    assert judged == 2 * WIDE
    assert seen(harness, "wide") == [b"a"]


def test_it_is_said_after_each_slice_of_a_job_that_goes_on(slow: Harness) -> None:
    slices = slow.broker.slices
    after: list[int] = []
    slices.after_slice = lambda: after.append(len(slices))
    done: list[bool] = []
    assert slices.first(iter([None]))
    slices.start(done.append(True) for _ in range(100))
    assert after == []
    for _ in range(100):
        slow.pass_time(SLICE_MS)
    assert len(done) == 100
    assert len(after) > 1
