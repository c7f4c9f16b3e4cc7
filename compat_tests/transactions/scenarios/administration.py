"""Looking at transactions, and ending those that hang."""

from __future__ import annotations

from compat_tests.transactions.protocols import NEW, OLD, Protocol
from compat_tests.transactions.scenarios.registry import each, scenario
from compat_tests.transactions.script import Script


@scenario
def the_feature(script: Script) -> None:
    """What a client must read before it speaks the new protocol."""
    for version in (3, 4):
        answer = script.wire.call(
            "ApiVersions", version, client_software_name="raw", client_software_version="1"
        )
        supported = [f for f in answer.supported_features if f.name == "transaction.version"]
        finalized = [f for f in answer.finalized_features if f.name == "transaction.version"]
        script.say(f"ApiVersions v{version}: {script.shown(supported)} {script.shown(finalized)}")
    ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    for key in (0, 1, 2, 9, 10, 22, 24, 25, 26, 27, 28, 61, 65, 66):
        script.say(f"API {key}: {ranges.get(key)}")


@each(OLD, NEW)
def described(script: Script, protocol: Protocol) -> None:
    a, b = script.producer("a", protocol), script.producer("b", protocol, timeout_ms=7_000)
    script.describe("a")
    a.init()
    b.init()
    script.describe("a", "b", "nobody")
    a.write("x")
    a.write("y", partition=1)
    script.describe("a", "b")
    script.ask("DescribeTransactions", 0, "no name", transactional_ids=[""])
    script.ask("DescribeTransactions", 0, "nothing asked", transactional_ids=[])
    a.finish("commit")
    b.write("z")
    b.finish("abort")
    script.describe("a", "b")
    b.init()
    script.describe("b")


@each(OLD, NEW)
def producers_of_a_partition(script: Script, protocol: Protocol) -> None:
    a, b = script.producer("a", protocol), script.producer("b", protocol)
    a.init()
    b.init()
    script.describe_producers(0, 1)
    a.write("a0", "a1")
    b.write("b0")
    script.describe_producers(0, 1)
    a.finish("commit")
    script.describe_producers(0)
    a.write("a2")
    a.finish("abort")
    b.finish("abort")
    script.describe_producers(0)
    script.describe_producers(7)
    script.describe_producers(0, topic="no-such-topic")


@each(OLD, NEW)
def listed(script: Script, protocol: Protocol) -> None:
    a, b, c, d = (script.producer(name, protocol) for name in ("aa", "bb", "cc", "dd"))
    for one in (a, b, c, d):
        one.init()
    for one in (b, c, d):
        one.write(one.name)
    c.finish("commit")
    d.finish("abort")
    for version in (0, 1, 2):
        script.list_transactions(version, "all")
    script.list_transactions(0, state_filters=["Ongoing"])
    script.list_transactions(0, state_filters=["Empty", "CompleteCommit"])
    script.list_transactions(0, state_filters=["ongoing"])
    script.list_transactions(0, state_filters=["NoSuchState", "Ongoing"])
    script.list_transactions(0, "of aa and bb", producer_id_filters=[a.producer_id, b.producer_id])
    script.list_transactions(
        0, "of bb and Empty", producer_id_filters=[b.producer_id], state_filters=["Empty"]
    )
    script.list_transactions(0, "of nobody", producer_id_filters=[1 << 40])
    for duration in (-1, 0, 1, 3_600_000):
        script.list_transactions(1, duration_filter=duration)
    prefix = script.prefix
    for note, pattern in {
        "any": ".*",
        "null": None,
        "empty": "",
        "a whole name": f"{prefix}aa",
        "part of a name": "aa",
        "anything and aa": ".*aa",
        "aa or bb": ".*(aa|bb)",
        "a class": f"{prefix}[a-c]+",
        "no regular expression": "(",
    }.items():
        script.list_transactions(2, f"pattern: {note}", transactional_id_pattern=pattern)
    script.list_transactions(2, "pattern and state", transactional_id_pattern=".*(aa|bb)",
                             state_filters=["Ongoing"])  # fmt: skip
    b.finish("abort")


@each(OLD, NEW)
def a_hanging_transaction_is_aborted(script: Script, protocol: Protocol) -> None:
    """kafka-transactions.sh abort: the marker comes from an administrator, not the coordinator."""
    a, b = script.producer("a", protocol), script.producer("b", protocol)
    a.init()
    b.init()
    a.write("a0")
    b.write("b0")
    script.mark(a, commit=False, topic="no-such-topic")
    script.mark(a, commit=False, partitions=[7])
    script.mark(a, commit=False, epoch=a.epoch - 1 if a.epoch else 0)
    script.both()
    script.mark(a, commit=False)
    script.both()
    script.describe("a")
    script.describe_producers(0)
    a.produce("a1")
    script.both()
    a.finish("abort")
    script.both()
    b.finish("commit")
    script.both()


@scenario
def markers_of_all_kinds(script: Script) -> None:
    a = script.producer("a", OLD)
    a.init()
    a.init()
    for version in (1, 2):
        script.mark(a, commit=False, version=version)
        script.both()
    a.write("a0")
    script.mark(a, commit=True, version=1, coordinator_epoch=1_000_005)
    script.mark(a, commit=True, version=1, coordinator_epoch=1_000_005)
    script.both()
    a.produce("a1")
    script.mark(a, commit=False, version=1, coordinator_epoch=1_000_003)
    script.mark(a, commit=False, version=1, coordinator_epoch=1_000_006, epoch=a.epoch + 1)
    script.both()
    script.describe_producers(0)
    a.add(0)
    a.produce("a2")
    a.produce("a2", producer_epoch=a.epoch + 1, sequence=0)
    for version in (1, 2):
        script.ask("WriteTxnMarkers", version, "nothing", markers=[])


@scenario
def markers_of_transaction_version_2(script: Script) -> None:
    a = script.producer("a", NEW)
    a.init()
    a.init()
    a.write("a0")
    script.mark(a, commit=False, transaction_version=2)
    script.mark(a, commit=False, transaction_version=2, epoch=a.epoch - 1)
    script.both()
    script.mark(a, commit=False, transaction_version=2, epoch=a.epoch + 1)
    script.both()
    script.mark(a, commit=False, transaction_version=2, epoch=a.epoch + 1)
    script.mark(a, commit=True, transaction_version=2, epoch=a.epoch + 1)
    script.both()
    script.describe_producers(0)
