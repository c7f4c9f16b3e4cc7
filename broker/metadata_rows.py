"""How topics, dynamic settings and the node's identity are laid out in the log's state tables.

The bytes are a promise (docs/design/metadata.md): a later version may add, not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct

from ottla.log.errors import LogError
from ottla.log.options import Change, Table
from ottla.log.store import Store

CLUSTER_ID = b"cluster.id"
NODE_ID = b"node.id"

_FORMAT = 1
_TOPIC = Struct("<B16sI")
_SHORT = Struct("<H")
_LONG = Struct("<I")


class UnknownRow(LogError):
    """A row that a later version wrote."""


def topic_key(name: str) -> bytes:
    return name.encode()


def topic_row(name: str, topic_id: bytes, partitions: Sequence[int]) -> Change:
    numbers = Struct(f"<{len(partitions)}I").pack(*partitions)
    value = _TOPIC.pack(_FORMAT, topic_id, len(partitions)) + numbers
    return Change(Table.TOPICS, topic_key(name), value)


def scan_topics(store: Store) -> Iterator[tuple[str, bytes, tuple[int, ...]]]:
    """Name, id and partition numbers of every topic."""
    for key, value in store.scan(Table.TOPICS):
        yield key.decode(), *read_topic(key, value)


def read_topic(key: bytes, value: bytes) -> tuple[bytes, tuple[int, ...]]:
    """A topic's id and its partitions' numbers. Raises UnknownRow."""
    version, topic_id, count = _TOPIC.unpack_from(value)
    _check(version, f"topic {key.decode()}")
    return topic_id, Struct(f"<{count}I").unpack_from(value, _TOPIC.size)


def config_row(kind: int, name: str, configs: Mapping[str, str]) -> Change:
    """The settings of one resource; without any, the row goes."""
    key = bytes((kind,)) + name.encode()
    if not configs:
        return Change(Table.CONFIGS, key, None)
    parts = [bytes((_FORMAT,))]
    for setting, text in sorted(configs.items()):
        coded, value = setting.encode(), text.encode()
        parts += [_SHORT.pack(len(coded)), coded, _LONG.pack(len(value)), value]
    return Change(Table.CONFIGS, key, b"".join(parts))


def scan_configs(
    store: Store, kind: int | None = None
) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Resource type, name and settings of every resource, or those of one type, that has any."""
    prefix = b"" if kind is None else bytes((kind,))
    for key, value in store.scan(Table.CONFIGS, prefix):
        name = key[1:].decode()
        _check(value[0], f"settings of {name or 'the cluster'}")
        yield key[0], name, _configs(value)


def _configs(value: bytes) -> dict[str, str]:
    configs = {}
    pos = 1
    while pos < len(value):
        (size,) = _SHORT.unpack_from(value, pos)
        setting = value[pos + 2 : pos + 2 + size].decode()
        pos += 2 + size
        (size,) = _LONG.unpack_from(value, pos)
        configs[setting] = value[pos + 4 : pos + 4 + size].decode()
        pos += 4 + size
    return configs


def _check(version: int, what: str) -> None:
    if version != _FORMAT:
        raise UnknownRow(
            f"the row of {what} has format {version}, this version of Ottla reads {_FORMAT}:"
            " open the folder with the version that wrote it"
        )
