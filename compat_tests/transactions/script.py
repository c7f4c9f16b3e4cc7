"""A conversation with a broker about transactions, byte by byte, written down line by line.

Producer ids become P1, P2 ... in the order in which they are given out, times become TIME, texts of
errors are left out: what remains is what a client goes by, and two brokers that answer alike write
the same lines.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compat_tests.raw import batch
from compat_tests.raw.errors import name_of
from compat_tests.raw.schema import Struct
from compat_tests.raw.wire import Silent, Wire
from compat_tests.transactions.protocols import Protocol

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3

OFFSETS = "__consumer_offsets"
"""A group that is in a transaction is shown as one of this topic's partitions; which one, and of
how many, is the broker's own business."""
LEFT_OUT = {
    "_name",
    "throttle_time_ms",
    "error_message",
    "log_append_time_ms",
    "record_errors",
    "current_leader",
    "node_endpoints",
}
USELESS_WHEN_REFUSED = {"log_start_offset"}
ERRORS = {"error_code", "partition_error_code"}
TIMES = {"last_timestamp", "transaction_start_time_ms", "timestamp"}
EPOCHS_OF_THE_COORDINATOR = {"coordinator_epoch"}
"""Kafka counts its restarts in it."""


def values(*names: str) -> tuple[batch.Record, ...]:
    return tuple(batch.Record(name.encode()) for name in names)


def shown_batch(one: batch.Batch, producer: str) -> str:
    """`[3-4 P1/0 seq 2 txn a b]`, `[5 P1/0 COMMIT]`."""
    offsets = str(one.base_offset)
    if one.last_offset > one.base_offset:
        offsets += f"-{one.last_offset}"
    words = [offsets]
    if one.producer_id >= 0:
        words.append(f"{producer}/{one.producer_epoch}")
    if one.attributes & batch.CONTROL:
        (record,) = one.records
        _, kind = struct.unpack(">hh", record.key or b"")
        words.append(("ABORT", "COMMIT")[kind])
        if one.attributes & batch.TRANSACTIONAL == 0 or one.base_sequence != -1:
            words.append(f"attributes {one.attributes} sequence {one.base_sequence}")
        if record.value is None or len(record.value) != 6:
            words.append(f"value {record.value!r}")
    else:
        if one.producer_id >= 0:
            words.append(f"seq {one.base_sequence}")
        if one.attributes & batch.TRANSACTIONAL:
            words.append("txn")
        words += [(record.value or b"-").decode() for record in one.records]
    return f"[{' '.join(words)}]"


