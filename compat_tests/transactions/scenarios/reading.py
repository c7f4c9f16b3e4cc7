"""What readers are shown while transactions come and go."""

from __future__ import annotations

from compat_tests.transactions.protocols import NEW, OLD, Protocol
from compat_tests.transactions.scenarios.registry import each, scenario
from compat_tests.transactions.script import LATEST, READ_COMMITTED, READ_UNCOMMITTED, Script


@each(OLD, NEW)
def transactions_in_turns(script: Script, protocol: Protocol) -> None:
    """Three that overlap: the last stable offset is that of the first open one."""
    a, b, c = (script.producer(name, protocol) for name in "abc")
    for one in (a, b, c):
        one.init()
    a.write("a0")
    b.write("b0")
    c.write("c0")
    a.produce("a1")
    script.both()
    b.finish("commit")
    script.both()
    a.finish("abort")
    script.both()
    b.write("b1")
    c.finish("abort")
    script.both()
    b.finish("commit")
    for offset in range(9):
        script.fetch(offset)
    script.fetch(0, isolation=READ_UNCOMMITTED)
    script.fetch(9)


@each(OLD, NEW)
def answers_that_are_cut_short(script: Script, protocol: Protocol) -> None:
    """Only aborted transactions that overlap what is handed out are named."""
    a, b = script.producer("a", protocol), script.producer("b", protocol)
    a.init()
    b.init()
    for number in range(3):
        a.write(f"a{number}" * 40)
        b.write(f"b{number}" * 40)
        a.finish("abort")
        b.finish("commit" if number == 1 else "abort")
    for size in (1, 150, 300, 500):
        script.fetch(0, partition_max_bytes=size)
        script.fetch(5, partition_max_bytes=size)


@scenario
def every_version_of_fetch(script: Script) -> None:
    a = script.producer("a", OLD)
    a.init()
    a.write("a0")
    a.finish("abort")
    a.write("a1")
    for version in range(4, 13):
        script.fetch(version=version) if version >= 5 else None
        script.fetch(version=max(version, 5), isolation=READ_UNCOMMITTED)
    for version in range(1, 11):
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            if version >= 2:
                script.list_offset(LATEST, version=version, isolation=isolation)
    a.finish("commit")
    script.both()


@each(OLD, NEW)
def waiting_for_a_marker(script: Script, protocol: Protocol) -> None:
    a, b = script.producer("a", protocol), script.producer("b", protocol)
    a.init()
    b.init()
    a.write("a0")
    script.park(0)
    a.produce("a1")
    a.end("commit")
    script.wake()
    a.settle()
    a.write("a2")
    b.write("b0")
    script.park(3)
    b.finish("commit")
    a.end("abort")
    script.wake()
    a.settle()
    script.park(7)
    a.write("a3")
    a.end("commit")
    script.wake()
    a.settle()


@each(OLD, NEW)
def records_are_deleted(script: Script, protocol: Protocol) -> None:
    a, b = script.producer("a", protocol), script.producer("b", protocol)
    a.init()
    b.init()
    a.write("a0", "a1")
    b.write("b0")
    a.produce("a2")
    a.finish("abort")
    b.finish("commit")
    script.fetch()
    script.delete_records(1)
    script.fetch(1)
    script.fetch(0)
    script.delete_records(3)
    script.fetch(3)
    script.delete_records(5)
    script.fetch(5)
    script.describe_producers(0)
    script.delete_records(6)
    script.both(offset=6)
    a.write("a3")
    a.finish("commit")
    script.both(offset=6)


@each(OLD, NEW)
def records_of_an_open_transaction_are_deleted(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    a.write("a0", "a1")
    a.produce("a2")
    script.delete_records(1)  # Kafka then tells a last stable offset before the log's start
    script.delete_records(3)
    script.both(offset=3)
    script.describe_producers(0)
    a.produce("a3")
    script.both(offset=3)
    a.finish("commit")
    script.both(offset=3)


@scenario
def reading_ahead_of_what_is_stable(script: Script) -> None:
    a = script.producer("a", OLD)
    a.init()
    a.write("a0", "a1")
    for offset in (0, 1, 2, 3):
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            script.fetch(offset, isolation=isolation)
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        script.list_offset(0, isolation=isolation)
        script.list_offset(4_000_000_000_000, isolation=isolation)
        script.list_offset(-2, isolation=isolation)
        script.list_offset(-3, isolation=isolation)
    a.finish("commit")
    script.list_offset(0, isolation=READ_COMMITTED)
