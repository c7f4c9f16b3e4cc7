"""Rows of the three tables, as bytes and back.

GroupRow is a message of Kafka's own kind (wire/schema.py) with its version in front; later fields
come as tagged ones, so that an older broker can still read the row. An offset is a fixed head and
the metadata, because there may be millions of them.
"""

from struct import Struct
from typing import Final, NamedTuple

from ottla.group.members import CONSUMER, ClassicGroup, Member, PendingOffset
from ottla.group.states import State
from ottla.group.subscription import subscribed_topics
from ottla.wire.compile import decode, encode
from ottla.wire.schema import (
    Message,
    array,
    byte_string,
    int8,
    int32,
    int64,
    message,
    string,
    struct,
)

GROUP_ROW_VERSION: Final = 0

_NUMBER = Struct(">I")
_OFFSET_KEY = Struct(">II")
_PENDING_KEY = Struct(">IqI")
_PENDING_HEAD = Struct(">Q")
_OFFSET_HEAD = Struct(">qiqq")

_STATES: Final = {
    State.DEAD: 0,
    State.EMPTY: 1,
    State.COMPLETING_REBALANCE: 2,
    State.STABLE: 3,
}
"""PreparingRebalance is never written: it is lost with the broker, and nobody minds."""
_STATE_OF: Final = {code: state for state, code in _STATES.items()}


@struct
class ProtocolRow:
    name: str = string()
    metadata: bytes = byte_string()


@struct
class MemberRow:
    member_id: str = string()
    instance_id: str | None = string(null="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32()
    session_timeout_ms: int = int32()
    protocols: list[ProtocolRow] = array(ProtocolRow)
    assignment: bytes = byte_string()


@message(versions="0", flexible="0+")
class GroupRow(Message):
    """One group: its id, its generation and all members of it."""

    group_id: str = string()
    state: int = int8()
    since_ms: int = int64()
    generation_id: int = int32()
    protocol_type: str | None = string(null="0+", default=None)
    protocol_name: str | None = string(null="0+", default=None)
    leader: str | None = string(null="0+", default=None)
    members: list[MemberRow] = array(MemberRow)


class Offset(NamedTuple):
    """A committed offset. Times in milliseconds; -1: no leader epoch, no expiry of its own."""

    offset: int
    leader_epoch: int
    commit_ms: int
    expire_ms: int
    metadata: str


def group_key(number: int) -> bytes:
    return _NUMBER.pack(number)


def group_number(key: bytes) -> int:
    """The number in a group's key, and in an offset's."""
    number: int = _NUMBER.unpack_from(key)[0]
    return number


def offset_key(number: int, partition_id: int) -> bytes:
    return _OFFSET_KEY.pack(number, partition_id)


def offset_partition(key: bytes) -> int:
    """The partition id in an offset's key."""
    partition_id: int = _OFFSET_KEY.unpack(key)[1]
    return partition_id


def encode_offset(row: tuple[int, int, int, int, str]) -> bytes:
    """row: an Offset, or a plain tuple like it, which is made in a fifth of the time."""
    offset, leader_epoch, commit_ms, expire_ms, metadata = row
    return _OFFSET_HEAD.pack(offset, leader_epoch, commit_ms, expire_ms) + metadata.encode()


def decode_offset(value: bytes) -> Offset:
    offset, leader_epoch, commit_ms, expire_ms = _OFFSET_HEAD.unpack_from(value)
    return Offset(offset, leader_epoch, commit_ms, expire_ms, value[_OFFSET_HEAD.size :].decode())


def pending_key(number: int, producer_id: int, partition_id: int) -> bytes:
    return _PENDING_KEY.pack(number, producer_id, partition_id)


def pending_place(key: bytes) -> tuple[int, int]:
    """Producer id and partition id in a pending offset's key."""
    _, producer_id, partition_id = _PENDING_KEY.unpack(key)
    return producer_id, partition_id


def encode_pending(pending: PendingOffset) -> bytes:
    return _PENDING_HEAD.pack(pending.order) + pending.row


def decode_pending(value: bytes) -> PendingOffset:
    (order,) = _PENDING_HEAD.unpack_from(value)
    return PendingOffset(order, value[_PENDING_HEAD.size :])


def encode_group(group: ClassicGroup, since_ms: int) -> bytes:
    """The row of the group's generation. A group that is still making its first one has no
    members yet, as far as the row is concerned; that is written only when it commits offsets.
    since_ms: that of the group, as it goes to the disk."""
    row = GroupRow(
        group_id=group.group_id,
        since_ms=since_ms,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
    )
    if group.state is State.PREPARING_REBALANCE:
        row.state = _STATES[State.EMPTY]
    else:
        row.state = _STATES[group.state]
        row.protocol_name = group.protocol_name
        row.leader = group.leader
        row.members = [_member_row(member) for member in group.members.values()]
    return b"".join((b"%c" % GROUP_ROW_VERSION, *encode(row, GROUP_ROW_VERSION)))


def decode_group(number: int, value: bytes) -> ClassicGroup:
    """Raises FrameError when the row makes no sense, ValueError when it is of a newer version."""
    row = decode(GroupRow, value[0], value, 1)
    group = ClassicGroup(row.group_id, number)
    for member in row.members:
        group.add(_member(member), row.protocol_type or "")
    group.state = _STATE_OF[row.state]
    group.since_ms = row.since_ms
    group.generation_id = row.generation_id
    group.protocol_type = row.protocol_type
    group.protocol_name = row.protocol_name
    group.leader = row.leader
    if group.state is State.COMPLETING_REBALANCE:
        group.not_synced = set(group.members)
    if group.protocol_type == CONSUMER:
        group.subscribed = subscribed_topics(group)
    return group


def _member_row(member: Member) -> MemberRow:
    return MemberRow(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        protocols=[ProtocolRow(name=name, metadata=data) for name, data in member.protocols],
        assignment=member.assignment,
    )


def _member(row: MemberRow) -> Member:
    return Member(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        client_host=row.client_host,
        rebalance_timeout_ms=row.rebalance_timeout_ms,
        session_timeout_ms=row.session_timeout_ms,
        protocols=[(protocol.name, protocol.metadata) for protocol in row.protocols],
        assignment=row.assignment,
    )