class Script:
    """All producers of a conversation, and what was said."""

    def __init__(self, host: str, port: int, name: str) -> None:
        self.address = host, port
        self.topic, self.other, self.group = f"{name}-topic", f"{name}-other", f"{name}-group"
        self.prefix = f"{name}-txn-"
        """What all transactional ids of this conversation begin with."""
        self.lines: list[str] = []
        self.names = {
            self.topic: "TOPIC",
            self.other: "OTHER",
            self.group: "GROUP",
            self.prefix: "",
        }
        self.wire = Wire(host, port, client_id="script", timeout=30)
        self.parked: list[tuple[Wire, str]] = []
        self._ids: list[int] = []

    def close(self) -> None:
        self.wire.close()
        for wire, _ in self.parked:
            wire.close()

    def producer(self, name: str, protocol: Protocol, **options: Any) -> Producer:
        return Producer(self, name, protocol, self.prefix + name, **options)

    # ----------------------------------------------------------------------------------- writing

    def say(self, line: str) -> None:
        self.lines.append(line)

    def ask(
        self, api: str, version: int, note: str = "", /, who: str = "", **fields: Any
    ) -> Struct:
        """Send, and write down the answer."""
        answer = self.wire.call(api, version, **fields)
        words = " ".join(filter(None, (who, f"{api} v{version}", note)))
        self.say(f"{words}: {self.shown(answer)}")
        return answer

    def id_name(self, producer_id: int) -> str:
        if producer_id < 0:
            return str(producer_id)
        if producer_id not in self._ids:
            self._ids.append(producer_id)
        return f"P{self._ids.index(producer_id) + 1}"

    def shown(self, value: Any) -> str:
        match value:
            case Struct() if getattr(value, "topic", "") == OFFSETS:
                return "OFFSETS OF GROUPS"
            case Struct():
                return "{" + ", ".join(self._fields(value)) + "}"
            case list() | tuple():
                return "[" + ", ".join(sorted(map(self.shown, value))) + "]"
            case str():
                for real, name in self.names.items():
                    value = value.replace(real, name)
                return repr(value)
        return str(value)

    def _fields(self, struct: Struct) -> Iterator[str]:
        failed = bool(vars(struct).get("error_code"))
        for name, value in vars(struct).items():
            if name in LEFT_OUT or (failed and name in USELESS_WHEN_REFUSED):
                continue
            # what comes with an error is a default, not an id or a time
            is_plain = failed and name not in ERRORS and isinstance(value, int)
            yield f"{name}: {value if is_plain else self._field(name, value)}"

    def _field(self, name: str, value: Any) -> str:
        if name in ERRORS:
            return name_of(value)
        if name == "producer_id":
            return self.id_name(value)
        if name in TIMES and value >= 0:
            return "TIME"
        if name in EPOCHS_OF_THE_COORDINATOR and value >= 0:
            return "EPOCH"
        if name == "port" and value == self.address[1]:
            return "PORT"
        return self.shown(value)

    # ----------------------------------------------------------------------------------- reading

    def fetch(
        self,
        offset: int = 0,
        *,
        partition: int = 0,
        version: int = 12,
        isolation: int = READ_COMMITTED,
        partition_max_bytes: int = 1 << 20,
    ) -> None:
        answer = self.wire.call(
            "Fetch", version, **self._fetch(offset, partition, isolation, partition_max_bytes)
        )
        self._told_fetch(answer, f"Fetch v{version} {self._isolation(isolation)} from {offset}")

    def both(self, offset: int = 0, *, partition: int = 0) -> None:
        """What readers of either kind get, and where they believe the end is."""
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            self.fetch(offset, partition=partition, isolation=isolation)
            self.list_offset(LATEST, partition=partition, isolation=isolation)

    def park(self, offset: int, *, partition: int = 0, isolation: int = READ_COMMITTED) -> None:
        """A fetch that waits for up to half a minute, on a connection of its own."""
        wire = Wire(*self.address, client_id="parked", timeout=40)
        fields = self._fetch(offset, partition, isolation, 1 << 20)
        wire.send("Fetch", 12, **fields | {"max_wait_ms": 30_000, "min_bytes": 1})
        what = f"Fetch v12 {self._isolation(isolation)} from {offset}"
        try:
            wire.receive_frame(timeout=0.3)
        except Silent:
            self.say(f"{what}: waits")
        else:
            raise AssertionError(f"{what}: does not wait")
        self.parked.append((wire, what))

    def wake(self) -> None:
        """The parked fetches' answers, which must come now. Raises Silent."""
        for wire, what in self.parked:
            _, answer = wire.receive("Fetch", 12, timeout=10)
            self._told_fetch(answer, f"{what} at last")
            wire.close()
        self.parked = []

    @staticmethod
    def _isolation(isolation: int) -> str:
        return ("read_uncommitted", "read_committed")[isolation]

    def _fetch(self, offset: int, partition: int, isolation: int, size: int) -> dict[str, Any]:
        part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": size}
        return {
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 50 << 20,
            "isolation_level": isolation,
            "session_epoch": -1,
            "topics": [{"topic": self.topic, "partitions": [part]}],
        }

    def _told_fetch(self, answer: Struct, what: str) -> None:
        (part,) = answer.responses[0].partitions
        batches = batch.parse(part.records)
        aborted = part.aborted_transactions
        if aborted is not None:
            # Kafka also names some that begin behind what it hands out, as coarse as its index
            end = batches[-1].last_offset if batches else -1
            found = sorted((one.first_offset, one.producer_id) for one in aborted)
            aborted = [f"{self.id_name(id)} from {first}" for first, id in found if first <= end]
        assert all(one.crc_ok for one in batches)
        told = "".join(f" {shown_batch(one, self.id_name(one.producer_id))}" for one in batches)
        self.say(
            f"{what}: {name_of(part.error_code)} high_watermark {part.high_watermark}"
            f" last_stable_offset {part.last_stable_offset}"
            f" log_start_offset {part.log_start_offset} aborted {aborted}{told}"
        )

    def list_offset(
        self,
        timestamp: int,
        *,
        partition: int = 0,
        version: int = 9,
        isolation: int = READ_UNCOMMITTED,
    ) -> None:
        part = {"partition_index": partition, "timestamp": timestamp}
        self.ask(
            "ListOffsets",
            version,
            f"{self._isolation(isolation)} {timestamp}",
            replica_id=-1,
            isolation_level=isolation,
            topics=[{"name": self.topic, "partitions": [part]}],
        )

    # ------------------------------------------------------------------------------------- state

    def describe(self, *names: str) -> None:
        ids = [self.prefix + name for name in names]
        self.ask("DescribeTransactions", 0, transactional_ids=ids)

    def describe_producers(self, *partitions: int, topic: str | None = None) -> None:
        asked = [{"name": topic or self.topic, "partition_indexes": list(partitions)}]
        self.ask("DescribeProducers", 0, topics=asked)

    def list_transactions(self, version: int, note: str = "", **filters: Any) -> None:
        """What is listed of this conversation's transactions; other tests' are left out."""
        answer = self.wire.call("ListTransactions", version, **filters)
        mine = [
            one for one in answer.transaction_states if one.transactional_id.startswith(self.prefix)
        ]
        answer.__dict__["transaction_states"] = mine
        self.say(f"ListTransactions v{version} {note or filters}: {self.shown(answer)}")

    def committed(self, *, stable: bool, version: int = 9) -> None:
        note = "stable" if stable else "any"
        wanted = [{"name": self.topic, "partition_indexes": [0, 1]}]
        fields: dict[str, Any] = {"groups": [{"group_id": self.group, "topics": wanted}]}
        if version < 8:
            fields = {"group_id": self.group, "topics": wanted}
        if version >= 7:
            fields["require_stable"] = stable
        self.ask("OffsetFetch", version, note, **fields)

    def mark(
        self,
        producer: Producer,
        *,
        commit: bool,
        partitions: Sequence[int] = (0,),
        version: int = 2,
        epoch: int | None = None,
        coordinator_epoch: int = -1,
        transaction_version: int = 0,
        topic: str | None = None,
    ) -> None:
        """WriteTxnMarkers as an administrator sends it to end what nobody else ends."""
        marker: dict[str, Any] = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch if epoch is None else epoch,
            "transaction_result": commit,
            "topics": [{"name": topic or self.topic, "partition_indexes": list(partitions)}],
            "coordinator_epoch": coordinator_epoch,
        }
        if version >= 2:
            marker["transaction_version"] = transaction_version
        note = f"{'commit' if commit else 'abort'} of {producer.name}, TV{transaction_version}"
        self.ask("WriteTxnMarkers", version, note, markers=[marker])

    def delete_records(self, before: int, *, partition: int = 0) -> None:
        part = {"partition_index": partition, "offset": before}
        self.ask(
            "DeleteRecords",
            2,
            f"before {before}",
            timeout_ms=10_000,
            topics=[{"name": self.topic, "partitions": [part]}],
        )

    def settle(self, name: str, *states: str, seconds: float = 30) -> None:
        """Until all markers of a transaction are written, which Kafka does in its own time."""
        wanted = states or ("Empty", "CompleteCommit", "CompleteAbort")
        deadline = time.monotonic() + seconds
        while True:
            answer = self.wire.call(
                "DescribeTransactions", 0, transactional_ids=[self.prefix + name]
            )
            found = answer.transaction_states[0].transaction_state
            if found in wanted:
                return
            assert time.monotonic() < deadline, f"{name} is still {found}, not {wanted}"
            time.sleep(0.01)


