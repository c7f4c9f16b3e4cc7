"""What is compared of an answer: all but what depends on the broker, the clock or chance."""

from __future__ import annotations

from typing import Any

from compat_tests.raw.schema import Struct

#: Fields that say nothing, or something of the broker alone.
LEFT_OUT = {
    *("_name", "throttle_time_ms", "error_message", "authentication_id"),
    *("host", "port", "cluster_id", "rack", "log_dir", "total_bytes", "usable_bytes"),
    *("api_keys", "supported_features", "finalized_features", "finalized_features_epoch"),
    *("configs", "config_resources", "documentation", "brokers", "nodes", "node_endpoints"),
    *("partition_size", "leader_epoch", "high_watermark", "log_end_offset", "leader_id_or_epoch"),
    *("last_timestamp", "last_fetch_timestamp", "last_caught_up_timestamp", "client_host"),
    *(
        "transaction_start_time_ms",
        "start_offset",
        "log_append_time_ms",
        "batch_index_error_message",
    ),
}
#: Fields of which it is compared only whether there is something.
SOME = {
    "base_offset",
    "offset",
    "last_stable_offset",
    "low_watermark",
    "end_offset",
    "timestamp",
    "producer_id",
    "session_id",
    "member_id",
    "topic_id",
    "leader",
    "records",
}


def normal(value: Any, name: str = "") -> Any:
    """A form of an answer that compares: dicts, and lists without an order."""
    if name in SOME:
        if isinstance(value, int):
            return value > 0 if name == "session_id" else value >= 0
        return bool(value) and getattr(value, "int", 1) != 0
    if isinstance(value, Struct):
        return {
            key: normal(inner, key) for key, inner in vars(value).items() if key not in LEFT_OUT
        }
    if isinstance(value, list):
        return sorted((normal(one) for one in value if not _is_empty(one)), key=repr)
    return value


def _is_empty(value: Any) -> bool:
    """A topic without partitions: some answers of Kafka leave it out, some do not."""
    return (
        isinstance(value, Struct)
        and any(vars(value).get(name) == [] for name in ("partition_responses", "partitions"))
        and not vars(value).get("error_code")
    )
