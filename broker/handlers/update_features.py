"""UpdateFeatures v0-2 (KIP-584): raise or lower the level in force of features, all or none. v1
validate_only and what may be lowered (KIP-778); v2 names no feature in its answer.

In version 0 nothing can be lowered, as in Kafka. timeout_ms bounds nothing there either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.broker.answers import Encoded
from ottla.broker.context import Api, Context, Parked
from ottla.broker.features import FEATURES
from ottla.broker.slices import answer_in_slices
from ottla.log.tickets import Ticket
from ottla.wire.api.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.wire.errors import Error, KafkaError
from ottla.wire.rows import Rows
from ottla.wire.schema import Message

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
_NAMED: Final = (0, 1)
"""Versions whose answer names the features."""


def handle(ctx: Context, request: UpdateFeaturesRequest) -> Message | Parked:
    levels: dict[str, int] = {}
    results = Rows(UpdateFeaturesResponse, "results", ctx.header.api_version)

    def judge() -> Iterator[None]:
        for update in request.feature_updates:
            _check(ctx, update)
            levels[update.feature] = update.max_version_level
            results.add(UpdatableFeatureResult(feature=update.feature, error_message=None))
            yield

    def finish() -> Message | Parked:
        features = ctx.broker.features
        moved = any(features.admitted(name) != level for name, level in levels.items())
        make = moved and not request.validate_only
        return ctx.after(features.change(levels) if make else ctx.broker.store.settled(), done)

    def done(_: Ticket) -> Message:
        head, version = UpdateFeaturesResponse(error_message=None), ctx.header.api_version
        return Encoded(results.within(head)) if version in _NAMED else head

    return answer_in_slices(ctx, judge(), finish)


def _check(ctx: Context, update: FeatureUpdateKey) -> None:
    """Raises KafkaError INVALID_UPDATE_VERSION: FeatureControlManager.updateFeature."""
    name, level = update.feature, update.max_version_level
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _refused(update, f"upgrade type {update.upgrade_type} is unknown")
    if level < 0:
        raise _refused(update, "a level is 0 or more")
    feature = FEATURES.get(name)
    if feature is None:
        raise _refused(update, "there is no such feature")
    if not feature.least <= level <= feature.greatest:
        raise _refused(update, f"levels {feature.least} to {feature.greatest} are supported")
    now = ctx.broker.features.admitted(name)
    if level < now and update.upgrade_type == UPGRADE:
        raise _refused(update, f"it is at {now}: ask for a downgrade")
    if level > now and update.upgrade_type != UPGRADE:
        raise _refused(update, f"it is at {now}: ask for an upgrade")


def _refused(update: FeatureUpdateKey, why: str) -> KafkaError:
    return KafkaError(
        Error.INVALID_UPDATE_VERSION,
        f"no feature was changed: {update.feature} cannot be {update.max_version_level}: {why}",
    )


def on_error(request: UpdateFeaturesRequest, error: KafkaError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.error, error_message=error.message)


API = Api(
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
    handle=handle,
    on_error=on_error,
)