@dataclass
class Producer:
    """One transactional producer; what it was told last (id, epoch) is what it says next."""

    script: Script
    name: str
    protocol: Protocol
    transactional_id: str
    timeout_ms: int = 60_000
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)

    def ask(self, api: str, version: int, note: str = "", /, **fields: Any) -> Struct:
        return self.script.ask(api, version, note, who=self.name, **fields)

    def init(self, version: int | None = None, *, known: bool = False, **changes: Any) -> Struct:
        """InitProducerId; with id and epoch of before when `known` (KIP-360)."""
        version = self.protocol.init if version is None else version
        fields: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "transaction_timeout_ms": self.timeout_ms,
        }
        if known:
            fields |= {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        answer = self.ask(
            "InitProducerId", version, self._note(changes, "known" if known else ""),
            **fields | changes,
        )  # fmt: skip
        if answer.error_code == 0:
            self._now(answer)
        return answer

    def _now(self, answer: Struct) -> None:
        if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}

    @staticmethod
    def _note(changes: Mapping[str, Any], *words: str) -> str:
        """Changes by name only: their values may differ from run to run."""
        small = (f"{k} {v}" if isinstance(v, (bool, int)) and k != "producer_id" else k
                 for k, v in changes.items())  # fmt: skip
        return " ".join(filter(None, (*words, *small)))

    def add(
        self,
        *partitions: int,
        version: int | None = None,
        topics: Mapping[str, Sequence[int]] | None = None,
        verify_only: bool = False,
        **changes: Any,
    ) -> Struct:
        version = self.protocol.add if version is None else version
        named = {self.script.topic: partitions} if topics is None else topics
        wanted = [{"name": name, "partitions": list(parts)} for name, parts in named.items()]
        note = self._note(changes, *(["verify"] if verify_only else []), str(list(named.values())))
        one: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "topics": wanted,
        } | changes
        if version >= 4:
            one["verify_only"] = verify_only
            return self.ask("AddPartitionsToTxn", version, note, transactions=[one])
        old = {f"v3_and_below_{key}": value for key, value in one.items()}
        return self.ask("AddPartitionsToTxn", version, note, **old)

    def produce(
        self,
        *names: str,
        partition: int = 0,
        version: int | None = None,
        transactional: bool = True,
        transactional_id: str | None = "",
        sequence: int | None = None,
        acks: int = -1,
        attributes: int = 0,
        **changes: Any,
    ) -> Struct:
        """One batch; `transactional` is its bit, `transactional_id` what the request says."""
        version = self.protocol.produce if version is None else version
        base = self.sequences.get(partition, 0) if sequence is None else sequence
        ids = {"producer_id": self.producer_id, "producer_epoch": self.epoch} | changes
        data = batch.build(
            values(*names),
            attributes=(batch.TRANSACTIONAL if transactional else 0) | attributes,
            base_sequence=base if ids["producer_id"] >= 0 else -1,
            **ids,
        )
        told = self.transactional_id if transactional_id == "" else transactional_id
        answer = self.ask(
            "Produce",
            version,
            self._note(changes, f"{' '.join(names)} to {partition}"),
            transactional_id=told,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[
                {
                    "name": self.script.topic,
                    "partition_data": [{"index": partition, "records": data}],
                }
            ],
        )
        written = answer.responses[0].partition_responses[0].error_code == 0
        if written and sequence is None and not changes:
            self.sequences[partition] = base + len(names)
        return answer

    def write(self, *names: str, partition: int = 0) -> None:
        """Produce as its protocol has it: added first, or not."""
        if self.protocol.adds:
            self.add(partition)
        self.produce(*names, partition=partition)

    def end(self, result: str, version: int | None = None, **changes: Any) -> Struct:
        """EndTxn; `result` is commit or abort."""
        version = self.protocol.end if version is None else version
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "committed": result == "commit",
        }
        answer = self.ask("EndTxn", version, self._note(changes, result), **fields | changes)
        if answer.error_code == 0 and version >= 5:
            self._now(answer)
        return answer

    def finish(self, result: str) -> None:
        """End, and wait until the markers are there."""
        self.end(result)
        self.settle()

    def settle(self, *states: str) -> None:
        self.script.settle(self.name, *states)

    def add_offsets(self, version: int | None = None, **changes: Any) -> Struct:
        version = self.protocol.add_offsets if version is None else version
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "group_id": self.script.group,
        }
        return self.ask("AddOffsetsToTxn", version, self._note(changes), **fields | changes)

    def commit_offsets(
        self, offsets: Mapping[int, int], version: int | None = None, **changes: Any
    ) -> Struct:
        version = self.protocol.offsets if version is None else version
        parts = [
            {"partition_index": index, "committed_offset": offset, "committed_metadata": "by txn"}
            for index, offset in offsets.items()
        ]
        fields = {
            "transactional_id": self.transactional_id,
            "group_id": self.script.group,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "topics": [{"name": self.script.topic, "partitions": parts}],
        }
        note = self._note(changes, str(dict(offsets)))
        return self.ask("TxnOffsetCommit", version, note, **fields | changes)
