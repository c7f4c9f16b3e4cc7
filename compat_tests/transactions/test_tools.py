"""Kafka's own programs: those that Kafka tests its transactions with, and kafka-transactions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.clients.base import Client, Message, Partition
from compat_tests.conftest import MakeTopic, make_client
from compat_tests.harness.brokers import Broker
from compat_tests.harness.tools import ToolFailed, run_tool
from compat_tests.raw import batch, calls
from compat_tests.raw.batch import Record
from compat_tests.raw.wire import Wire
from compat_tests.transactions.protocols import NEW, OLD
from compat_tests.transactions.reading import Topic
from compat_tests.transactions.ready import wait_for_coordinators
from compat_tests.transactions.script import Script

pytestmark = pytest.mark.usefixtures("needs_java")

Tool = Callable[..., str]


@pytest.fixture
def tool(broker: Broker) -> Tool:
    """`tool(name, argument ...)`: what it printed."""

    def run(name: str, *arguments: str) -> str:
        return run_tool(name, "--bootstrap-server", broker.bootstrap, *arguments)

    return run


def events(printed: str) -> list[dict[str, Any]]:
    """The lines of JSON in what a verifiable program printed."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def table(printed: str) -> list[dict[str, str]]:
    """Rows of what kafka-transactions printed, by column."""
    head, *rows = (line.split() for line in printed.splitlines() if line.strip())
    return [dict(zip(head, row, strict=False)) for row in rows]


@pytest.mark.parametrize("mode", [(), ("--use-group-metadata", "--group-mode")])
def test_transactional_message_copier(
    broker: Broker,
    topic: str,
    new_topic: MakeTopic,
    all_clients: list[Client],
    group: str,
    mode: tuple[str, ...],
) -> None:
    """It copies with random aborts; the copy holds each record once and in order."""
    values = [b"%d" % n for n in range(1_000)]
    with make_client("kafka-python", broker.bootstrap).producer(linger_ms=5) as producer:
        producer.send_all(Message(topic, value) for value in values)
    copied = Topic(new_topic(1), 1, all_clients)
    printed = run_tool(
        "transactional-message-copier",
        *("--broker-list", broker.bootstrap, "--transactional-id", f"copier-{group}"),
        *("--input-topic", topic, "--input-partition", "0", "--output-topic", copied.name),
        *("--consumer-group", group, "--transaction-size", "50", "--enable-random-aborts"),
        *("--max-messages", "1000", *mode),
    )
    last = events(printed)[-1]
    assert (last["stage"], last["remaining"], last["consumed"]) == ("ShutdownComplete", 0, 1000)
    for reader in all_clients:
        assert copied.values(reader, "read_committed") == [values], reader.name


def test_verifiable_producer_and_consumer(
    tool: Tool, broker: Broker, topic: str, group: str, transactional_id: str, tmp_path: Path
) -> None:
    """What is aborted in between is not consumed under read_committed."""
    produce = ("kafka-verifiable-producer", "--topic", topic, "--max-messages", "100")
    assert len([e for e in events(tool(*produce)) if e["name"] == "producer_send_success"]) == 100
    client = make_client("java", broker.bootstrap)
    with client.producer(transactional_id=transactional_id) as producer:
        lost = [Message(topic, b"lost %d" % n) for n in range(10)]
        producer.transaction(lost, commit=False)
    tool(*produce)
    config = tmp_path / "consumer.properties"
    config.write_text("isolation.level=read_committed\n")
    printed = tool(
        "kafka-verifiable-consumer",
        *("--topic", topic, "--group-id", group, "--max-messages", "200"),
        *("--verbose", "--command-config", str(config)),
    )
    said = events(printed)
    values = [event["value"] for event in said if event["name"] == "record_data"]
    assert values == [str(n) for n in range(100)] * 2
    committed = [e for e in said if e["name"] == "offsets_committed" and e["success"]]
    assert max(part["offset"] for e in committed for part in e["offsets"]) >= 211


@pytest.fixture
def script(broker: Broker, topic: str, wire: Wire, transactional_id: str) -> Script:
    wait_for_coordinators(wire, transactional_id)
    script = Script(broker.host, broker.port, transactional_id)
    script.topic = topic
    return script


