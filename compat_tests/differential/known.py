"""Differences that are known, and why each may stay."""

from __future__ import annotations

import re
from typing import NamedTuple


class Known(NamedTuple):
    """Requests (API, place, value: patterns that must match whole) that may be answered
    differently, and are not asked."""

    api: str
    place: str
    value: str
    reason: str


_ANY = r"(?s:.*)"
_TWICE = r"(?s:\[(.+), \1\])"
_CRASH = "Kafka runs into an exception of its own (UNKNOWN_SERVER_ERROR); here the field is named"

KNOWN: tuple[Known, ...] = (
    Known("Produce", r"topic_data\.partition_data\.records", "None", "Kafka never answers null"),
    Known("Produce", "acks", "0", "acks=0 has no answer"),
    Known("AddPartitionsToTxn", "transactions", r"\[\]", "Kafka never answers an empty list"),
    Known(".*", "timeout_ms", "1|2", "whether it is enough for Kafka's controller is chance"),
    Known("OffsetCommit", "retention_time_ms", "0|1|2", "when ended offsets are seen is chance"),
    Known("Fetch", "session_id", _ANY, "numbers that no session has confuse Kafka's cache"),
    Known("Metadata", r"topics\.(name|topic_id)", _ANY, _CRASH),
    Known("DescribeTopicPartitions", r"topics\.name", "''", _CRASH),
    Known("IncrementalAlterConfigs", r"resources\.configs\.config_operation", _ANY, _CRASH),
    Known("CreatePartitions", r"topics\.count", "2147483647", _CRASH),
    Known(
        "OffsetForLeaderEpoch",
        r"topics\.partitions\.leader_epoch",
        "-2147483648",
        "an epoch below -1: Kafka takes it for one before the first, here it is unknown like -1",
    ),
    Known(
        "WriteTxnMarkers",
        r"markers(\.topics(\.partition_indexes)?)?",
        _ANY,
        "a marker named twice is answered twice, one without partitions is answered",
    ),
    Known("DescribeTransactions", "transactional_ids", _TWICE, "an id named twice is told once"),
)


def reason(api: str, place: str, value: object) -> str | None:
    """Why a difference is none to mend; None: it is one."""
    for known in KNOWN:
        if all(
            re.fullmatch(pattern, text)
            for pattern, text in (
                (known.api, api),
                (known.place, place),
                (known.value, repr(value)),
            )
        ):
            return known.reason
    return None
