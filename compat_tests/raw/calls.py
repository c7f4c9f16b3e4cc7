"""The requests nearly every byte-level test makes, at a version of the caller's choice."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from compat_tests.raw import batch
from compat_tests.raw.errors import CODES, name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Wire


def api_ranges(wire: Wire) -> dict[int, tuple[int, int]]:
    """What ApiVersions advertises: first and last version by API key."""
    answer = wire.call("ApiVersions", 3, client_software_name="raw", client_software_version="1")
    assert answer.error_code == 0
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


def finalized_features(wire: Wire) -> dict[str, int]:
    """Levels in force by feature; one at 0 is left out."""
    answer = wire.call("ApiVersions", 4, client_software_name="raw", client_software_version="1")
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


def metadata(wire: Wire, *topics: str, version: int = 12, create: bool = False) -> Struct:
    asked = [{"name": topic} for topic in topics]
    return wire.call("Metadata", version, topics=asked, allow_auto_topic_creation=create)


def topic_metadata(wire: Wire, topic: str, *, version: int = 12, create: bool = False) -> Struct:
    (found,) = metadata(wire, topic, version=version, create=create).topics
    return found  # type: ignore[no-any-return]


def ready_topic(wire: Wire, topic: str, seconds: float = 60) -> Struct:
    """The topic's metadata once every partition answers.

    Kafka names a leader in Metadata a moment before that leader takes requests.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = topic_metadata(wire, topic)
        if found.error_code == 0 and found.partitions and _all_answer(wire, found):
            return found
        assert time.monotonic() < deadline, f"{topic}: {name_of(found.error_code)} {found}"
        time.sleep(0.02)


def _all_answer(wire: Wire, topic: Struct) -> bool:
    parts = [{"partition_index": p.partition_index, "timestamp": -1} for p in topic.partitions]
    answer = wire.call("ListOffsets", 9, topics=[{"name": topic.name, "partitions": parts}])
    return all(p.error_code == 0 for p in answer.topics[0].partitions)


def create_topic(
    wire: Wire, topic: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> Struct:
    """Create and wait until it can be used; the topic's metadata."""
    answer = wire.call(
        "CreateTopics",
        7,
        timeout_ms=20_000,
        topics=[
            {
                "name": topic,
                "num_partitions": partitions,
                "replication_factor": 1,
                "configs": [{"name": k, "value": v} for k, v in (configs or {}).items()],
            }
        ],
    )
    assert answer.topics[0].error_code == 0, answer.topics[0]
    return ready_topic(wire, topic)


def delete_topic(wire: Wire, topic: str, seconds: float = 60) -> None:
    """Delete and wait until Metadata no longer knows it."""
    answer = wire.call("DeleteTopics", 6, timeout_ms=20_000, topics=[{"name": topic}])
    assert answer.responses[0].error_code == 0, answer.responses[0]
    deadline = time.monotonic() + seconds
    while topic_metadata(wire, topic).error_code != CODES["UNKNOWN_TOPIC_OR_PARTITION"]:
        assert time.monotonic() < deadline, f"{topic} is still there"
        time.sleep(0.02)


def _topic(topic: str | uuid.UUID) -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, uuid.UUID) else {"name": topic}


def produce_fields(
    topic: str | uuid.UUID, records: bytes | None, *, partition: int = 0, acks: int = -1
) -> dict[str, Any]:
    part = {"index": partition, "records": records}
    return {
        "acks": acks,
        "timeout_ms": 10_000,
        "topic_data": [{**_topic(topic), "partition_data": [part]}],
    }


def send_produce(
    wire: Wire, topic: str | uuid.UUID, records: bytes | None, *, version: int = 9, **options: Any
) -> int:
    return wire.send("Produce", version, **produce_fields(topic, records, **options))


def received_produce(wire: Wire, version: int = 9) -> Struct:
    """The one partition of the next answer."""
    _, answer = wire.receive("Produce", version)
    return answer.responses[0].partition_responses[0]  # type: ignore[no-any-return]


def produce(
    wire: Wire, topic: str | uuid.UUID, records: bytes | None, *, version: int = 9, **options: Any
) -> Struct:
    """One partition's answer to one batch: error_code, base_offset, log_append_time_ms ..."""
    send_produce(wire, topic, records, version=version, **options)
    return received_produce(wire, version)


def produced(wire: Wire, topic: str | uuid.UUID, records: bytes, **options: Any) -> int:
    """Produce one batch that must succeed; its first offset."""
    answer = produce(wire, topic, records, **options)
    assert answer.error_code == 0, name_of(answer.error_code)
    return int(answer.base_offset)


def fetch_partition(
    offset: int = 0,
    *,
    partition: int = 0,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
) -> dict[str, Any]:
    return {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": partition_max_bytes,
        "current_leader_epoch": current_leader_epoch,
    }


def fetch_fields(
    topics: Mapping[Any, list[dict[str, Any]]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 50 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    **more: Any,
) -> dict[str, Any]:
    def key(topic: str | uuid.UUID) -> dict[str, Any]:
        return {"topic_id": topic} if isinstance(topic, uuid.UUID) else {"topic": topic}

    return {
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": [{**key(topic), "partitions": parts} for topic, parts in topics.items()],
        **more,
    }


def fetch(
    wire: Wire,
    topic: str | uuid.UUID,
    offset: int = 0,
    *,
    version: int = 12,
    partition: int = 0,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    **options: Any,
) -> Struct:
    """One partition's answer: error_code, high_watermark, log_start_offset, records ..."""
    part = fetch_partition(
        offset,
        partition=partition,
        partition_max_bytes=partition_max_bytes,
        current_leader_epoch=current_leader_epoch,
    )
    answer = wire.call("Fetch", version, **fetch_fields({topic: [part]}, **options))
    assert len(answer.responses) == 1, answer
    return answer.responses[0].partitions[0]  # type: ignore[no-any-return]


def fetched_batches(wire: Wire, topic: str, offset: int = 0, **options: Any) -> list[batch.Batch]:
    answer = fetch(wire, topic, offset, **options)
    assert answer.error_code == 0, name_of(answer.error_code)
    return batch.parse(answer.records)


def list_offset(
    wire: Wire,
    topic: str,
    timestamp: int,
    *,
    version: int = 9,
    partition: int = 0,
    isolation_level: int = 0,
    current_leader_epoch: int = -1,
) -> Struct:
    """One partition's answer: error_code, timestamp, offset, leader_epoch."""
    part = {
        "partition_index": partition,
        "timestamp": timestamp,
        "current_leader_epoch": current_leader_epoch,
    }
    answer = wire.call(
        "ListOffsets",
        version,
        replica_id=-1,  # a consumer: to a replica the isolation level says nothing
        isolation_level=isolation_level,
        topics=[{"name": topic, "partitions": [part]}],
    )
    return answer.topics[0].partitions[0]  # type: ignore[no-any-return]


def new_producer(wire: Wire) -> tuple[int, int]:
    """A fresh producer id and its epoch."""
    deadline = time.monotonic() + 60
    while True:
        answer = wire.call(
            "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=60_000
        )
        if answer.error_code == 0:
            return answer.producer_id, answer.producer_epoch
        # Kafka answers COORDINATOR_LOAD_IN_PROGRESS until it has its first block of ids.
        assert time.monotonic() < deadline, name_of(answer.error_code)
        time.sleep(0.05)
