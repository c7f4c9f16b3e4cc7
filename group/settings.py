"""The broker settings that the group machine honours, under Kafka's names."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Times in milliseconds. Defaults are Kafka's, but for the initial rebalance delay."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms: a shorter one is refused with INVALID_SESSION_TIMEOUT."""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms."""
    max_size: int = 2_147_483_647
    """group.max.size: the member after that is refused with GROUP_MAX_SIZE_REACHED."""
    initial_rebalance_delay_ms: int = 0
    """group.initial.rebalance.delay.ms; Kafka's default of 3000 makes every first join slow."""
    offset_metadata_max_bytes: int = 4096
    """offset.metadata.max.bytes."""
    offsets_retention_ms: int = 10_080 * 60_000
    """offsets.retention.minutes, in milliseconds."""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms: least time between two looks at a group's offsets."""

    new_member_join_timeout_ms: int = 300_000
    """How long the first JoinGroup of a new member may be parked (fixed in Kafka too): the client
    has no id yet to send heartbeats with, so nothing else would tell that it is gone."""
    max_pending_members: int = 100_000
    """Ids given out by MEMBER_ID_REQUIRED that are remembered, over all groups."""
    max_member_bytes: int = 1 << 20
    """Names and metadata of the protocols of one JoinGroup (Kafka: what fits into one record of
    its offsets topic, with all other members)."""
    max_group_bytes: int = 16 << 20
    """The same of all members together, and of all assignments of one SyncGroup."""
