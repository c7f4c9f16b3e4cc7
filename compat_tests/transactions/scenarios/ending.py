"""Commit and abort, once, again, of nothing, by one protocol after the other."""

from __future__ import annotations

from compat_tests.transactions.protocols import BETWEEN, NEW, OLD, OLDEST, Protocol
from compat_tests.transactions.scenarios.registry import each, scenario
from compat_tests.transactions.script import LATEST, MAX_TIMESTAMP, READ_COMMITTED, Script


@each(OLDEST, OLD, BETWEEN, NEW)
def commit_and_abort(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    script.describe("a")
    a.write("a0", "a1")
    a.write("b0", partition=1)
    script.describe("a")
    script.both()
    script.both(partition=1)
    a.finish("commit")
    script.describe("a")
    script.both()
    script.both(partition=1)
    a.write("a2")
    a.finish("abort")
    script.describe("a")
    script.both()
    a.write("a3")
    script.both()
    a.finish("commit")
    script.both()
    script.both(offset=4)


@each(OLDEST, OLD, BETWEEN, NEW)
def ended_twice(script: Script, protocol: Protocol) -> None:
    for result, other in (("commit", "abort"), ("abort", "commit")):
        a = script.producer(f"after-{result}", protocol)
        a.init()
        a.write("x")
        before = {"producer_id": a.producer_id, "producer_epoch": a.epoch}
        a.finish(result)
        if protocol is NEW:
            a.end(result, **before)
            a.end(other, **before)
            script.describe(a.name)
        for again in (result, other):
            a.end(again)
            a.settle()
            script.describe(a.name)
    script.both()


@each(OLDEST, OLD, BETWEEN, NEW)
def nothing_to_end(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    a.end("commit")
    a.settle()
    script.describe("a")
    a.end("abort")
    a.settle()
    script.describe("a")
    a.write("x")
    a.finish("commit")
    script.both()
    b = script.producer("b", protocol)
    b.init()
    b.end("abort")
    b.settle()
    script.describe("b")
    b.end("commit")
    b.settle()
    script.describe("b")
    b.write("y")
    b.finish("abort")
    script.both()


@scenario
def every_version_of_end(script: Script) -> None:
    for version in range(6):
        one = script.producer(f"v{version}", OLD)
        one.init()
        one.write(f"v{version}")
        one.end("commit" if version % 2 else "abort", version)
        one.settle()
        script.describe(one.name)
    script.both()


@scenario
def from_the_old_protocol_to_the_new_and_back(script: Script) -> None:
    a = script.producer("a", OLD)
    a.init()
    a.write("old")
    a.finish("commit")
    a.protocol = NEW
    a.write("new")
    a.finish("commit")
    a.write("newer")
    a.finish("abort")
    a.protocol = OLD
    a.write("old again")
    a.finish("commit")
    script.describe("a")
    a.add(0)
    a.produce("added as of old")
    a.end("commit", 5)
    a.settle()
    a.produce("added by writing", version=12)
    a.end("commit", 3)
    a.settle()
    script.describe("a")
    script.both()


@each(OLD, NEW)
def a_marker_takes_one_offset(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    for number, result in enumerate(("commit", "abort", "commit")):
        a.write(f"v{number}")
        a.finish(result)
        script.list_offset(LATEST)
        script.list_offset(LATEST, isolation=READ_COMMITTED)
        script.list_offset(MAX_TIMESTAMP)
        for offset in (2 * number + 1, 2 * number + 2, 2 * number + 3):
            script.fetch(offset)
    script.list_offset(-2)
    script.list_offset(4_000_000_000_000)


@each(OLD, NEW)
def added_and_never_written(script: Script, protocol: Protocol) -> None:
    """Every added partition gets its marker, also one without a record."""
    a = script.producer("a", protocol)
    a.init()
    a.add(0, 1, version=3)
    a.produce("only here", version=11)
    script.describe_producers(0, 1)
    a.finish("commit")
    script.both()
    script.both(partition=1)
    script.describe_producers(0, 1)
