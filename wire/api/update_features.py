"""UpdateFeatures: raise or lower the levels in force of the cluster's features (KIP-584)."""

from ottla.wire.schema import Message, array, boolean, int8, int16, int32, message, string, struct


@struct
class FeatureUpdateKey:
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest(Message):
    """The level each feature is to have: 1 upgrades, 2 and 3 (lossy) downgrade."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


@struct
class UpdatableFeatureResult:
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+")


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse(Message):
    """All of them, or one error; v2 names no feature any more."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
