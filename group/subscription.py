"""Which topics a consumer's metadata names, and which partitions its assignment.

Every version of ConsumerProtocolSubscription and ConsumerProtocolAssignment starts like version 0:
an int16 version, then an array of topic names, in an assignment each with its partitions. Only
that much is read, so later versions and unknown ones stay readable.
"""

from struct import Struct

from ottla.group.members import CONSUMER, ClassicGroup

_HEAD = Struct(">hi")
_LENGTH = Struct(">h")
_COUNT = Struct(">i")


def topics(metadata: bytes) -> list[str]:
    """Topics of one subscription. Raises ValueError when the bytes are not one."""
    count, pos = _head(metadata)
    names = []
    for _ in range(count):
        name, pos = _name(metadata, pos)
        names.append(name)
    return names


def partitions(assignment: bytes) -> dict[str, list[int]]:
    """Partitions by topic of one assignment; none in an empty one. Raises ValueError when the bytes
    are not an assignment."""
    if not assignment:
        return {}
    count, pos = _head(assignment)
    found: dict[str, list[int]] = {}
    for _ in range(count):
        name, pos = _name(assignment, pos)
        if pos + _COUNT.size > len(assignment):
            raise ValueError(f"the assignment ends at byte {len(assignment)}, within {name}")
        indexes = _COUNT.unpack_from(assignment, pos)[0]
        pos += _COUNT.size
        end = pos + indexes * _COUNT.size
        if indexes < 0 or end > len(assignment):
            raise ValueError(f"{indexes} partitions of {name} at byte {pos}")
        found[name] = [index for (index,) in _COUNT.iter_unpack(assignment[pos:end])]
        pos = end
    return found


def _head(data: bytes) -> tuple[int, int]:
    """How many topics, and where the first begins."""
    if len(data) < _HEAD.size:
        raise ValueError("a version and a number of topics take 6 bytes")
    version, count = _HEAD.unpack_from(data)
    if version < 0 or count < 0 or count * _LENGTH.size > len(data) - _HEAD.size:
        raise ValueError(f"version {version} and {count} topics in {len(data)} bytes")
    return count, _HEAD.size


def _name(data: bytes, pos: int) -> tuple[str, int]:
    if pos + _LENGTH.size > len(data):
        raise ValueError(f"the topics end at byte {len(data)}")
    length = _LENGTH.unpack_from(data, pos)[0]
    pos += _LENGTH.size
    if length < 0 or pos + length > len(data):
        raise ValueError(f"a topic name of {length} bytes at byte {pos}")
    return data[pos : pos + length].decode(), pos + length


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
