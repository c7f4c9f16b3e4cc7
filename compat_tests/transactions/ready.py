"""Waiting for Kafka's coordinators, which come into being when they are first asked for."""

from __future__ import annotations

import time

from compat_tests.raw import calls
from compat_tests.raw.errors import name_of
from compat_tests.raw.wire import Wire


def wait_for_coordinators(wire: Wire, name: str) -> None:
    """Kafka makes the topics of its coordinators when the first name is asked for."""
    deadline = time.monotonic() + 30
    for key_type in (0, 1):
        while True:
            found = wire.call("FindCoordinator", 4, key_type=key_type, coordinator_keys=[name])
            error = found.coordinators[0].error_code
            if not error:
                break
            assert time.monotonic() < deadline, name_of(error)
            time.sleep(0.1)
    loaded = {"NONE", "TRANSACTIONAL_ID_NOT_FOUND"}
    while True:
        group = wire.call("OffsetFetch", 9, groups=[{"group_id": name}]).groups[0]
        answer = wire.call("DescribeTransactions", 0, transactional_ids=[name])
        transaction = name_of(answer.transaction_states[0].error_code)
        if group.error_code == 0 and transaction in loaded:
            calls.new_producer(wire)  # Kafka must also have its block of producer ids
            return
        assert time.monotonic() < deadline, f"{name_of(group.error_code)} {transaction}"
        time.sleep(0.1)
