"""A member of a group whose protocol the broker does not serve is told so, and ends.

Ottla serves neither the consumer protocol nor share groups yet; Kafka is told not to.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
import pytest

from compat_tests.conftest import MakeBroker
from compat_tests.harness.brokers import Broker
from compat_tests.harness.tools import ToolFailed, run_tool
from compat_tests.raw import calls
from compat_tests.raw.wire import Wire

UNSAFE_DOWNGRADE = 3
PROTOCOLS = ("group.version", "share.version")


@pytest.fixture(scope="module")
def classic(make_broker: MakeBroker) -> Broker:
    """A broker with a topic and nothing but the classic protocol."""
    broker = make_broker()
    with Wire(broker.host, broker.port) as wire:
        calls.create_topic(wire, "plain")
        off = [
            {"feature": name, "max_version_level": 0, "upgrade_type": UNSAFE_DOWNGRADE}
            for name in PROTOCOLS
            if name in calls.finalized_features(wire)
        ]
        if off:
            assert wire.call("UpdateFeatures", 2, feature_updates=off).error_code == 0
            deadline = time.monotonic() + 60
            while set(PROTOCOLS) & calls.finalized_features(wire).keys():
                assert time.monotonic() < deadline
                time.sleep(0.05)
    return broker


def error_of(poll: Callable[[], object], seconds: float = 60) -> confluent_kafka.KafkaError:
    """The first error that a consumer is told of."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            message = poll()
        except confluent_kafka.KafkaException as error:
            found: confluent_kafka.KafkaError = error.args[0]
            return found
        if isinstance(message, confluent_kafka.Message) and message.error():
            told: confluent_kafka.KafkaError = message.error()
            return told
    raise AssertionError(f"not a word in {seconds} s")


def test_librdkafka_ends_a_consumer_of_the_consumer_protocol(classic: Broker) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": classic.bootstrap,
            "group.id": "next",
            "group.protocol": "consumer",
        }
    )
    consumer.subscribe(["plain"])
    error = error_of(lambda: consumer.poll(0.5))
    assert error.fatal() or "Fatal error" in error.str()
    assert "ConsumerGroupHeartbeat" in error.str()
    consumer.close()


def test_librdkafka_ends_a_share_consumer(classic: Broker) -> None:
    consumer = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": classic.bootstrap, "group.id": "share"}
    )
    consumer.subscribe(["plain"])
    error = error_of(lambda: consumer.poll(0.5))
    assert error.fatal()
    assert "ShareGroupHeartbeat" in error.str()
    consumer.close()


@pytest.mark.usefixtures("needs_java")
@pytest.mark.parametrize(
    ("tool", "options", "told"),
    [
        (
            "kafka-console-consumer",
            ("--command-property", "group.protocol=consumer"),
            "does not support the new CONSUMER group protocol",
        ),
        (
            "kafka-console-share-consumer",
            ("--timeout-ms", "5000"),  # it says so when its time is up
            "does not support the share group protocol",
        ),
    ],
)
def test_java_ends_too(classic: Broker, tool: str, options: tuple[str, ...], told: str) -> None:
    try:
        printed = run_tool(
            tool, "--bootstrap-server", classic.bootstrap, "--topic", "plain", *options
        )
    except ToolFailed as failed:
        printed = str(failed)
    assert "UnsupportedVersionException" in printed
    assert told in printed
