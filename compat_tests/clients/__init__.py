"""Four Kafka clients behind one small interface, so that each test is written once.

Every client keeps its own name for things; here they are Kafka's. An error is `Failed` with the
name of Kafka's error code. A method that a client does not have is missing from its class, and
`for_clients` leaves that client out of the tests that need it.
"""

from __future__ import annotations

import pytest

from compat_tests.clients.aio import AioKafka
from compat_tests.clients.base import Client
from compat_tests.clients.confluent import ConfluentKafka
from compat_tests.clients.java import JavaKafka
from compat_tests.clients.kafka_python import KafkaPython

CLIENTS: dict[str, type[Client]] = {
    client.name: client for client in (KafkaPython, ConfluentKafka, AioKafka, JavaKafka)
}


def for_clients(*needs: str, without: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Run the test once with each client that has all these admin methods."""
    names = [
        name
        for name, client in CLIENTS.items()
        if name not in without and all(client.can(need) for need in needs)
    ]
    return pytest.mark.parametrize("client", names, indirect=True)
