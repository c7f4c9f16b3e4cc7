"""What clients choose, in our log."""

from __future__ import annotations

import json
import logging
import re
import sys

import pytest
from tests.broker.harness import Harness

from ottla.broker.log_lines import FORMATS
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


def record(message: str, exc_info: object = None) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "ottla.x", "levelname": "INFO", "msg": "%s", "args": (message,)}
        | ({"exc_info": exc_info} if exc_info else {})
    )


FORGED = "a\r\n2030-01-01T00:00:00.000+00:00 ERROR ottla: \x1b[2J all is lost\u2028\ud800"


def test_no_message_makes_a_second_line() -> None:
    line = FORMATS["plain"]().format(record(FORGED))
    assert re.fullmatch(r"\d{4}-.{18}[+-]\d\d:\d\d INFO ottla\.x: a\\r\\n2030[ -~]*", line)
    line = FORMATS["json"]().format(record(FORGED))
    assert re.fullmatch("[ -~]*", line)
    assert json.loads(line)["message"] == FORGED


def test_the_lines_of_a_traceback_are_indented() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        failed = record("it failed", sys.exc_info())
    first, *others = FORMATS["plain"]().format(failed).split("\n")
    assert first.endswith("INFO ottla.x: it failed")
    assert all(line.startswith("    ") for line in others)
    assert len(others) > 3
    assert FORGED in json.loads(FORMATS["json"]().format(failed))["exception"]


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
