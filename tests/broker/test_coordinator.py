"""The shell around the group machine: what is answered when, and what when it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.harness import Harness

from ottla.log.errors import Damaged
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.wire.errors import Error


def test_reading_offsets_behind_a_commit_is_answered_also_when_it_fails(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topic("t")
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    writer, reader = harness.client(), harness.client()
    writer.connection.feed(writer.frame(OffsetCommitRequest(group_id="g", topics=[topic]), 9))
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    reader.connection.feed(reader.frame(asked, 9))
    assert reader.connection.unanswered == 1

    def damaged(*args: Any) -> Any:
        raise Damaged(Path("state.lmdb"), "is altered")

    monkeypatch.setattr(harness.store, "page", damaged)
    harness.turn()
    assert reader.receive().groups[0].error_code == Error.KAFKA_STORAGE_ERROR
