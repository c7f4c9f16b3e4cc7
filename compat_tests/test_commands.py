"""Ottla's own commands, which work with any cluster; what they write other clients read."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from compat_tests.clients import for_clients
from compat_tests.clients.base import Client, Message, Partition
from compat_tests.conftest import MakeBroker, MakeTopic
from compat_tests.harness.brokers import Broker
from compat_tests.harness.waiting import eventually
from compat_tests.raw.wire import Wire
from compat_tests.transactions.ready import wait_for_coordinators

Done = subprocess.CompletedProcess[str]


class Ottla:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def run(self, *args: str, given: str = "") -> Done:
        return subprocess.run(
            (sys.executable, "-m", "ottla", *args, "-b", self._bootstrap),
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def __call__(self, *args: str, given: str = "") -> str:
        done = self.run(*args, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *args: str, given: str = "") -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*args, "--json", given=given).splitlines()]

    def refused(self, *args: str, given: str = "") -> str:
        done = self.run(*args, given=given)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture
def ottla(broker: Broker) -> Ottla:
    return Ottla(broker.bootstrap)


@for_clients()
def test_clients_read_what_the_command_produces(ottla: Ottla, client: Client, topic: str) -> None:
    sent_ms = int(time.time() * 1000) - 1000
    rows = [
        {"key": "k", "value": "v", "timestamp": sent_ms, "headers": [["h", "1"]]},
        {"key": None, "value_base64": "/wA="},
        {"key": "", "value": {"a": [1.0, None]}},
        {"key": "k", "value": None},
    ]
    given = "".join(json.dumps(row) + "\n" for row in rows)
    (sent,) = ottla.json("produce", topic, "--compression", "gzip", given=given)
    assert (sent["records"], sent["first_offset"], sent["last_offset"]) == (4, 0, 3)
    received = client.read({Partition(topic, 0): 0}, 4)
    assert [(one.key, one.value) for one in received] == [
        (b"k", b"v"),
        (None, b"\xff\0"),
        (b"", b'{"a":[1.0,null]}'),
        (b"k", None),
    ]
    assert (received[0].timestamp, list(received[0].headers)) == (sent_ms, [("h", b"1")])


@for_clients()
def test_the_command_consumes_what_clients_produce(
    ottla: Ottla, client: Client, topic: str
) -> None:
    with client.producer(compression="gzip") as producer:
        producer.send_all(
            Message(topic, b"%d" % n, key=b"\xff", headers=[("h", b"1"), ("h", b"2")])
            for n in range(5)
        )
    records = ottla.json("consume", topic, "--exit", "--from", "-3")
    assert [(one["offset"], one["value"], one["key_base64"]) for one in records] == [
        (n, str(n), "/w==") for n in (2, 3, 4)
    ]
    assert records[0]["headers"] == [["h", "1"], ["h", "2"]]


def test_json_goes_from_topic_to_topic_unchanged(ottla: Ottla, new_topic: MakeTopic) -> None:
    topics = new_topic(2), new_topic(2)
    lines = "".join(f"{n}\t{n:0100}\n" for n in range(20_000))
    ottla("produce", topics[0], "--key-separator", r"\t", given=lines)
    out = ottla("consume", topics[0], "--exit", "--json")
    ottla("produce", topics[1], "--json", given=out)
    again = ottla("consume", topics[1], "--exit", "--json")
    assert sorted(again.splitlines()) == sorted(out.splitlines())
    assert len(out.splitlines()) == 20_000


def test_batches_that_the_broker_refuses_as_too_large_are_split(
    ottla: Ottla, new_topic: MakeTopic
) -> None:
    topic = new_topic(1, max_message_bytes=1000)
    lines = "".join(f"{n:090}\n" for n in range(200))
    ottla("produce", topic, given=lines)
    assert ottla("consume", topic, "--exit") == lines
    errors = ottla.refused("produce", topic, given="a\n" + "x" * 2000 + "\n")
    assert "line 2: " in errors
    assert "MESSAGE_TOO_LARGE" in errors
    assert "1 record was acknowledged; go on with line 2\n" in errors


@for_clients()
def test_only_committed_records_are_consumed(
    ottla: Ottla, wire: Wire, client: Client, topic: str
) -> None:
    wait_for_coordinators(wire, f"{topic}-id")
    with client.producer(transactional_id=f"{topic}-id") as producer:
        producer.transaction([Message(topic, b"aborted")], commit=False)
        producer.transaction([Message(topic, b"committed")])
        producer.begin()
        producer.send_all([Message(topic, b"open")])
        (found,) = ottla.json("transactions", "describe", f"{topic}-id")
        assert (found["state"], found["partitions"]) == (
            "Ongoing",
            [{"topic": topic, "partition": 0}],
        )
        done = ottla.run("consume", topic, "--exit")
        assert done.stdout == "committed\n"
        assert "at and behind an open transaction, is not shown" in done.stderr
        everything = ottla("consume", topic, "--exit", "--isolation", "read_uncommitted")
        assert everything.split() == ["aborted", "committed", "open"]
        ottla("transactions", "abort", f"{topic}-id")
        assert ottla("consume", topic, "--exit") == "committed\n"


def test_topics_from_creation_to_deletion(ottla: Ottla, new_name: Callable[[], str]) -> None:
    name = new_name()
    ottla("topics", "create", name, "--partitions", "2", "--config", "retention.ms=9999999")
    assert f"{name}: " in ottla.refused("topics", "create", name)
    ottla("topics", "alter", name, "--partitions", "3", "--config", "segment.ms=9999999")
    assert "no such setting" in ottla.refused("topics", "alter", name, "--delete-config", "foo")
    ottla("topics", "alter", name, "--delete-config", "retention.ms")
    for partition in ("0", "1"):
        ottla("produce", name, "--partition", partition, given="a\nb\nc\n")
    (found,) = (row for row in ottla.json("topics", "list") if row["topic"] == name)
    assert (found["partitions"], found["records"]) == (3, 6)
    assert found["bytes"] > 0
    deleted = ottla.json("topics", "delete-records", name, "--before", "-1", "--partition", "1")
    assert deleted == [{"partition": 1, "start_before": 0, "start": 2}]
    (found,) = ottla.json("topics", "describe", name, "--all-configs")
    assert found["configs"] == {"segment.ms": "9999999"}
    assert found["all_configs"]["cleanup.policy"] == {"value": "delete", "source": "default"}
    assert [(p["start"], p["end"]) for p in found["partitions"]] == [(0, 3), (2, 3), (0, 0)]
    ottla("topics", "delete", name)
    eventually(lambda: name in ottla.run("topics", "describe", name).stderr, "the topic is gone")
    for args in (("topics", "alter", name, "--partitions", "4"), ("consume", name)):
        assert f"ottla: {name}: there is no such topic" in ottla.refused(*args)


def test_settings_of_brokers(ottla: Ottla) -> None:
    def own() -> dict[str, object]:
        return {one["name"]: one["value"] for one in ottla.json("configs", "describe")}

    ottla("configs", "alter", "--config", "log.retention.ms=7777777")
    eventually(lambda: own().get("log.retention.ms") == "7777777", "the setting")
    every = {one["name"]: one for one in ottla.json("configs", "describe", "--all")}
    assert every["num.partitions"]["value"] == "3"
    ottla("configs", "alter", "--delete-config", "log.retention.ms")
    eventually(lambda: "log.retention.ms" not in own(), "the default")


def test_groups_are_described_reset_and_deleted(
    ottla: Ottla, broker: Broker, new_topic: MakeTopic
) -> None:
    from confluent_kafka import Consumer

    topic = new_topic(2)
    group = f"{topic}-group"
    ottla("produce", topic, "--partition", "0", given="a\nb\nc\n")
    settings = {"group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings | {"bootstrap.servers": broker.bootstrap})
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll(0.1) or len(consumer.assignment()) == 2, "assignment")
    (found,) = ottla.json("groups", "describe", group)
    assert (found["state"], found["members"], found["lag"]) == ("Stable", 1, None)
    ottla("groups", "reset", group, "--to", "1")
    consumer.close()
    (found,) = ottla.json("groups", "describe", group)
    assert [(p["committed"], p["lag"]) for p in found["partitions"]] == [(1, 2), (0, 0)]
    ottla("groups", "delete", group)
    assert f"{group}: " in ottla.refused("groups", "describe", group)


def test_producing_and_consuming_go_through_a_restart(make_broker: MakeBroker) -> None:
    broker = make_broker()
    ottla = Ottla(broker.bootstrap)
    ottla("topics", "create", "through", "--partitions", "2")

    def start(*args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            (sys.executable, "-m", "ottla", *args, "-b", broker.bootstrap, "--timeout", "120"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    reader = start("consume", "through", "--max-records", "200")
    writer = start("produce", "through")
    assert writer.stdin is not None
    assert reader.stdout is not None
    writer.stdin.write("".join(f"{n}\n" for n in range(100)))
    writer.stdin.flush()
    got = [reader.stdout.readline() for _ in range(100)]
    broker.kill()
    writer.stdin.write("".join(f"{n}\n" for n in range(100, 200)))
    writer.stdin.flush()
    broker.start()
    rest, errors = reader.communicate(timeout=200)
    assert reader.returncode == 0, errors
    _, errors = writer.communicate(timeout=200)
    assert writer.returncode == 0, errors
    assert sorted(int(line) for line in [*got, *rest.splitlines()]) == list(range(200))
    broker.stop()


def test_a_group_is_shared_with_another_client(
    ottla: Ottla, broker: Broker, new_topic: MakeTopic
) -> None:
    from confluent_kafka import Consumer

    topic = new_topic(2)
    group = f"{topic}-group"
    for partition in ("0", "1"):
        ottla("produce", topic, "--partition", partition, given="a\nb\n")
    assert ottla("consume", topic, "--group", group, "--max-records", "3").split() != []
    (left,) = ottla.json("consume", topic, "--group", group, "--exit")
    assert left["value"] == "b"
    other = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "partition.assignment.strategy": "range",
        }
    )
    other.subscribe([topic])
    eventually(lambda: other.poll(0.1) or len(other.assignment()) == 2, "all partitions")
    reader = subprocess.Popen(
        (
            *(sys.executable, "-m", "ottla", "consume", topic, "--group", group),
            *("--max-records", "1", "-b", broker.bootstrap),
        ),
        stdout=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: other.poll(0.1) or len(other.assignment()) == 1, "half of them")
    (owned,) = other.assignment()
    ottla("produce", topic, "--partition", str(1 - owned.partition), given="for the command\n")
    out, _ = reader.communicate(timeout=120)
    assert out == "for the command\n"
    eventually(lambda: other.poll(0.1) or len(other.assignment()) == 2, "all again")
    other.close()
    (found,) = ottla.json("groups", "describe", group)
    assert [(p["committed"], p["lag"]) for p in found["partitions"]] in (
        [(3, 0), (2, 0)],
        [(2, 0), (3, 0)],
    )
