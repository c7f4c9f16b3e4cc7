"""What clients choose, in our log."""

from __future__ import annotations

import pytest
from tests.broker.harness import Harness

from ottla.broker.loggers import SHOWN, shown
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.sync_group import SyncGroupRequest


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders", "orders"),
        ("ключ-é", "ключ-é"),
        ("a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
        ("\x1b[31m\x9b", "\\x1b[31m\\x9b"),
        ("x" * 30_000, "x" * SHOWN + "..."),
    ],
)
def test_a_name_is_part_of_one_line(name: str, text: str) -> None:
    assert shown(name) == text


def test_a_group_cannot_write_lines_into_the_log(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ottla.broker.coordinator")
    client = harness.client()
    group_id = "g\n2030-01-01 00:00:00 ERROR all is lost" + "!" * 30_000
    join = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    client.send(join, 3)
    harness.pass_time(1)
    joined = client.receive()
    sync = SyncGroupRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id
    )
    assert client.call(sync, 3).error_code == 0
    (line,) = caplog.messages
    assert "\n" not in line
    assert len(line) < 4 * SHOWN
