"""Somebody sets the machine's clock, by days, back or forth, for a while or for good: sessions,
transactions and offsets live as long as they should."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.harness import Client, Harness
from tests.broker.txnkit import NEW, TIMEOUT_MS, TxnProducer, both_versions, group_offset, ready

from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.sync_group import SyncGroupRequest
from ottla.wire.errors import Error

DAY = 86_400_000
WEEK = 7 * DAY
SESSION_MS = 30_000
JUMPS = pytest.mark.parametrize("jump", [-30 * DAY, 30 * DAY], ids=["back", "forward"])


def commit(client: Client, group: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic])
    answer = client.call(request, 8)
    assert answer.topics[0].partitions[0].error_code == Error.NONE


def offset_of(harness: Harness, group: str) -> int:
    error, offset = group_offset(harness, group, "t")
    assert error is Error.NONE
    return offset


def new_harness(path: Path, old: Harness | None = None) -> Harness:
    """A broker, or the same one after a restart."""
    if old is not None:
        old.store.close()
        return Harness(path, clock=old.clock)
    harness = Harness(path)
    harness.topic("t", 2, message_timestamp_after_max_ms=str(100 * DAY))
    return harness


def join(harness: Harness, client: Client) -> tuple[str, int]:
    """A member alone: its id and generation."""
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="x",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=b"")],
    )
    client.send(request, 3)
    harness.pass_time(5000)
    joined = client.receive()
    synced = client.call(
        SyncGroupRequest(
            group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
        ),
        3,
    )
    assert synced.error_code == Error.NONE
    return joined.member_id, joined.generation_id


@JUMPS
def test_a_session_lasts_as_long_as_it_is_kept(harness: Harness, client: Client, jump: int) -> None:
    member_id, generation = join(harness, client)
    beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
    for set_ms in (jump, 0, jump):
        harness.clock.set_ms = set_ms
        harness.pass_time(SESSION_MS - 1000)
        assert client.call(beat, 3).error_code == Error.NONE
    harness.pass_time(SESSION_MS + 1000)
    assert client.call(beat, 3).error_code == Error.UNKNOWN_MEMBER_ID


@JUMPS
def test_offsets_outlive_a_clock_that_is_wrong_for_a_while(
    harness: Harness, client: Client, topic: str, jump: int
) -> None:
    commit(client, "before", 1)
    harness.pass_time(1000)
    harness.clock.set_ms = jump
    commit(client, "while", 2)
    harness.pass_time(DAY)
    harness.clock.set_ms = 0
    harness.pass_time(5 * DAY)
    assert offset_of(harness, "before") == 1
    assert offset_of(harness, "while") == 2
    harness.pass_time(40 * DAY if jump > 0 else 2 * DAY)
    assert offset_of(harness, "before") == -1


@JUMPS
def test_offsets_expire_by_the_time_that_has_passed(
    harness: Harness, client: Client, topic: str, jump: int
) -> None:
    """The clock stays as it was set."""
    harness.clock.set_ms = jump
    commit(client, "g", 1)
    harness.pass_time(6 * DAY)
    assert offset_of(harness, "g") == 1
    harness.pass_time(32 * DAY)
    assert offset_of(harness, "g") == -1


def test_offsets_outlive_a_clock_that_is_put_right(tmp_path: Path) -> None:
    """A machine that takes its birthday for today until it has asked the network."""
    harness = new_harness(tmp_path / "data")
    harness.clock.set_ms = 30 * DAY
    harness.pass_time(1000)
    commit(harness.client(), "g", 1)
    harness.pass_time(DAY)
    harness = new_harness(tmp_path / "data", harness)
    harness.pass_time(DAY)
    assert offset_of(harness, "g") == 1
    harness.pass_time(WEEK)
    assert offset_of(harness, "g") == -1
    harness.store.close()


@JUMPS
@both_versions
def test_a_transaction_lasts_as_long_as_its_timeout(
    harness: Harness, topic: str, new: bool, jump: int
) -> None:
    producer = ready(harness, new)
    assert producer.send(topic, 0, b"a") is Error.NONE
    harness.clock.set_ms = jump
    harness.pass_time(TIMEOUT_MS)
    assert producer.describe().transaction_state == "Ongoing"
    harness.clock.set_ms = 0
    harness.pass_time(1)
    assert producer.describe().transaction_state == "CompleteAbort"


@JUMPS
def test_a_transaction_lasts_as_long_across_a_restart(tmp_path: Path, jump: int) -> None:
    """The clock was set before the transaction began, and the next start goes by it."""
    harness = new_harness(tmp_path / "data")
    harness.clock.set_ms = jump
    assert ready(harness, NEW).send("t", 0, b"a") is Error.NONE
    harness.pass_time(TIMEOUT_MS / 2)
    harness = new_harness(tmp_path / "data", harness)
    asked = TxnProducer(harness, "x", NEW)
    harness.pass_time(TIMEOUT_MS / 4)
    assert asked.describe().transaction_state == "Ongoing"
    harness.pass_time(TIMEOUT_MS)
    assert asked.describe().transaction_state == "CompleteAbort"
    harness.store.close()


def test_an_id_at_rest_outlives_a_clock_that_is_put_right(tmp_path: Path) -> None:
    harness = new_harness(tmp_path / "data")
    harness.clock.set_ms = 30 * DAY
    producer = ready(harness, NEW)
    assert producer.send("t", 0, b"a") is Error.NONE
    assert producer.end() is Error.NONE
    harness = new_harness(tmp_path / "data", harness)
    harness.pass_time(DAY)
    assert TxnProducer(harness, "x", NEW).describe().error_code == Error.NONE
    harness.store.close()


@JUMPS
def test_a_long_poll_waits_as_long_as_it_asked(
    harness: Harness, client: Client, topic: str, jump: int
) -> None:
    asked = FetchTopic(
        topic=topic,
        partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)],
    )
    request = FetchRequest(max_wait_ms=5000, min_bytes=1, max_bytes=1000, topics=[asked])
    client.send(request, 11)
    harness.clock.set_ms = jump
    harness.pass_time(4000)
    assert client.receive() is None
    harness.pass_time(1000)
    assert client.receive() is not None
