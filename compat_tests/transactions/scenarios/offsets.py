"""Offsets of a group that are committed by a transaction."""

from __future__ import annotations

from typing import Any

from compat_tests.groups.script import subscription
from compat_tests.raw.errors import CODES
from compat_tests.transactions.protocols import BETWEEN, NEW, OLD, OLDEST, Protocol
from compat_tests.transactions.scenarios.registry import each, scenario
from compat_tests.transactions.script import Producer, Script


def send(producer: Producer, offset: int, **changes: Any) -> None:
    if producer.protocol.adds:
        producer.add_offsets()
    producer.commit_offsets({0: offset}, **changes)


def member(script: Script, instance_id: str | None = None) -> dict[str, Any]:
    """A member of the conversation's group, which has nobody else: what it commits with."""
    asked: dict[str, Any] = {
        "group_id": script.group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(script.topic)}],
    }
    answer = script.wire.call("JoinGroup", 9, **asked)
    if answer.error_code == CODES["MEMBER_ID_REQUIRED"]:
        answer = script.wire.call("JoinGroup", 9, **asked | {"member_id": answer.member_id})
    assert answer.error_code == 0, answer
    identity = {"member_id": answer.member_id, "group_instance_id": instance_id}
    synced = script.wire.call(
        "SyncGroup",
        5,
        group_id=script.group,
        generation_id=answer.generation_id,
        assignments=[{"member_id": answer.member_id, "assignment": b"all"}],
        protocol_type="consumer",
        protocol_name="range",
        **identity,
    )
    assert synced.error_code == 0, synced
    return {"generation_id": answer.generation_id, **identity}


@each(OLDEST, OLD, BETWEEN, NEW)
def offsets_are_pending_until_the_end(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    script.committed(stable=True)
    send(a, 3)
    script.describe("a")
    for version in (5, 6, 7, 8, 9):
        script.committed(stable=version >= 7, version=version)
    script.committed(stable=False)
    a.finish("commit")
    script.committed(stable=True)
    send(a, 9)
    script.committed(stable=True)
    a.finish("abort")
    script.committed(stable=True)
    send(a, 5)
    send(a, 6)
    script.committed(stable=False)
    a.finish("commit")
    script.committed(stable=True)


@each(OLD, NEW)
def offsets_together_with_records(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    a.write("x")
    send(a, 1)
    a.commit_offsets({0: 2, 1: 4})
    script.describe("a")
    a.finish("commit")
    script.committed(stable=True)
    script.both()
    a.write("y")
    send(a, 7)
    a.finish("abort")
    script.committed(stable=True)
    script.both()


@each(OLDEST, OLD, BETWEEN, NEW)
def offsets_without_adding_the_group(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    a.commit_offsets({0: 1})
    script.describe("a")
    script.committed(stable=True)
    a.finish("commit")
    script.committed(stable=True)
    a.commit_offsets({7: 1})
    a.commit_offsets({0: 1}, topics=[])
    a.commit_offsets({0: 1}, group_id="")
    a.finish("abort")


@scenario
def every_version_of_offsets(script: Script) -> None:
    for version in range(6):
        one = script.producer(f"v{version}", OLD)
        one.init()
        if version < 5:
            one.add_offsets(min(version, 4))
        one.commit_offsets({0: version}, version)
        one.finish("commit")
        script.committed(stable=True)


@each(OLD, BETWEEN, NEW)
def offsets_of_a_member(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    if protocol.adds:
        a.add_offsets()
    a.commit_offsets({0: 1}, member_id="stranger", generation_id=1)
    me = member(script, "static")
    now = me["generation_id"]
    a.commit_offsets({0: 2}, **me)
    a.commit_offsets({0: 3})
    a.commit_offsets({0: 4}, **me | {"generation_id": now - 1})
    a.commit_offsets({0: 4}, **me | {"generation_id": now + 1})
    a.commit_offsets({0: 4}, **me | {"generation_id": -1})
    a.commit_offsets({0: 4}, **me | {"member_id": "stranger"})
    a.commit_offsets({0: 4}, **me | {"member_id": ""})
    a.commit_offsets({0: 4}, **me | {"group_instance_id": "nobody"})
    a.commit_offsets({0: 4}, **me | {"group_instance_id": None})
    a.finish("commit")
    script.committed(stable=True)


@each(OLD, NEW)
def a_group_with_pending_offsets(script: Script, protocol: Protocol) -> None:
    """Commits from elsewhere, deletions and the group's end while a transaction has its say."""
    a, b = script.producer("a", protocol), script.producer("b", protocol)
    a.init()
    b.init()
    send(a, 3)
    part = {"partition_index": 0, "committed_offset": 10, "committed_metadata": "plain"}
    script.ask(
        "OffsetCommit",
        8,
        "10, plain",
        group_id=script.group,
        generation_id_or_member_epoch=-1,
        topics=[{"name": script.topic, "partitions": [part]}],
    )
    script.committed(stable=True)
    script.committed(stable=False)
    send(b, 4)
    a.finish("commit")
    script.committed(stable=True)
    script.committed(stable=False)
    b.finish("commit")
    script.committed(stable=True)
    send(a, 5)
    script.ask(
        "OffsetDelete",
        0,
        group_id=script.group,
        topics=[{"name": script.topic, "partitions": [{"partition_index": 0}]}],
    )
    script.committed(stable=False)
    a.finish("commit")
    script.committed(stable=True)
    send(a, 6)
    script.ask("DeleteGroups", 2, groups_names=[script.group])
    script.committed(stable=False)
    a.finish("commit")
    script.committed(stable=True)


@each(OLD, NEW)
def offsets_of_a_transaction_that_timed_out(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol, timeout_ms=300)
    a.init()
    send(a, 3)
    a.settle("CompleteAbort")
    script.committed(stable=True)
    a.commit_offsets({0: 4})
    script.committed(stable=True)
