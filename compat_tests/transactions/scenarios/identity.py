"""Who may go on: ids and epochs given out, bumped, fenced and timed out."""

from __future__ import annotations

from typing import Any

from compat_tests.raw.errors import CODES
from compat_tests.transactions.protocols import BETWEEN, NEW, OLD, OLDEST, Protocol
from compat_tests.transactions.scenarios.registry import LONG, each, scenario
from compat_tests.transactions.script import Producer, Script

LAST_EPOCH = 32767


@scenario
def every_version_of_init(script: Script) -> None:
    for version in range(6):
        one = script.producer(f"v{version}", OLD)
        one.init(version)
        one.init(version)
        script.describe(one.name)


@scenario
def init_that_is_refused(script: Script) -> None:
    a = script.producer("a", OLD)
    for version in (0, 4, 5):
        a.init(version, transaction_timeout_ms=0)
        a.init(version, transaction_timeout_ms=-1)
        a.init(version, transaction_timeout_ms=900_001)
        a.init(version, transactional_id="")
    a.init(transaction_timeout_ms=1)
    a.init(transaction_timeout_ms=900_000)
    for version in (3, 5):
        a.init(version, producer_id=a.producer_id, producer_epoch=-1)
        a.init(version, producer_id=-1, producer_epoch=0)
        a.init(version, transactional_id=None, producer_id=-1, producer_epoch=-1)


@scenario
def find_the_coordinator(script: Script) -> None:
    for version in range(1, 4):
        script.ask("FindCoordinator", version, key="a", key_type=1)
    for version in (4, 5, 6):
        script.ask("FindCoordinator", version, key_type=1, coordinator_keys=["a", "b"])
    script.ask("FindCoordinator", 6, "no key", key_type=1, coordinator_keys=[""])
    script.ask("FindCoordinator", 3, "unknown kind", key="a", key_type=7)


@each(OLDEST, OLD, BETWEEN, NEW)
def a_second_instance_fences_the_first(script: Script, protocol: Protocol) -> None:
    first = script.producer("a", protocol)
    first.init()
    second = script.producer("a", protocol)
    second.init()
    first.add(0)
    first.produce("x")
    first.end("commit")
    first.end("abort")
    first.add_offsets()
    first.commit_offsets({0: 1})
    second.write("y")
    first.produce("z")
    second.finish("commit")
    script.both()


@each(OLDEST, OLD, BETWEEN, NEW)
def a_second_instance_during_a_transaction(script: Script, protocol: Protocol) -> None:
    first = script.producer("a", protocol)
    first.init()
    first.write("lost")
    second = script.producer("a", protocol)
    second.init()
    second.settle()
    script.describe("a")
    first.add(0)
    first.produce("late")
    first.end("commit")
    first.end("abort")
    second.init()
    script.describe("a")
    first.produce("later")
    first.add(0)
    first.end("commit")
    second.write("kept")
    second.finish("commit")
    script.both()


@scenario
def old_and_new_instances_take_turns(script: Script) -> None:
    """One transactional id, now with a client that adds its partitions, now with one that does
    not; each takes over from the other in the middle of a transaction."""
    for turn, (before, after) in enumerate(((OLD, NEW), (NEW, OLD), (OLD, NEW))):
        script.say(f"-- {before.name}, then {after.name}")
        one = script.producer("a", before)
        one.init()
        one.write(f"lost{turn}")
        two = script.producer("a", after)
        two.init()
        two.settle()
        script.describe("a")
        two.init()
        one.write("late")
        one.end("commit")
        two.write(f"kept{turn}")
        two.finish("commit")
        script.describe("a")
        one.end("commit")
        one.init(known=True)
        one.init()
        one.write(f"again{turn}", partition=1)
        one.add_offsets()
        one.commit_offsets({0: turn})
        script.committed(stable=True)
        one.finish("commit")
        two.end("commit")
        two.finish("abort")
        script.describe("a")
    script.committed(stable=True)
    script.both()
    script.both(partition=1)


