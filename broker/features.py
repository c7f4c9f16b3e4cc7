"""Features of the cluster and their levels in force (KIP-584), which clients and tools go by.

transaction.version 2 makes Java's producer skip AddPartitionsToTxn and count on a new epoch at each
end, and group.version, share.version and streams.version say that those groups work. So only what
works is announced. metadata.version is the level of Kafka's metadata, one per release: tools read
it to know whom they speak to, and 30 is the level of Kafka 4.3, whose versions of every API are
served here; it is neither raised nor lowered here, hence one single level. So it is with
eligible.leader.replicas.version (KIP-966), which says that min.insync.replicas is a setting of the
cluster and that DescribeTopicPartitions names eligible leaders. kraft.version 1 says that
controllers join and leave a running cluster; here is one controller for good, which is level 0.
transaction.version may be lowered: both protocols of transactions work, and the level is what
clients choose by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ottla.log.options import Change, Table
from ottla.log.store import Store
from ottla.log.tickets import Ticket

METADATA_VERSION: Final = 30

_LEVEL: Final = b"feature."
_EPOCH: Final = b"features.epoch"


class Feature(NamedTuple):
    """A feature's least and greatest level; the greatest is in force until another is chosen."""

    name: str
    least: int
    greatest: int


FEATURES: Final = {
    feature.name: feature
    for feature in (
        Feature("eligible.leader.replicas.version", 1, 1),
        Feature("kraft.version", 0, 0),
        Feature("metadata.version", METADATA_VERSION, METADATA_VERSION),
        Feature("transaction.version", 0, 2),
    )
}


class Features:
    """The levels in force. Rows of table CLUSTER: `feature.NAME` and `features.epoch`, decimal."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._visible: dict[str, int] = {}
        self._admitted: dict[str, int] = {}
        self._epoch = self._admitted_epoch = 0
        self._load()
        store.on_reset(lambda _: self._load())

    def __iter__(self) -> Iterator[tuple[Feature, int]]:
        """Every feature and its level in force, as far as committed."""
        return ((feature, self._visible[name]) for name, feature in FEATURES.items())

    @property
    def epoch(self) -> int:
        """Rises with each change: clients drop what they hear with an older one."""
        return self._epoch

    def admitted(self, name: str) -> int:
        """The level that will be in force when all that is under way has been committed."""
        return self._admitted[name]

    def change(self, levels: Mapping[str, int]) -> Ticket:
        """Put levels (checked) in force, in one commit."""
        self._admitted |= levels
        self._admitted_epoch += 1
        epoch = self._admitted_epoch
        rows = [
            Change(Table.CLUSTER, _LEVEL + name.encode(), b"%d" % level)
            for name, level in levels.items()
        ]
        ticket = self._store.change([*rows, Change(Table.CLUSTER, _EPOCH, b"%d" % epoch)])

        def committed(done: Ticket) -> None:
            if done.error is None:
                self._visible |= levels
                self._epoch = epoch

        ticket.then(committed)
        return ticket

    def _load(self) -> None:
        self._visible = {
            name: self._kept(_LEVEL + name.encode(), feature.greatest)
            for name, feature in FEATURES.items()
        }
        self._epoch = self._kept(_EPOCH, 0)
        self._admitted = dict(self._visible)
        self._admitted_epoch = self._epoch

    def _kept(self, key: bytes, default: int) -> int:
        row = self._store.get(Table.CLUSTER, key)
        return default if row is None else int(row)
