"""All that readers of every kind are shown of a topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from compat_tests.clients.base import Client, Message, Partition, Received

ISOLATIONS = ("read_committed", "read_uncommitted")
END = b"-- the end"


@dataclass
class Topic:
    """What is in a topic is known once its end is seen: a plain record in each partition, written
    when no transaction is open any more."""

    name: str
    partitions: int
    readers: Sequence[Client]
    _is_closed: bool = field(default=False, init=False)

    def message(self, value: bytes, partition: int = 0, key: bytes | None = None) -> Message:
        return Message(self.name, value, key, partition)

    def messages(self, *values: bytes, partition: int = 0) -> list[Message]:
        return [self.message(value, partition) for value in values]

    def _close(self) -> None:
        with self.readers[0].producer() as producer:
            producer.send_all(self.message(END, p, key=END) for p in range(self.partitions))
        self._is_closed = True

    def read(self, reader: Client, isolation: str) -> dict[int, list[Received]]:
        """Everything before the ends, by partition."""
        if not self._is_closed:
            self._close()
        got: dict[int, list[Received]] = {p: [] for p in range(self.partitions)}
        open_ones = set(got)
        deadline = time.monotonic() + 60
        with reader.consumer(isolation_level=isolation, max_wait_ms=100) as consumer:
            consumer.assign({Partition(self.name, partition): 0 for partition in got})
            while open_ones:
                for record in consumer.poll(0.5):
                    if record.value == END:
                        open_ones.discard(record.partition)
                    else:
                        got[record.partition].append(record)
                assert time.monotonic() < deadline, f"{reader.name}, {isolation}: {open_ones} open"
        return got

    def values(self, reader: Client, isolation: str) -> list[list[bytes]]:
        found = self.read(reader, isolation)
        return [[record.value or b"" for record in found[p]] for p in sorted(found)]

    def check(
        self, committed: Sequence[Sequence[bytes]], everything: Sequence[Sequence[bytes]]
    ) -> None:
        """Every reader is shown these values by partition, in this order."""
        for isolation, wanted in zip(ISOLATIONS, (committed, everything), strict=True):
            for reader in self.readers:
                found = self.values(reader, isolation)
                assert found == [list(one) for one in wanted], f"{reader.name}, {isolation}"
