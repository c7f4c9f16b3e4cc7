"""Levels in force of features: kept over restarts, and taken back with a commit that fails."""

from __future__ import annotations

import errno
from pathlib import Path

from tests.broker.harness import Client, Harness

from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.errors import Error

DOWNGRADE = 2


def lowered(client: Client, level: int = 1) -> Error:
    update = FeatureUpdateKey(
        feature="transaction.version", max_version_level=level, upgrade_type=DOWNGRADE
    )
    answer = client.call(UpdateFeaturesRequest(feature_updates=[update]), 2)
    return Error(answer.error_code)


def finalized(client: Client) -> tuple[dict[str, int], int]:
    asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = client.call(asked, 4)
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    assert levels.pop("eligible.leader.replicas.version") == 1, "which cannot be changed"
    return levels, answer.finalized_features_epoch


def test_a_level_and_its_epoch_outlive_a_restart(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "d")
    assert finalized(harness.client()) == ({"metadata.version": 30, "transaction.version": 2}, 0)
    assert lowered(harness.client()) is Error.NONE
    harness.store.close()
    again = Harness(tmp_path / "d")
    assert finalized(again.client()) == ({"metadata.version": 30, "transaction.version": 1}, 1)
    assert lowered(again.client(), 1) is Error.NONE
    assert finalized(again.client())[1] == 1  # nothing has changed
    again.store.close()


def test_a_level_whose_commit_failed_was_never_in_force(tmp_path: Path) -> None:
    broken = False

    def step(name: str) -> None:
        if broken and name == "commit: write":
            raise OSError(errno.EIO, "broken")

    harness = Harness(tmp_path / "d", step=step)
    before = finalized(harness.client())
    broken = True
    assert lowered(harness.client()) is Error.KAFKA_STORAGE_ERROR
    broken = False
    assert finalized(harness.client()) == before
    assert harness.broker.features.admitted("transaction.version") == 2
    harness.store.close()
