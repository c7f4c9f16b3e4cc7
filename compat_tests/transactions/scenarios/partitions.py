"""Partitions that are in a transaction, or are not, and what may be written to them."""

from __future__ import annotations

from typing import Any

from compat_tests.raw import batch
from compat_tests.transactions.protocols import BETWEEN, NEW, OLD, OLDEST, Protocol
from compat_tests.transactions.scenarios.registry import each, scenario
from compat_tests.transactions.script import READ_COMMITTED, Producer, Script


@scenario
def every_version_of_add(script: Script) -> None:
    for version in range(6):
        one = script.producer(f"v{version}", OLD)
        one.init()
        one.add(0, 1, version=version)
        one.add(0, version=version)
        script.describe(one.name)
        one.finish("abort")


@each(OLDEST, OLD, BETWEEN)
def adding_what_there_is_not(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    a.add(topics={"no-such-topic": [0]})
    a.add(topics={script.topic: [0, 1], "no-such-topic": [0], script.other: [7]})
    a.add(topics={})
    a.add(topics={script.topic: []})
    script.describe("a")
    a.add(topics={script.topic: [0, 1], script.other: [0]})
    script.describe("a")
    a.finish("commit")
    for partition in (0, 1):
        script.fetch(partition=partition)


@scenario
def several_transactions_in_one_request(script: Script) -> None:
    a, b = script.producer("a", BETWEEN), script.producer("b", BETWEEN)
    a.init()
    b.init()

    def part(one: Producer, verify_only: bool = False, **changes: Any) -> dict[str, Any]:
        return {
            "transactional_id": one.transactional_id,
            "producer_id": one.producer_id,
            "producer_epoch": one.epoch,
            "verify_only": verify_only,
            "topics": [{"name": script.topic, "partitions": [0]}],
        } | changes

    for version in (4, 5):
        script.ask("AddPartitionsToTxn", version, "a and b", transactions=[part(a), part(b)])
        script.ask(
            "AddPartitionsToTxn",
            version,
            "a, and b with a wrong epoch",
            transactions=[part(a), part(b, producer_epoch=9)],
        )
        script.ask("AddPartitionsToTxn", version, "verify both",
                   transactions=[part(a, True), part(b, True)])  # fmt: skip
    script.describe("a", "b")
    a.finish("abort")
    b.finish("abort")


@each(BETWEEN, NEW)
def verifying_only(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    for version in (4, 5):
        a.add(0, version=version, verify_only=True)
    a.write("x")
    for version in (4, 5):
        a.add(0, version=version, verify_only=True)
        a.add(0, 1, version=version, verify_only=True)
        a.add(0, version=version, verify_only=True, producer_epoch=a.epoch + 1)
        a.add(topics={"no-such-topic": [0]}, version=version, verify_only=True)
    script.describe("a")
    a.finish("commit")
    for version in (4, 5):
        a.add(0, version=version, verify_only=True)
    stranger = script.producer("s", protocol, producer_id=a.producer_id, epoch=0)
    stranger.add(0, version=4, verify_only=True)


@each(OLDEST, OLD, BETWEEN, NEW)
def writing_without_adding(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    a.produce("x")
    script.describe("a")
    a.add(1)
    a.produce("y")
    a.produce("z", partition=1)
    script.describe("a")
    a.finish("commit")
    a.produce("after the end")
    script.describe("a")
    script.both()


@scenario
def every_version_of_produce(script: Script) -> None:
    for version in range(3, 13):
        one = script.producer(f"v{version}", OLD)
        one.init()
        if version < 12:
            one.add(0, version=3)
        one.produce(f"v{version}", version=version)
        one.finish("commit")
    script.both()


@each(OLD, NEW)
def bits_and_names_that_do_not_fit(script: Script, protocol: Protocol) -> None:
    a, b = script.producer("a", protocol), script.producer("b", protocol)
    a.init()
    b.init()
    a.produce("plain batch, id and name", transactional=False)
    a.produce("plain batch, id, no name", transactional=False, transactional_id=None)
    a.produce("no id", transactional=False, producer_id=-1, producer_epoch=-1)
    a.produce("transactional, no name", transactional_id=None)
    a.produce("transactional, no id", producer_id=-1, producer_epoch=-1)
    script.describe("a", "b")
    if protocol.adds:
        a.add(0)
        b.add(1)
    a.produce("good")
    a.produce("name of b", transactional_id=b.transactional_id)
    a.produce("name of nobody", transactional_id=script.prefix + "nobody")
    a.produce("no name", transactional_id=None)
    a.produce("plain", transactional=False)
    a.produce("plain without a name", transactional=False, transactional_id=None)
    a.produce("acks 1", acks=1)
    a.produce("to nowhere", partition=7)
    a.produce("control", attributes=batch.CONTROL)
    script.describe("a", "b")
    a.end("commit")
    b.end("abort")
    a.settle()
    b.settle()
    script.both()
    script.fetch(partition=1)


@each(OLD, NEW)
def sequences(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    a.write("0", "1")
    a.produce("0", "1", sequence=0)
    a.produce("gap", sequence=3)
    a.produce("2")
    a.produce("2", sequence=2)
    a.produce("old", sequence=0)
    a.finish("commit")
    if protocol.adds:
        a.add(0)
    else:
        a.produce("2", sequence=2)
    a.produce("next")
    a.produce("gap", sequence=9)
    a.finish("abort")
    a.init()
    if protocol.adds:
        a.add(0)
    a.produce("a new epoch does not begin with 5", sequence=5)
    a.produce("but with 0", sequence=0)
    a.finish("commit")
    script.both()


@each(OLD, NEW)
def a_plain_idempotent_producer_beside_it(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    plain = script.producer("plain", protocol)
    a.init()
    plain.init(transactional_id=None)
    a.write("a0")
    plain.produce("p0", transactional=False, transactional_id=None)
    script.both()
    plain.produce("p1", transactional=False, transactional_id=None)
    a.finish("abort")
    script.both()
    script.list_offset(-3, isolation=READ_COMMITTED)
    script.describe_producers(0)