@each(OLD, NEW)
def back_with_id_and_epoch(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    before = a.epoch
    a.init(known=True)
    a.init(known=True, producer_epoch=before)
    a.init(known=True, producer_epoch=a.epoch + 1)
    a.init(known=True, producer_id=a.producer_id + 1_000_000)
    a.init(known=True, producer_epoch=before + 7)
    a.write("x")
    a.init(known=True)
    a.settle()
    a.init(known=True)
    a.write("y")
    a.finish("commit")
    last = a.epoch
    a.init()
    a.init(known=True, producer_epoch=last)
    script.both()
    stranger = script.producer("s", protocol, producer_id=a.producer_id, epoch=0)
    stranger.init(known=True)


@each(OLDEST, OLD, BETWEEN, NEW)
def nobody_knows_the_transactional_id(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    stranger = script.producer("s", protocol, producer_id=a.producer_id, epoch=0)
    stranger.add(0)
    stranger.produce("x")
    stranger.add_offsets()
    stranger.commit_offsets({0: 1})
    stranger.end("commit")
    stranger.end("abort")
    script.describe("s")
    nameless = script.producer("n", protocol, producer_id=a.producer_id, epoch=0)
    nameless.transactional_id = ""
    nameless.add(0)
    nameless.produce("x")
    nameless.add_offsets()
    nameless.commit_offsets({0: 1})
    nameless.end("commit")
    a.write("y")
    a.finish("commit")
    script.both()


@each(OLDEST, OLD, BETWEEN, NEW)
def wrong_ids_and_epochs(script: Script, protocol: Protocol) -> None:
    a = script.producer("a", protocol)
    a.init()
    a.init()
    b = script.producer("b", protocol)
    b.init()
    wrongs: tuple[dict[str, Any], ...] = (
        {"producer_id": b.producer_id},
        {"producer_id": a.producer_id + 1_000_000},
        {"producer_epoch": a.epoch - 1},
        {"producer_epoch": a.epoch + 1},
    )
    for state in ("before", "during"):
        script.say(f"-- {state} a transaction")
        if state == "during":
            a.write("good")
        for wrong in wrongs:
            a.add(0, **wrong)
            a.produce("bad", sequence=0, **wrong)
            a.add_offsets(**wrong)
            a.commit_offsets({0: 1}, **wrong)
            a.end("commit", **wrong)
            a.end("abort", **wrong)
        script.describe("a")
    a.finish("commit")
    script.both()


@each(OLD, BETWEEN, NEW)
def a_newer_epoch_in_the_partition(script: Script, protocol: Protocol) -> None:
    """What the partition knows of a producer is told before what the coordinator says of it, to
    those whose writes add their partitions."""
    a = script.producer("a", protocol)
    a.init()
    a.write("x")
    a.finish("commit")
    script.mark(a, commit=False, version=1, epoch=a.epoch + 5, coordinator_epoch=100)
    if protocol.adds:
        a.add(0)
    a.produce("late")
    script.describe("a")
    stranger = script.producer("s", protocol, producer_id=a.producer_id, epoch=a.epoch)
    stranger.produce("late too")
    stranger.produce("elsewhere", partition=1)
    script.describe("a", "s")
    script.both()


@each(OLDEST, OLD, BETWEEN, NEW)
def a_transaction_times_out(script: Script, protocol: Protocol) -> None:
    """Each way back from it, each time for a transaction that the broker has aborted."""
    for number, back in enumerate(("write", "add", "commit", "abort", "offsets", "init", "known")):
        one = script.producer(f"p{number}", protocol, timeout_ms=1500)
        script.say(f"-- then {back}")
        one.init()
        one.write("late", partition=0)
        one.settle("CompleteAbort")
        script.describe(one.name)
        match back:
            case "write":
                one.produce("more")
            case "add":
                one.add(1)
            case "commit":
                one.end("commit")
            case "abort":
                one.end("abort")
            case "offsets":
                one.add_offsets()
                one.commit_offsets({0: 1})
            case "init":
                one.init()
            case "known" if protocol.init >= 3:
                one.init(known=True)
        script.describe(one.name)
    script.fetch()


def until_the_last_epoch(one: Producer, *, by_ending: bool) -> None:
    """32766: of an int16, with the highest left for the broker. Some 30,000 requests."""
    script = one.script
    while one.epoch < LAST_EPOCH - 1:
        if by_ending:
            asked = {"producer_id": one.producer_id, "producer_epoch": one.epoch}
            answer = script.wire.call(
                "EndTxn", 5, transactional_id=one.transactional_id, committed=False, **asked
            )
        else:
            answer = script.wire.call(
                "InitProducerId",
                4,
                transactional_id=one.transactional_id,
                transaction_timeout_ms=one.timeout_ms,
            )
        if answer.error_code == 0:
            one.producer_id, one.epoch = answer.producer_id, answer.producer_epoch
        else:
            assert answer.error_code == CODES["CONCURRENT_TRANSACTIONS"], answer
    one.settle()


@scenario
def the_last_epoch_by_init(script: Script) -> None:
    a = script.producer("a", OLD)
    a.init()
    until_the_last_epoch(a, by_ending=False)
    script.describe("a")
    for _ in range(2):
        a.init()
        script.describe("a")
    last = {"producer_id": a.producer_id, "producer_epoch": a.epoch}
    a.write("x")
    a.finish("commit")
    a.init(known=True)
    a.init(known=True, **last)
    script.both()


@scenario
def the_last_epoch_by_ending(script: Script) -> None:
    a = script.producer("a", NEW)
    a.init()
    until_the_last_epoch(a, by_ending=True)
    for number in range(3):
        before = {"producer_id": a.producer_id, "producer_epoch": a.epoch}
        a.produce(f"x{number}")
        a.finish("commit")
        a.end("commit", **before)
        a.end("abort", **before)
        script.describe("a")
    script.both()


@scenario
def the_last_epoch_fenced(script: Script) -> None:
    a = script.producer("a", NEW)
    a.init()
    until_the_last_epoch(a, by_ending=True)
    a.produce("lost")
    b = script.producer("a", NEW)
    b.init()
    b.settle()
    script.describe("a")
    b.init()
    a.produce("late")
    a.end("commit")
    b.produce("kept")
    b.finish("commit")
    script.describe("a")
    script.both()


LONG |= {"the_last_epoch_by_init", "the_last_epoch_by_ending", "the_last_epoch_fenced"}