@pytest.mark.parametrize("protocol", [OLD, NEW], ids=lambda protocol: protocol.name)
def test_kafka_transactions_list_and_describe(tool: Tool, script: Script, protocol: Any) -> None:
    done, open_one = (script.producer(name, protocol) for name in ("done", "open"))
    for one in (done, open_one):
        one.init()
        one.write(one.name)
    done.finish("commit")
    listed = {row["TransactionalId"]: row for row in table(tool("kafka-transactions", "list"))}
    assert listed[done.transactional_id]["TransactionState"] == "CompleteCommit"
    assert listed[open_one.transactional_id]["TransactionState"] == "Ongoing"
    pattern = f"{script.prefix}(open|other)"
    (row,) = table(tool("kafka-transactions", "list", "--transactional-id-pattern", pattern))
    assert row["TransactionalId"] == open_one.transactional_id
    assert row["ProducerId"] == str(open_one.producer_id)
    described = tool(
        "kafka-transactions", "describe", "--transactional-id", open_one.transactional_id
    )
    assert re.search(rf"\s{open_one.producer_id}\s+{open_one.epoch}\s+Ongoing\s+60000", described)
    assert f"{script.topic}-0" in described
    open_one.finish("abort")
    script.close()


def test_kafka_transactions_of_a_name_that_is_not_there(tool: Tool, script: Script) -> None:
    with pytest.raises(ToolFailed, match="the ID could not be found"):
        tool("kafka-transactions", "describe", "--transactional-id", "nobody")
    script.close()


@pytest.mark.parametrize("protocol", [OLD, NEW], ids=lambda protocol: protocol.name)
def test_kafka_transactions_aborts_what_hangs(
    tool: Tool, script: Script, protocol: Any, wire: Wire
) -> None:
    one = script.producer("a", protocol)
    one.init()
    calls.produced(wire, script.topic, batch.build([Record(b"plain")]))
    one.write("hangs")
    at = ("--topic", script.topic, "--partition", "0")
    (row,) = table(tool("kafka-transactions", "describe-producers", *at))
    assert row["ProducerId"] == str(one.producer_id)
    assert row["CurrentTransactionStartOffset"] == "1"
    tool("kafka-transactions", "abort", *at, "--start-offset", "1")
    (row,) = table(tool("kafka-transactions", "describe-producers", *at))
    assert row["CurrentTransactionStartOffset"] == "None"
    stable = calls.list_offset(wire, script.topic, -1, isolation_level=1)
    assert stable.offset == 3
    printed = tool("kafka-transactions", "find-hanging", *at)
    assert script.topic not in printed, "it is the coordinator's no more"
    script.close()


def test_kafka_transactions_terminates_by_name(tool: Tool, script: Script, wire: Wire) -> None:
    one = script.producer("a", NEW)
    one.init()
    one.write("hangs")
    tool(
        "kafka-transactions", "forceTerminateTransaction",
        "--transactionalId", one.transactional_id,
    )  # fmt: skip
    one.settle("CompleteAbort", "Empty")
    assert calls.list_offset(wire, script.topic, -1, isolation_level=1).offset == 2
    one.produce("late")
    assert "INVALID_PRODUCER_EPOCH" in script.lines[-1]
    script.close()


def test_console_consumer_reads_what_is_committed(
    tool: Tool, broker: Broker, topic: str, transactional_id: str
) -> None:
    client = make_client("confluent-kafka", broker.bootstrap)
    with client.producer(transactional_id=transactional_id) as producer:
        for number in range(4):
            producer.transaction([Message(topic, b"%d" % number)], commit=bool(number % 2))
    printed = tool(
        "kafka-console-consumer",
        *("--topic", topic, "--from-beginning", "--max-messages", "2"),
        *("--command-property", "isolation.level=read_committed"),
    )
    assert printed.split()[:2] == ["1", "3"]
    at = Partition(topic, 0)
    assert [r.value for r in client.read({at: 0}, 4)] == [b"0", b"1", b"2", b"3"]
