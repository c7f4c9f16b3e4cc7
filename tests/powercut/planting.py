"""Clients that write forged commits wherever they can. Runs in a worker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.broker.harness import START_MS, Client, Harness
from tests.broker.txnkit import TxnProducer
from tests.powercut import forge
from tests.powercut.life import OPTIONS, Life
from tests.powercut.trace import Recorder
from tests.powercut.world import View, look

from ottla.log.repair import repair
from ottla.log.store import Store
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import Error
from ottla.wire.records import Record, build_batch, patch

#: How many numbers are guessed, around the one that is next.
GUESSES: Final = 12


def numbers(store: Store) -> list[int]:
    """Those that the log may look for soon, and those it has."""
    return list(range(max(1, store.committed - 2), store.committed + GUESSES))


# ------------------------------------------------------------------------------------- in records


def batches(life: Life, at: str) -> Iterator[bytearray]:
    """Batches with forged commits in the record's key, value or header, of all sizes."""
    fresh = bytes(build_batch([Record(0, 0, b"", b"")]))
    for size in (300, 3000, 9000, 1 << 20):
        for shift in (0, 1, 4):
            whole = b"".join(forge.commits(numbers(life.store), fresh))
            payload = bytes(shift) + whole[:size]
            record = Record(0, life.now_ms, None, None)
            if at == "key":
                record = record._replace(key=payload)
            elif at == "value":
                record = record._replace(value=payload)
            else:
                record = record._replace(headers=((b"h", payload),))
            yield build_batch([record])


def send(life: Life, number: int, batch: bytearray) -> None:
    """A batch and its acknowledgement."""
    life.send(number, batch)
    life.settle()


def in_records(life: Life, at: str) -> None:
    """Forged commits in small and large records, with honest ones between them."""
    life.first_partitions()
    life.change()
    life.settle()
    life.pass_time(10_000)
    for batch in batches(life, at):
        send(life, 2, batch)
        life.append(1, 50)
        life.settle()


def on_pages(life: Life) -> None:
    """Records that fill pages of their own with what looks like pages: their numbers are guessed
    until some are right."""
    life.first_partitions()
    life.change()
    life.settle()
    life.pass_time(10_000)
    hits = 0
    for ahead in (0, 1, 1, 0) * 4:
        first = life.store.layout.active.path.stat().st_size // forge.PAGE + ahead
        around = numbers(life.store)
        value_at = _value_at()
        value = forge.frames(first, value_at, around, 6)
        send(life, 2, build_batch([Record(0, life.now_ms, None, value)]))
        hits += _hits(life.store.layout.active.path.read_bytes())
        life.append(1, 50)
        life.settle()
    assert hits > 20, "no page has the number that it claims"


def _value_at() -> int:
    """Where a record's value begins on the first page of a run, for one of 16 KiB to 2 MiB."""
    value = b"\xa5" * 25_000
    return 16 + bytes(build_batch([Record(0, 0, None, value)])).index(value)


