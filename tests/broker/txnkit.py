"""A transactional producer in messages, old or new, and what readers of committed records see."""

from __future__ import annotations

from typing import Final

import pytest
from tests.broker.harness import START_MS, Client, Harness

from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest, TransactionState
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.errors import Error
from ottla.wire.records import TRANSACTIONAL, Record, build_batch, records, walk

NEW, OLD = True, False
TIMEOUT_MS: Final = 60_000
both_versions = pytest.mark.parametrize("new", [NEW, OLD], ids=["v2", "v1"])
_ABORT: Final = bytes(4)


class TxnProducer:
    """One instance. `new`: transaction version 2, which is in the versions of its requests."""

    def __init__(self, harness: Harness, name: str, new: bool, timeout_ms: int = TIMEOUT_MS):
        self.client: Client = harness.client()
        self.name = name
        self.new = new
        self.timeout_ms = timeout_ms
        self.id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, *, goes_on: bool = False) -> Error:
        """A new epoch; `goes_on`: the one that it has is named (KIP-360)."""
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=self.timeout_ms
        )
        if goes_on:
            request.producer_id, request.producer_epoch = self.id, self.epoch
        answer = self.client.call(request, 5 if self.new else 4)
        if not answer.error_code:
            self._is_now(answer.producer_id, answer.producer_epoch)
        return Error(answer.error_code)

    def begin(self) -> None:
        """Init, once more where an open transaction was in the way."""
        error = self.init()
        if error is Error.CONCURRENT_TRANSACTIONS:
            error = self.init()
        assert error is Error.NONE

    def _is_now(self, producer_id: int, epoch: int) -> None:
        if (self.id, self.epoch) != (producer_id, epoch):
            self.id, self.epoch = producer_id, epoch
            self.sequences = {}

    def add(self, topic: str, *indexes: int) -> Error:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
        )
        (found,) = self.client.call(request, 3).results_by_topic_v3_and_below
        return Error(max(result.partition_error_code for result in found.results_by_partition))

    def produce_request(self, topic: str, index: int, *values: bytes) -> ProduceRequest:
        sequence = self.sequences.get((topic, index), 0)
        rows = [Record(n, START_MS, None, value, ()) for n, value in enumerate(values)]
        batch = build_batch(
            rows,
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        partition = PartitionProduceData(index=index, records=bytes(batch))
        topics = [TopicProduceData(name=topic, partition_data=[partition])]
        return ProduceRequest(transactional_id=self.name, acks=-1, topic_data=topics)

    def produce(self, topic: str, index: int, *values: bytes, version: int | None = None) -> Error:
        """Only the write."""
        request = self.produce_request(topic, index, *values)
        version = version or (12 if self.new else 9)
        answer = self.client.call(request, version).responses[0].partition_responses[0]
        if not answer.error_code:
            self.sequences[topic, index] = self.sequences.get((topic, index), 0) + len(values)
        return Error(answer.error_code)

    def send(self, topic: str, index: int, *values: bytes) -> Error:
        """The write, and before it what an old producer has to ask."""
        if not self.new:
            error = self.add(topic, index)
            if error is not Error.NONE:
                return error
        return self.produce(topic, index, *values)

    def offsets(self, group: str, topic: str, index: int, offset: int) -> Error:
        """A group's offset, to be moved with the transaction."""
        if not self.new:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            error = self.client.call(request, 3).error_code
            if error:
                return Error(error)
        partition = TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        commit = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        answer = self.client.call(commit, 5 if self.new else 3)
        return Error(answer.topics[0].partitions[0].error_code)

    def end_request(self, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    def end(self, committed: bool = True) -> Error:
        answer = self.client.call(self.end_request(committed), 5 if self.new else 4)
        if not answer.error_code and self.new:
            self._is_now(answer.producer_id, answer.producer_epoch)
        return Error(answer.error_code)

    def describe(self) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        (found,) = self.client.call(request, 0).transaction_states
        assert isinstance(found, TransactionState)
        return found


def ready(harness: Harness, new: bool, name: str = "x") -> TxnProducer:
    producer = TxnProducer(harness, name, new)
    producer.begin()
    return producer


def seen(harness: Harness, topic: str, index: int = 0, *, committed: bool = True) -> list[bytes]:
    """The values that a reader gets, from the start to where nothing more comes: as stock clients
    do, it leaves out what each answer says was aborted, from the first offset up to the marker."""
    client, values, offset = harness.client(), list[bytes](), 0
    while True:
        partition = FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 30
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        (found,) = client.call(request, 12).responses[0].partitions
        assert found.error_code == 0, Error(found.error_code)
        left_out = sorted((a.first_offset, a.producer_id) for a in found.aborted_transactions or ())
        data, aborted, before = bytes(found.records), set[int](), offset
        for pos, header in walk(data):
            offset = header.next_offset
            while left_out and left_out[0][0] <= header.base_offset:
                aborted.add(left_out.pop(0)[1])
            batch = list(records(data[pos : pos + header.size], header))
            if header.is_control:
                if batch[0].key == _ABORT:
                    aborted.discard(header.producer_id)
            elif header.producer_id not in aborted:
                values += [record.value or b"" for record in batch]
        if offset == before:
            return values


def group_offset(
    harness: Harness, group: str, topic: str, index: int = 0, *, stable: bool = False
) -> tuple[Error, int]:
    """The committed offset; `stable`: not while a transaction is going to move it."""
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable
    )
    found = harness.client().call(request, 8).groups[0].topics[0].partitions[0]
    return Error(found.error_code), found.committed_offset
