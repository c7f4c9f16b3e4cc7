"""Which topics a consumer's metadata names.

Every version of ConsumerProtocolSubscription starts like version 0 (an int16 version, then an
array of topic names), and only that much is read: later versions and unknown ones stay readable.
"""

from struct import Struct

from ottla.group.members import CONSUMER, ClassicGroup

_HEAD = Struct(">hi")
_LENGTH = Struct(">h")


def topics(metadata: bytes) -> list[str]:
    """Topics of one subscription. Raises ValueError when the bytes are not one."""
    if len(metadata) < _HEAD.size:
        raise ValueError("a subscription has a version and a list of topics")
    version, count = _HEAD.unpack_from(metadata)
    pos = _HEAD.size
    if version < 0 or count < 0 or count * _LENGTH.size > len(metadata) - pos:
        raise ValueError(f"version {version} and {count} topics in {len(metadata)} bytes")
    names = []
    for _ in range(count):
        if pos + _LENGTH.size > len(metadata):
            raise ValueError(f"the subscription ends at byte {len(metadata)}, within its topics")
        length = _LENGTH.unpack_from(metadata, pos)[0]
        pos += _LENGTH.size
        if length < 0 or pos + length > len(metadata):
            raise ValueError(f"a topic name of {length} bytes at byte {pos}")
        names.append(metadata[pos : pos + length].decode())
        pos += length
    return names


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """All topics that the group's members subscribe to under the chosen protocol. None when the
    group does not consist of consumers, has chosen nothing yet, or one of them cannot be read."""
    if group.protocol_type != CONSUMER:
        return None
    if group.members and group.protocol_name is None:
        return None
    try:
        return frozenset(
            name
            for member in group.members.values()
            for name in topics(member.metadata(group.protocol_name))
        )
    except ValueError:
        return None