def _hits(data: bytes) -> int:
    """Pages that a client made and that have the number that they claim."""
    found = 0
    for page in range(len(data) // forge.PAGE):
        content = data[page * forge.PAGE : (page + 1) * forge.PAGE]
        if int.from_bytes(content[:8], "little") == page and forge.POISON in content:
            found += content[16:20] in (b"OtC1", b"OtC2") or content[10] == 2
    return found


VICTIM: Final = b"victim" * 3000
IMPOSTOR: Final = forge.POISON * 3000


def beside_another(life: Life) -> None:
    """In one commit with another client's large batch: what says that it is that batch."""
    life.first_partitions()
    for _ in range(6):
        # Pages of the tree and of the other batch come before it; in every second commit it fits.
        first = life.store.layout.active.path.stat().st_size // forge.PAGE + 6
        honest = build_batch([Record(0, life.now_ms, None, VICTIM)])
        false = build_batch([Record(0, life.now_ms, None, IMPOSTOR)])
        patch(false, 0, life.world.parts[1].end, 0)
        value = forge.extent_pages(first, _value_at(), (life.store.committed + 1, 1), bytes(false))
        life.send(1, honest)
        life.send(2, build_batch([Record(0, life.now_ms, None, value)]))
        life.settle()


# ------------------------------------------------------------------------------ through a broker


class Planter:
    """A client that has forged commits in all that it may name."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        #: What was taken, and what was refused, by name.
        self.taken: list[str] = []
        self.refused: list[str] = []

    def text(self, ahead: int = 1, salt: int | None = None) -> str:
        """A forged commit with a number that is next, or nearly."""
        return forge.text(self.harness.store.committed + ahead, salt)

    def data(self) -> bytes:
        return b"".join(forge.commits(numbers(self.harness.store)))

    def told(self, name: str, error: int) -> None:
        (self.refused if error else self.taken).append(f"{name}: {Error(error).name}")

    def topic_names(self, client: Client) -> None:
        for name in (self.text(), self.text(0, 1)):
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            answer = client.call(CreateTopicsRequest(topics=[topic]), 7)
            self.told("topic", answer.topics[0].error_code)

    def configs(self, client: Client) -> None:
        """All that takes a list or a free text."""
        for name in ("follower.replication.throttled.replicas", "cleanup.policy", "retention.ms"):
            config = AlterableConfig(name=name, config_operation=0, value=self.text())
            resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
            request = IncrementalAlterConfigsRequest(resources=[resource])
            self.told(name, client.call(request, 1).responses[0].error_code)
            made = CreatableTopicConfig(name=name, value=self.text())
            topic = CreatableTopic(name="u", num_partitions=1, replication_factor=1, configs=[made])
            answer = client.call(CreateTopicsRequest(topics=[topic]), 7)
            self.told(name, answer.topics[0].error_code)

    def offsets(self, client: Client) -> None:
        """Names of groups, and the words on their offsets."""
        for ahead in range(3):
            for salt in (None, *forge.SALTS):
                part = OffsetCommitRequestPartition(
                    partition_index=0,
                    committed_offset=7,
                    committed_metadata="".join(self.text(ahead + i, salt) for i in range(20)),
                )
                topics = [OffsetCommitRequestTopic(name="t", partitions=[part])]
                request = OffsetCommitRequest(group_id=self.text(ahead, salt), topics=topics)
                answer = client.call(request, 8).topics[0].partitions[0]
                self.told("group and offset's metadata", answer.error_code)

    def members(self, client: Client) -> None:
        """A group's protocol type, protocols, member's metadata, instance id and assignment."""
        data = self.data()
        protocol = JoinGroupRequestProtocol(name=self.text(), metadata=data)
        request = JoinGroupRequest(
            group_id=self.text(2),
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            group_instance_id=self.text(3),
            protocol_type=self.text(2),
            protocols=[protocol],
        )
        client.send(request, 7)
        self.harness.pass_time(10_000)
        joined = client.receive()
        self.told("member", joined.error_code)
        assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=data)
        sync = SyncGroupRequest(
            group_id=request.group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[assignment],
        )
        client.send(sync, 5)
        self.harness.turn()
        self.told("assignment", client.receive().error_code)

    def transactions(self) -> None:
        for salt in (None, *forge.SALTS):
            producer = TxnProducer(self.harness, self.text(2, salt), True)
            producer.begin()
            error = producer.send("t", 0, self.data())
            self.told("transactional id", error)
            self.told("group in a transaction", producer.offsets(self.text(2, salt), "t", 0, 5))
            producer.end(salt is None)

    def raw(self, client: Client) -> None:
        """A batch whose records nobody can open, and bytes that are no batch at all."""
        batch = build_batch([Record(0, START_MS, None, self.data())])
        for name, records in (("batch", bytes(batch)), ("no batch", self.data())):
            part = PartitionProduceData(index=1, records=records)
            topics = [TopicProduceData(name="t", partition_data=[part])]
            request = ProduceRequest(acks=-1, topic_data=topics)
            answer = client.call(request, 9).responses[0].partition_responses[0]
            self.told(name, answer.error_code)


def through_a_broker(folder: Path, trace: Path) -> tuple[View, list[str], list[str]]:
    """Plant in all that a client may name; all that is true then, what was taken and refused."""
    recorder = Recorder()
    recorder.start(folder.parent, trace)
    harness = Harness(folder, options=replace(OPTIONS, checkpoint_ms=1 << 40))
    try:
        harness.topic("t", 2)
        planter = Planter(harness)
        client = harness.client()
        planter.topic_names(client)
        planter.configs(client)
        planter.raw(client)
        planter.offsets(client)
        planter.members(client)
        planter.transactions()
        planter.offsets(client)
        view = look(harness.store)
    finally:
        recorder.stop()
        harness.store.close()
    return view, planter.taken, planter.refused


def found(folder: Path, repaired: bool) -> tuple[View, float]:
    """What a start on an image shows, and the seconds of this process that it took."""
    began = time.process_time()
    if repaired:
        report = repair(folder)
        assert not report.lost, report.lines()
    store = Store.open(folder, options=OPTIONS, now_ms=START_MS, boot_id="boot after the cut")
    took = time.process_time() - began
    try:
        return look(store), took
    finally:
        store.close()
