"""Kafka's own command-line tools, as users run them. One JVM a call: few calls, each with a use."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.conftest import MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.tools import ToolFailed, run_tool
from compat_tests.raw import batch, calls
from compat_tests.raw.batch import Record
from compat_tests.raw.wire import Wire

NewName = Callable[[], str]
pytestmark = pytest.mark.usefixtures("needs_java")


@pytest.fixture
def tool(broker: Broker) -> Callable[..., str]:
    """`tool(name, argument ...)`: what it printed."""

    def run(name: str, *arguments: str, given: str | None = None) -> str:
        return run_tool(name, "--bootstrap-server", broker.bootstrap, *arguments, given=given)

    return run


@pytest.fixture
def filled(wire: Wire, new_topic: MakeTopic) -> str:
    """A topic of two partitions with five and no records."""
    topic = new_topic(2)
    calls.produced(wire, topic, batch.build([Record(b"%d" % i) for i in range(5)]))
    return topic


def test_kafka_broker_api_versions(tool: Callable[..., str], broker: Broker) -> None:
    printed = tool("kafka-broker-api-versions")
    assert broker.bootstrap in printed
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", printed)
    assert re.search(r"Fetch\(1\): 4 to 18 \[usable: 18\]", printed)


def test_kafka_topics(tool: Callable[..., str], new_name: NewName) -> None:
    topic = new_name()
    created = tool(
        "kafka-topics",
        *("--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1"),
        *("--config", "retention.ms=123456"),
    )
    assert f"Created topic {topic}." in created
    described = tool("kafka-topics", "--describe", "--topic", topic)
    assert re.search(rf"Topic: {topic}\s+TopicId: \S{{22}}\s+PartitionCount: 3", described)
    assert "retention.ms=123456" in described
    assert (
        len(re.findall(r"Partition: \d+\s+Leader: \d+\s+Replicas: \d+\s+Isr: \d+", described)) == 3
    )
    tool("kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    assert topic in tool("kafka-topics", "--list").split()
    assert "PartitionCount: 5" in tool("kafka-topics", "--describe", "--topic", topic)
    tool("kafka-topics", "--delete", "--topic", topic)
    assert topic not in tool("kafka-topics", "--list").split()
    with pytest.raises(ToolFailed, match="does not exist as expected"):
        tool("kafka-topics", "--describe", "--topic", topic)


def test_kafka_configs_of_the_cluster(tool: Callable[..., str]) -> None:
    cluster = ("--entity-type", "brokers", "--entity-default")
    assert (
        "min.insync.replicas=1 sensitive=false"
        " synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1}"
    ) in tool("kafka-configs", "--describe", *cluster)
    with pytest.raises(ToolFailed, match=r"InvalidConfigurationException: .*min\.insync\.replicas"):
        tool("kafka-configs", "--alter", *cluster, "--delete-config", "min.insync.replicas")


def test_kafka_configs(tool: Callable[..., str], topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool("kafka-configs", "--alter", *entity, "--add-config", "retention.ms=5555,segment.ms=6666")
    described = tool("kafka-configs", "--describe", *entity)
    assert "retention.ms=5555 sensitive=false" in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=5555" in described
    tool("kafka-configs", "--alter", *entity, "--delete-config", "retention.ms")
    described = tool("kafka-configs", "--describe", *entity)
    assert "retention.ms" not in described
    assert "segment.ms=6666" in described
    everything = tool("kafka-configs", "--describe", "--all", *entity)
    assert "cleanup.policy=delete" in everything


def test_kafka_configs_of_the_broker(tool: Callable[..., str], wire: Wire) -> None:
    node = str(wire.call("Metadata", 12, topics=[]).controller_id)
    entity = ("--entity-type", "brokers", "--entity-name", node)
    printed = tool("kafka-configs", "--describe", "--all", *entity)
    assert re.search(r"num.partitions=3 .*STATIC_BROKER_CONFIG:num.partitions=3", printed)


def test_kafka_get_offsets(tool: Callable[..., str], filled: str) -> None:
    assert f"{filled}:0:5" in tool("kafka-get-offsets", "--topic", filled)
    earliest = tool("kafka-get-offsets", "--topic", filled, "--time", "earliest")
    assert f"{filled}:0:0" in earliest
    by_time = tool("kafka-get-offsets", "--topic", filled, "--time", "max-timestamp")
    assert f"{filled}:0:0" in by_time, "all five have the same; the first one counts"


def test_kafka_log_dirs(tool: Callable[..., str], filled: str) -> None:
    printed = tool("kafka-log-dirs", "--describe", "--topic-list", filled)
    found = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    (broker,) = found["brokers"]
    sizes = {p["partition"]: p["size"] for d in broker["logDirs"] for p in d["partitions"]}
    assert sizes.keys() == {f"{filled}-0", f"{filled}-1"}
    assert sizes[f"{filled}-0"] > sizes[f"{filled}-1"]


def test_kafka_delete_records(tool: Callable[..., str], filled: str, tmp_path: Path) -> None:
    wanted = {"partitions": [{"topic": filled, "partition": 0, "offset": 3}], "version": 1}
    file = tmp_path / "delete.json"
    file.write_text(json.dumps(wanted))
    printed = tool("kafka-delete-records", "--offset-json-file", str(file))
    assert re.search(rf"partition: {filled}-0\s+low_watermark: 3", printed)


def test_kafka_console_producer_and_consumer(tool: Callable[..., str], topic: str) -> None:
    tool(
        "kafka-console-producer",
        *("--topic", topic, "--reader-property", "parse.key=true"),
        *("--reader-property", "key.separator=:", "--compression-codec", "zstd"),
        given="".join(f"k{i}:value {i}\n" for i in range(100)),
    )
    printed = tool(
        "kafka-console-consumer",
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "100"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.offset=true"),
        *("--timeout-ms", "20000"),
    )
    lines = [line for line in printed.splitlines() if line.startswith("Offset:")]
    assert lines == [f"Offset:{i}\tk{i}\tvalue {i}" for i in range(100)]


def test_kafka_producer_perf_test(tool: Callable[..., str], topic: str, wire: Wire) -> None:
    printed = tool(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "20000", "--record-size", "200"),
        *("--throughput", "-1"),
    )
    assert re.search(r"20000 records sent, [\d.,]+ records/sec", printed)
    assert calls.list_offset(wire, topic, -1).offset == 20_000


def test_kafka_verifiable_producer(tool: Callable[..., str], topic: str, wire: Wire) -> None:
    printed = tool("kafka-verifiable-producer", "--topic", topic, "--max-messages", "500")
    done = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert len([d for d in done if d["name"] == "producer_send_success"]) == 500
    assert calls.list_offset(wire, topic, -1).offset == 500
