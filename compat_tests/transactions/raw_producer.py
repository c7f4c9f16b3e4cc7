"""A transactional producer byte by byte, of any age, that goes on after what may be tried again."""

from __future__ import annotations

import time
from typing import Any

from compat_tests.raw import batch
from compat_tests.raw.batch import Record
from compat_tests.raw.errors import name_of
from compat_tests.raw.wire import Wire
from compat_tests.transactions.protocols import Protocol

PASSING = {
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
}
"""What is said while a coordinator is busy, and asked again."""
PATIENCE = 60.0


class Refused(Exception):
    """By Kafka's name of the error."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class RawProducer:
    """One instance. Every method raises Refused; Closed, Silent or OSError of its connection."""

    def __init__(
        self, wire: Wire, transactional_id: str, protocol: Protocol, *, timeout_ms: int = 60_000
    ) -> None:
        self.wire = wire
        self.transactional_id = transactional_id
        self.protocol = protocol
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self._added: set[tuple[str, int]] = set()

    def init(self) -> None:
        answer = self._ask(
            "InitProducerId",
            self.protocol.init,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
        )
        self._now(answer)

    def _now(self, answer: Any) -> None:
        self._added = set()
        if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences = {}

    def _ask(self, api: str, version: int, **fields: Any) -> Any:
        """Again as long as it may pass."""
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self.wire.call(api, version, **fields)
            error = name_of(_error_of(answer))
            if error == "NONE":
                return answer
            if error not in PASSING or time.monotonic() > deadline:
                raise Refused(error)
            time.sleep(0.02)

    @property
    def _me(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def write(self, topic: str, partition: int, *values: bytes) -> None:
        """One batch, and before it what an old producer has to ask."""
        place = topic, partition
        if self.protocol.adds and place not in self._added:
            fields = self._me | {"topics": [{"name": topic, "partitions": [partition]}]}
            if self.protocol.add >= 4:
                self._ask(
                    "AddPartitionsToTxn",
                    self.protocol.add,
                    transactions=[fields | {"verify_only": False}],
                )
            else:
                old = {f"v3_and_below_{key}": value for key, value in fields.items()}
                self._ask("AddPartitionsToTxn", self.protocol.add, **old)
            self._added.add(place)
        sequence = self._sequences.get(place, 0)
        data = batch.build(
            [Record(value) for value in values],
            attributes=batch.TRANSACTIONAL,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        self._ask(
            "Produce",
            self.protocol.produce,
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": data}]}],
        )
        self._sequences[place] = sequence + len(values)

    def written(self, topic: str, partition: int) -> int:
        """Records under this id and epoch."""
        return self._sequences.get((topic, partition), 0)

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """An offset that moves with the transaction."""
        if self.protocol.adds:
            self._ask("AddOffsetsToTxn", self.protocol.add_offsets, **self._me, group_id=group)
        part = {"partition_index": partition, "committed_offset": offset}
        self._ask(
            "TxnOffsetCommit",
            self.protocol.offsets,
            **self._me,
            group_id=group,
            topics=[{"name": topic, "partitions": [part]}],
        )

    def end(self, committed: bool) -> None:
        answer = self._ask("EndTxn", self.protocol.end, **self._me, committed=committed)
        self._added = set()
        if not self.protocol.adds:
            self._now(answer)


def _error_of(answer: Any) -> int:
    """The first error, wherever this answer has its codes."""
    found = vars(answer)
    for name in ("error_code", "partition_error_code"):
        if found.get(name):
            return int(found[name])
    for value in found.values():
        for inner in value if isinstance(value, list) else ():
            if hasattr(inner, "__dict__"):
                code = _error_of(inner)
                if code:
                    return code
    return 0
